/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_check - declarations for the checks of invariants of a core, which core_check.c begins
 */
#ifndef GMSFS_CORE_CORE_CHECK_H
#define GMSFS_CORE_CORE_CHECK_H

#include "core/core_internal.h"

struct check {
    const struct core *core;
    struct failure *failure;
    /* the object that is checked now, for the message: its kind (NULL: the whole mount), its id,
     * its index */
    const char *kind;
    uint64_t id;
    size_t index;
    /* counts made on the way: position in each store's lock */
    size_t next_session[CORE_MAX_STORES], next_waiter[CORE_MAX_STORES];
    uint64_t *session_files; /* by index of the session */
    bool *file_waits;
    uint64_t *memory_bytes;                 /* on the device, by index of the store */
    uint64_t suspects[CORE_MAX_STORES + 1]; /* suspect memories, by index of the store */
    uint64_t unfilled_bytes;                /* of all pools */
    size_t waited, lent, displaced;         /* stores */
};

/* Sets the message "KIND ID: TEXT" of a failed check of the present object. Returns -EINVAL. */
int core_wrong(const struct check *check, const char *text);

/* Calls `check_one` for each item until the first failure. Ids have to rise and be below `next`. */
int core_check_each(struct check *check, const char *kind, const struct idvec *items, uint64_t next,
                    int (*check_one)(struct check *check, const void *item));

/* True if the text has its NUL within `room` bytes. */
bool core_is_text(const char *text, size_t room);

/* The parts; each returns 0, -EINVAL or -ENOMEM with a message. */
int core_check_index(struct check *check);
int core_check_regions(struct check *check);
int core_check_places(struct check *check);
int core_check_events(struct check *check); /* events, histories and drains of stores */
int core_check_mount(struct check *check);  /* health, drain and fence */
/* Memories have as many references as counted, ids are unique, and allocations keep their wire
 * ids. */
int core_check_memories(struct check *check);
int core_check_ids(struct check *check);
int core_check_wire_ids(struct check *check);
int core_check_pools(struct check *check);

#endif
