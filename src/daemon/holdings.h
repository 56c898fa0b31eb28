/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holdings - every descriptor that the keeper holds for its worker: of memory, and of connections
 *
 * Keeper only; never looks into the memory, nor reads from a connection.
 */
#ifndef GMSFS_DAEMON_HOLDINGS_H
#define GMSFS_DAEMON_HOLDINGS_H

#include "base/idvec.h"
#include "daemon/fdstore.h"
#include "service/host.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct holding {
    uint64_t id;    /* first for idvec */
    uint64_t bytes; /* 0: its file tells */
    int fd;
    uint32_t place; /* in the descriptor store; 0: none */
};

struct holdings {
    struct idvec items;    /* by number; what is no memory (connections, regions) behind it */
    struct fdstore *store; /* has them as well; NULL: there is none */
};

/* Takes the descriptor, on failure too. */
int holdings_add(struct holdings *holdings, uint64_t id, int fd, uint64_t bytes);
/* As holdings_add, of what the store gave back; what was there under its number goes. */
int holdings_add_stored(struct holdings *holdings, const struct fdstore_item *item);
/* From now on they are in this store as well. */
void holdings_store(struct holdings *holdings, struct fdstore *store);
/* Of memory its weaker descriptor, for readers, goes too. */
void holdings_drop(struct holdings *holdings, uint64_t id);
void holdings_drop_unread(struct holdings *holdings);
/* All of them, in the order of their numbers, as malloc'ed `kept`; the descriptors are the
 * caller's then, and there are no holdings. For a process that has inherited them. -ENOMEM */
int holdings_take(struct holdings *holdings, struct service_kept **kept, size_t *count);
void holdings_free(struct holdings *holdings);
/* All of them, and each: to be looked at. */
size_t holdings_count_all(const struct holdings *holdings);
struct holding holdings_at(const struct holdings *holdings, size_t index);
/* Pieces of memory. */
size_t holdings_count(const struct holdings *holdings);
/* What they cost, as fstat says it. */
uint64_t holdings_count_bytes(const struct holdings *holdings);

#endif
