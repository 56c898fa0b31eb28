/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rota - work that waits, taken in turns by whom it is for
 *
 * For front ends, where one queue would let a user with many requests stand before everybody. An
 * item comes with a path of ROTA_DEPTH keys, for example kind, user, process group. Under each key
 * lie parties, and those that have items take turns: the first keys among each other, then the
 * second ones within the first, and so on. Items of one whole path keep their order. A party that
 * comes queues behind those that are there, so an item waits for at most one turn of each. Pure.
 * Single-threaded. The items stay the caller's: this links them.
 */
#ifndef GMSFS_BASE_ROTA_H
#define GMSFS_BASE_ROTA_H

#include <stddef.h>
#include <stdint.h>

#define ROTA_DEPTH   3u
#define ROTA_BUCKETS 256u

/* Embedded in what waits. */
struct rota_item {
    struct rota_item *next;
};

struct rota_party;

/* All zeros: nothing waits. */
struct rota {
    struct rota_party *first, *last; /* of the first keys; the next to be served is the first */
    size_t count;                    /* items */
    struct rota_party *buckets[ROTA_BUCKETS];
    struct rota_party *spare; /* parties that are over, to be used again: at most ROTA_DEPTH */
    unsigned spare_count;
};

/* Queues the item. 0; -ENOMEM: it was not queued. */
int rota_push(struct rota *rota, const uint64_t path[ROTA_DEPTH], struct rota_item *item);
/* Takes out the next item; NULL if nothing waits. */
struct rota_item *rota_pop(struct rota *rota);
/* Frees what is kept for later use. Nothing waits. */
void rota_free(struct rota *rota);

#endif
