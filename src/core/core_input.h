/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_input - reads the bytes of an encoded state, which are not trusted
 *
 * For core_decode*.c. The first failure and its message are kept; every later read returns 0 and
 * does not advance, so that a caller reads a whole object and checks for errors once. A count in
 * the bytes is checked against the bytes that are left before memory is allocated for it.
 */
#ifndef GMSFS_CORE_CORE_INPUT_H
#define GMSFS_CORE_CORE_INPUT_H

#include "core/core_fields.h"
#include "core/core_internal.h"

struct input {
    const uint8_t *start, *at, *end;
    struct core *core; /* the state as far as it is built */
    struct failure *failure;
    const char *part; /* the object being read, for messages */
    uint64_t which;   /* its id; 0 if none */
    uint32_t version; /* of the encoded state */
    int error;
};

/* Records the first error; 0 is ignored. */
void input_fail(struct input *input, int error);
/* Records -EINVAL with a message that names the object and the byte. */
void input_refuse(struct input *input, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

size_t input_left(const struct input *input);
/* Returns the next `size` bytes; NULL if there are fewer. */
const uint8_t *input_raw(struct input *input, size_t size);
uint32_t input_u32(struct input *input);
uint64_t input_u64(struct input *input);
bool input_bool(struct input *input);
/* Reads an enum value in a byte. */
unsigned input_choice(struct input *input, unsigned least, unsigned most);
/* Reads the number of the objects that follow, which take at least `bytes_each` each. */
size_t input_count(struct input *input, size_t most, size_t bytes_each);
/* Reads a byte string in place. */
const void *input_bytes(struct input *input, size_t most, size_t *size);
struct core_process input_process(struct input *input);
/* Reads the members in the table into `object`. */
void input_fields(struct input *input, const struct core_field *fields, void *object);
/* Reads the id at the start of an object. */
uint64_t input_id(struct input *input, const char *part);

/* Returns a zeroed object; NULL after an error. */
void *input_new_item(struct input *input, size_t size);
/* Appends `item` to the table, or frees it: ids have to rise and be below `next`. */
bool input_keep(struct input *input, struct idvec *vec, void *item, uint64_t next);
/* Adds `more` to a user's share of a bound; refuses more than the bound. */
void input_take(struct input *input, struct share *share, uint32_t uid, uint64_t more);

/* core_decode_store.c */
/* Adds `bytes` to the store's use; refuses an overflow. */
void input_use(struct input *input, struct core_store *store, uint64_t bytes);
void input_store(struct input *input);
/* Reads the times that writers have set on allocations and their directories. */
void input_times(struct input *input);
/* Reads the ids of contents; in an older version none is known. */
void input_contents(struct input *input);
/* Derives the table of memories from all layouts, and reads which of them are suspect. */
void input_memories(struct input *input);

#endif
