/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places_key - when two states are one to places_walk.h, which includes this
 *
 * States are equal if no later deed can tell them apart. The key leaves out numbers that only grow
 * (ids, generations, counters of moves, events) and a process's original request, if the outcome is
 * the same. Processes are interchangeable; waiters count by their order of arrival.
 * test_core_places.c compares the real futures of equal states, by every path that leads to them.
 */
#ifndef GMSFS_TESTS_UNIT_PLACES_KEY_H
#define GMSFS_TESTS_UNIT_PLACES_KEY_H

#include "places_deeds.h"

/* A process's relation to a store. */
enum phase {
    OUTSIDE,
    OVER, /* its session has ended: it can only close its open file */
    INSIDE,
    SPOILS, /* inside, and it has written to the committed content */
    WAITS,  /* plus the number of waiters before it */
};

/* Counts waiters of all stores: the device has one queue. */
static uint8_t rank_of(const struct proc *waiting)
{
    uint8_t rank = 0;

    for (unsigned q = 0; q < PROCS; q++) {
        const struct proc *other = &walk.facts.procs[q];
        rank += other->waiter != 0 && other->waiter < waiting->waiter;
    }
    return rank;
}

static uint8_t code_of(unsigned p)
{
    const struct proc *proc = &walk.facts.procs[p];
    const struct core_session *session = core_find_session(walk.core, proc->session);
    uint8_t where = (uint8_t)((proc->way == REPLACES ? WRITES : proc->way) << 3 | proc->store << 6);

    if (proc->waiter != 0)
        return where | (uint8_t)(WAITS + rank_of(proc));
    if (session && !proc->over)
        return where | (session->touched ? SPOILS : INSIDE);
    return proc->file != 0 ? OVER : OUTSIDE;
}

static int compare_codes(const void *a, const void *b)
{
    return *(const uint8_t *)a - *(const uint8_t *)b;
}

static bool is_suspect(uint64_t id)
{
    const struct core_memory *memory = id != 0 ? core_memory(walk.core, id) : NULL;

    return memory && memory->suspect != 0;
}

#define STORE_KEY_BYTES 3u

static void put_store_key(uint8_t *key, unsigned i)
{
    const struct core_store *store = store_of(i);
    const struct sight *sight = &walk.facts.sights[i];
    const struct memory *memory = find_memory(&walk.facts, sight->memory);
    const struct layout *working = store->working;
    bool is_new = working && layout_count_allocations(working) > 0;

    key[0] = (uint8_t)(sight->committed | (int)sight->place << 1 | (sight->move != 0) << 3 |
                       (int)sight->to << 4 | store->places.move.spare << 6 |
                       walk.facts.given_up[i] << 7);
    key[1] = (uint8_t)(sight->pinned | sight->important << 1 | (working != NULL) << 2 |
                       is_new << 3 | (walk.facts.wanted[i] != 0) << 4);
    for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++)
        key[1] |= (uint8_t)((sight->spares[tier] != 0) << (5 + tier));
    key[2] = (uint8_t)((sight->memory != 0) | is_suspect(sight->memory) << 1 |
                       (is_new && is_suspect(layout_at_rank(working, 0)->memory)) << 2 |
                       (memory && memory->bytes == walk.facts.wanted[i]) << 3 |
                       (memory && memory->bytes == walk.facts.source[i]) << 4);
}

static void make_key(uint8_t key[KEY_BYTES])
{
    _Static_assert(KEY_BYTES >= PROCS + 1 + STORES * STORE_KEY_BYTES, "all that is written");
    memset(key, 0, KEY_BYTES);
    for (unsigned p = 0; p < PROCS; p++)
        key[p] = code_of(p);
    qsort(key, PROCS, 1, compare_codes);
    key[PROCS] = walk.facts.lost;
    for (unsigned i = 0; i < walk.stores; i++)
        put_store_key(key + PROCS + 1 + i * STORE_KEY_BYTES, i);
}

#endif
