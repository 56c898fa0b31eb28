/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places_futures - does places_walk.h leave out nothing, where it takes states for equal?
 *
 * For test_core_places.c, which includes it once. After a search that has come to its end it does
 * again each deed in each state, of each process and always from the bytes. Where that comes to a
 * state in another way, with other bytes, all that can follow there must be what can follow in the
 * equal one that was gone on from: the same deeds with the same answers, to states that are equal.
 */
#ifndef GMSFS_TESTS_UNIT_PLACES_FUTURES_H
#define GMSFS_TESTS_UNIT_PLACES_FUTURES_H

#include "places_walk.h"

#define MOST_DEEDS (DEEDS * PROCS * STORES)

/* Deeds, their answers and where they lead, each once. */
struct future {
    uint64_t ways[MOST_DEEDS];
    size_t count;
};

static int compare_ways(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

/* A deed of a process that uses a store implies that store. */
static void note_way(struct future *future, enum deed deed, unsigned store)
{
    bool is_inside = deed > OPEN_REPLACE && deed <= COMMIT;
    uint8_t way[KEY_BYTES + 3] = {(uint8_t)deed, is_inside ? 0 : (uint8_t)store,
                                  (uint8_t)walk.error};

    make_key(way + 3);
    future->ways[future->count++] = hash_bytes(way, sizeof way);
}

static uint64_t hash_future(struct future *future)
{
    size_t kept = 0;

    qsort(future->ways, future->count, sizeof future->ways[0], compare_ways);
    for (size_t i = 0; i < future->count; i++)
        if (i == 0 || future->ways[i] != future->ways[i - 1])
            future->ways[kept++] = future->ways[i];
    return hash_bytes(future->ways, kept * sizeof future->ways[0]);
}

typedef void (*visit_fn)(const struct node *from, enum deed deed, unsigned store);

/* Does every possible deed of every process from one state, each time decoded from its bytes. */
static void follow(const struct node *node, visit_fn visit)
{
    for (unsigned deed = 0; deed < DEEDS; deed++)
        for (unsigned p = 0; p < PROCS; p++)
            for (unsigned store = 0; store < STORES; store++) {
                recall_facts(node);
                if (walk.broken || !is_possible((enum deed)deed, p, store))
                    continue;
                go_to(node);
                act((enum deed)deed, p, store);
                visit(node, (enum deed)deed, store);
            }
}

static struct {
    struct future now;
    uint64_t *known; /* of each state that was gone on from */
    uint64_t others; /* ways with other bytes */
    uint64_t differ, unknown;
} futures;

static void visit_now(const struct node *from, enum deed deed, unsigned store)
{
    (void)from;
    note_way(&futures.now, deed, store);
}

static uint64_t find_future(const struct node *node)
{
    futures.now.count = 0;
    follow(node, visit_now);
    return hash_future(&futures.now);
}

/* Compares the state that this deed led to with the known state of the same key. */
static void hold_against_known(const struct node *from, enum deed deed, unsigned store)
{
    uint8_t key[KEY_BYTES];
    uint32_t slot;
    struct node other;

    (void)from;
    (void)deed;
    (void)store;
    make_key(key);
    slot = *find_slot(key);
    futures.unknown += slot == 0;
    if (slot == 0)
        return;
    other = make_node();
    if (other.size != walk.nodes[slot - 1].size ||
        memcmp(other.bytes, walk.nodes[slot - 1].bytes, other.size) != 0) {
        futures.others++;
        futures.differ += find_future(&other) != futures.known[slot - 1];
    }
    forget(&other);
}

/* After a search with walk.keeps. */
static void compare_futures(void)
{
    memset(&futures, 0, sizeof futures);
    futures.known = calloc(walk.node_count, sizeof futures.known[0]);
    require(futures.known);
    for (size_t i = 0; i < walk.node_count; i++)
        futures.known[i] = find_future(&walk.nodes[i]);
    for (size_t i = 0; i < walk.node_count; i++)
        follow(&walk.nodes[i], hold_against_known);
    free(futures.known);
}

#endif
