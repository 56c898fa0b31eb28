/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_input - reads the bytes of an encoded state, which may be anybody's
 *
 * For core_decode*.c. The first failure is kept with its words, and from then on everything that is
 * read is 0 and nothing moves: so a whole object is read first, and judged once. Nothing is
 * allocated for what the bytes merely claim.
 */
#ifndef GMSFS_CORE_CORE_INPUT_H
#define GMSFS_CORE_CORE_INPUT_H

#include "core/core_fields.h"
#include "core/core_internal.h"

struct input {
    const uint8_t *start, *at, *end;
    struct core *core; /* as far as it is built */
    struct failure *failure;
    const char *what; /* is being read, */
    uint64_t which;   /* and its id; 0: it has none */
    uint32_t version; /* of the state */
    int error;
};

/* 0 is none. */
void input_fail(struct input *input, int error);
/* -EINVAL, where it stands. */
void input_refuse(struct input *input, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

size_t input_left(const struct input *input);
/* So many bytes as they stand there; NULL: there are fewer. */
const uint8_t *input_raw(struct input *input, size_t size);
uint32_t input_u32(struct input *input);
uint64_t input_u64(struct input *input);
bool input_bool(struct input *input);
/* One of the values of an enum, in a byte. */
unsigned input_choice(struct input *input, unsigned least, unsigned most);
/* Of things that take at least `bytes_each`. */
size_t input_count(struct input *input, size_t most, size_t bytes_each);
/* A byte string; it stays where it is. */
const void *input_bytes(struct input *input, size_t most, size_t *size);
struct core_process input_process(struct input *input);
/* The members that the table names, in its order. */
void input_fields(struct input *input, const struct core_field *fields, void *object);
/* The id that an object begins with. */
uint64_t input_id(struct input *input, const char *what);

/* Zeroed, or NULL. */
void *input_new_item(struct input *input, size_t size);
/* Takes it as the last of the table, or frees it: ids rise, and are below `next`. */
bool input_keep(struct input *input, struct idvec *vec, void *item, uint64_t next);
/* Counts what somebody has of a bound: never more than all of it. */
void input_take(struct input *input, struct share *share, uint32_t uid, uint64_t more);

/* core_decode_store.c */
/* So much more is the store's; all of it together is no more than there can be. */
void input_use(struct input *input, struct core_store *store, uint64_t bytes);
void input_store(struct input *input);
/* What writers have set of allocations and of their directories. */
void input_times(struct input *input);
/* What the layouts of all stores hold, and which of it is suspect. */
void input_memories(struct input *input);

#endif
