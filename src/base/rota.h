/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rota - a queue that serves its users in turns
 *
 * For front ends, where a plain queue would let a user with many requests delay all others. An item
 * has a path of ROTA_DEPTH keys, for example kind, user, process group. Each key is a party, and
 * parties with items take turns: the first keys with each other, then the second keys within each
 * first, and so on. Items of the same path keep their order. A new party queues behind the others,
 * so an item waits for at most one turn of each. Pure. Single-threaded. The caller owns the items;
 * this links them.
 */
#ifndef GMSFS_BASE_ROTA_H
#define GMSFS_BASE_ROTA_H

#include <stddef.h>
#include <stdint.h>

#define ROTA_DEPTH   3u
#define ROTA_BUCKETS 256u

/* Embedded in the object that waits. */
struct rota_item {
    struct rota_item *next;
};

struct rota_party;

/* All zeros if empty. */
struct rota {
    struct rota_party *first, *last; /* parties of the first keys; `first` is served next */
    size_t count;                    /* number of items */
    struct rota_party *buckets[ROTA_BUCKETS];
    struct rota_party *spare; /* at most ROTA_DEPTH unused parties to use again */
    unsigned spare_count;
};

/* Queues the item. 0; -ENOMEM: not queued. */
int rota_push(struct rota *rota, const uint64_t path[ROTA_DEPTH], struct rota_item *item);
/* Removes and returns the next item; NULL if empty. */
struct rota_item *rota_pop(struct rota *rota);
/* Frees the unused parties; the rota must be empty. */
void rota_free(struct rota *rota);

#endif
