/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places_walk - takes a core, sound or broken, through everything that can happen to places
 *
 * For test_core_places.c, which includes it once. It does each of the deeds of places_deeds.h in
 * each state that it has come to, and remembers the states that it has seen. A state is kept as the
 * core's own bytes, so core_encode and core_decode are walked as well.
 *
 * States are equal when nothing that follows can tell them apart: numbers count by their order
 * alone, and one process is as good as another.
 */
#ifndef GMSFS_TESTS_UNIT_PLACES_WALK_H
#define GMSFS_TESTS_UNIT_PLACES_WALK_H

#include "places_deeds.h"

/* ---- states -----------------------------------------------------------------------------------
 */

static uint8_t code_of(unsigned p)
{
    const struct proc *proc = &walk.facts.procs[p];
    const struct core_session *session = core_find_session(walk.core, proc->session);
    uint8_t rank = 0;

    for (unsigned q = 0; q < PROCS; q++)
        rank += proc->waiter != 0 && walk.facts.procs[q].waiter != 0 &&
                walk.facts.procs[q].waiter < proc->waiter;
    return (uint8_t)(proc->way | proc->store << 3 | (proc->waiter != 0) << 4 | rank << 5 |
                     (session && session->touched) << 7);
}

static int compare_codes(const void *a, const void *b)
{
    return *(const uint8_t *)a - *(const uint8_t *)b;
}

static void make_key(uint8_t key[KEY_BYTES])
{
    size_t used = PROCS;

    _Static_assert(KEY_BYTES >= PROCS + 1 + STORES * (CORE_TIER_COUNT + 3), "all that is written");
    memset(key, 0, KEY_BYTES);
    for (unsigned p = 0; p < PROCS; p++)
        key[p] = code_of(p);
    qsort(key, PROCS, 1, compare_codes);
    key[used++] = walk.facts.lost;
    for (unsigned i = 0; i < walk.stores; i++) {
        const struct core_store *store = store_of(i);
        const struct sight *sight = &walk.facts.sights[i];
        const struct memory *memory = find_memory(&walk.facts, sight->memory);

        key[used++] = (uint8_t)(sight->committed | (int)sight->place << 1 |
                                (sight->move != 0) << 3 | (int)sight->to << 4 |
                                store->places.move.spare << 6 | walk.facts.given_up[i] << 7);
        for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++)
            key[used++] = sight->spares[tier] != 0;
        key[used++] = (uint8_t)((store->suspect < 3 ? store->suspect : 3) | sight->pinned << 2 |
                                sight->important << 3);
        key[used++] =
            (uint8_t)((memory && memory->bytes == walk.facts.wanted[i]) |
                      (memory && memory->bytes == walk.facts.source[i]) << 1 |
                      (store->working != NULL) << 2 |
                      (store->working && layout_count_allocations(store->working) > 0) << 3 |
                      (sight->memory != 0) << 4);
    }
}

/* Where the key is, or where it belongs. */
static uint32_t *find_slot(const uint8_t *key)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    size_t slot, mask = 2 * walk.room - 1;

    for (size_t i = 0; i < KEY_BYTES; i++)
        hash = (hash ^ key[i]) * UINT64_C(1099511628211);
    slot = (size_t)(hash ^ hash >> 32) & mask;
    while (walk.slots[slot] != 0 && memcmp(walk.keys[walk.slots[slot] - 1], key, KEY_BYTES) != 0)
        slot = (slot + 1) & mask;
    return &walk.slots[slot];
}

static void make_room(void)
{
    if (walk.node_count < walk.room)
        return;
    walk.room = walk.room > 0 ? 2 * walk.room : FIRST_STATES;
    walk.nodes = reallocarray(walk.nodes, walk.room, sizeof *walk.nodes);
    walk.keys = reallocarray(walk.keys, walk.room, sizeof *walk.keys);
    free(walk.slots);
    walk.slots = calloc(2 * walk.room, sizeof *walk.slots);
    require(walk.nodes && walk.keys && walk.slots && walk.room < UINT32_MAX);
    for (size_t i = 0; i < walk.node_count; i++)
        *find_slot(walk.keys[i]) = (uint32_t)i + 1;
}

/* Remembers the state that there is, unless it was seen. */
static void remember(void)
{
    uint8_t key[KEY_BYTES];
    struct node *node;
    uint32_t *slot;

    make_room();
    make_key(key);
    slot = find_slot(key);
    if (*slot != 0)
        return;
    memcpy(walk.keys[walk.node_count], key, KEY_BYTES);
    node = &walk.nodes[walk.node_count++];
    *slot = (uint32_t)walk.node_count;
    node->facts = malloc(sizeof *node->facts);
    require(node->facts && core_encode(walk.core, &node->bytes, &node->size) == 0);
    *node->facts = walk.facts;
}

static void go_to(const struct node *node)
{
    struct failure failure = {0};

    core_free(walk.core);
    walk.core = NULL;
    if (core_decode(node->bytes, node->size, &walk.core, &failure) != 0)
        walk.broken |= UNDECODED;
    walk.facts = *node->facts;
}

/* ---- the search -------------------------------------------------------------------------------
 */

static void begin(apply_fn use, unsigned procs, unsigned stores, bool has_disk)
{
    struct core_options options = {
        .patience_ms = 30000, .granularity_bytes = GRAIN, .limits = {.events = 16}};

    memset(&walk, 0, sizeof walk);
    walk.apply = use;
    walk.procs = procs;
    walk.stores = stores;
    walk.has_disk = has_disk;
    require(core_new(&options, &walk.core) == 0);
    for (unsigned i = 0; i < stores; i++) {
        const char *name = i == 0 ? "a" : "b";
        require(apply((struct record){
                    .type = RECORD_STORE_CREATE, .name = name, .name_bytes = 1, .mode = 0755}) ==
                0);
        take_effects();
    }
    require(apply((struct record){.type = RECORD_POOL_SET,
                                  .name = "high",
                                  .name_bytes = 4,
                                  .flags = CORE_POOL_CLASS,
                                  .kind = POOL_CLASS_HIGH}) == 0);
    for (unsigned i = 0; i < stores; i++) {
        act(OPEN_WRITE, 0, i);
        act(CHANGE, 0, i);
        act(COMMIT, 0, i);
        act(CLOSE, 0, i);
        require(walk.facts.sights[i].committed);
    }
    remember();
}

static void forget(const struct node *node)
{
    free(node->bytes);
    free(node->facts);
}

static void finish(void)
{
    for (size_t i = walk.taken; i < walk.node_count; i++)
        forget(&walk.nodes[i]);
    free(walk.nodes);
    free(walk.keys);
    free(walk.slots);
    core_free(walk.core);
    walk.core = NULL;
}

/* All that can follow on one state. */
static void expand(const struct node *node)
{
    for (unsigned deed = 0; deed < DEEDS; deed++)
        for (unsigned p = 0; p < PROCS; p++)
            for (unsigned store = 0; store < STORES; store++) {
                walk.facts = *node->facts;
                if (!is_possible((enum deed)deed, p, store))
                    continue;
                go_to(node);
                if (walk.broken)
                    return;
                act((enum deed)deed, p, store);
                if (walk.broken)
                    return;
                remember();
            }
}

/* Until there is no new state, so many were expanded, or a law is broken. */
static void search(size_t most)
{
    while (walk.taken < walk.node_count && walk.taken < most && !walk.broken) {
        const struct node node = walk.nodes[walk.taken++]; /* which move as they become more */

        expand(&node);
        forget(&node);
    }
}

#endif
