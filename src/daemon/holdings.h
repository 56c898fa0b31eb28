/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holdings - the descriptors that the keeper holds for its worker, of memory and of connections
 *
 * Keeper only; never looks into the memory, nor reads from a connection.
 */
#ifndef GMSFS_DAEMON_HOLDINGS_H
#define GMSFS_DAEMON_HOLDINGS_H

#include "base/idvec.h"
#include "daemon/fdstore.h"
#include "service/host.h"

#include <stddef.h>
#include <stdint.h>

struct holding {
    uint64_t id;    /* first for idvec */
    uint64_t bytes; /* 0 if fstat of the file has to say */
    int fd;
    uint32_t place; /* in the descriptor store; 0 if none */
};

struct holdings {
    struct idvec items;    /* by number; connections and regions come after all memory */
    struct fdstore *store; /* holds them too; NULL if there is none */
};

/* Takes the descriptor, even on failure. */
int holdings_add(struct holdings *holdings, uint64_t id, int fd, uint64_t bytes);
/* Like holdings_add, for a descriptor that the store gave back; replaces the one with the same
 * number. */
int holdings_add_stored(struct holdings *holdings, const struct fdstore_item *item);
/* Stores them, and later ones, in this store too. */
void holdings_store(struct holdings *holdings, struct fdstore *store);
/* Drops memory together with its read-only descriptor for readers. */
void holdings_drop(struct holdings *holdings, uint64_t id);
void holdings_drop_unread(struct holdings *holdings);
/* Moves all, in the order of their numbers, into a malloc'ed `kept`: the caller owns the
 * descriptors, and the holdings are empty. For a process that has inherited them. -ENOMEM */
int holdings_take(struct holdings *holdings, struct service_kept **kept, size_t *count);
void holdings_free(struct holdings *holdings);
/* Returns the read-only descriptor of this memory; -1 if there is none. */
int holdings_find_readonly(const struct holdings *holdings, uint64_t memory);
/* Both cover every kind of holding. */
size_t holdings_count_all(const struct holdings *holdings);
struct holding holdings_at(const struct holdings *holdings, size_t index);
/* Counts pieces of memory. */
size_t holdings_count(const struct holdings *holdings);
/* Sums the memory's sizes, read by fstat if none was given. */
uint64_t holdings_count_bytes(const struct holdings *holdings);

#endif
