/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places_walk - takes a core, sound or broken, through everything that can happen to places
 *
 * For test_core_places.c, which includes it once. It does each of the deeds of places_deeds.h in
 * each state that it has come to, and remembers the states that it has seen. A state is kept as the
 * core's own bytes, so core_encode and core_decode are walked as well.
 *
 * The walk continues from one of several equal states (places_key.h), and acts by one of several
 * processes with equal relations to the stores. A deed without effect is not undone.
 */
#ifndef GMSFS_TESTS_UNIT_PLACES_WALK_H
#define GMSFS_TESTS_UNIT_PLACES_WALK_H

#include "places_key.h"

/* ---- states ------------------------------------------------------------------------------- */

static uint64_t hash_bytes(const void *bytes, size_t size)
{
    const uint8_t *byte = bytes;
    uint64_t hash = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ byte[i]) * UINT64_C(1099511628211);
    return hash ^ hash >> 32;
}

/* Returns the slot of the key, or the free slot for it. */
static uint32_t *find_slot(const uint8_t *key)
{
    size_t mask = 2 * walk.room - 1;
    size_t slot = (size_t)hash_bytes(key, KEY_BYTES) & mask;

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

/* The state that there is, to come back to. */
static struct node make_node(void)
{
    size_t bytes =
        offsetof(struct facts, memories) + walk.facts.memory_count * sizeof walk.facts.memories[0];
    struct node node = {.facts = malloc(bytes)};

    require(node.facts && core_encode(walk.core, &node.bytes, &node.size) == 0);
    memcpy(node.facts, &walk.facts, bytes);
    return node;
}

static void forget(struct node *node)
{
    free(node->bytes);
    free(node->facts);
    *node = (struct node){0};
}

static void recall_facts(const struct node *node)
{
    size_t bytes = offsetof(struct facts, memories) +
                   node->facts->memory_count * sizeof walk.facts.memories[0];

    memcpy(&walk.facts, node->facts, bytes);
}

static void go_to(const struct node *node)
{
    struct failure failure = {0};

    core_free(walk.core);
    walk.core = NULL;
    if (core_decode(node->bytes, node->size, &walk.core, &failure) != 0)
        walk.broken |= UNDECODED;
    recall_facts(node);
}

/* Remembers the state that there is, unless it was seen. */
static void remember(const uint8_t *key)
{
    uint32_t *slot;

    make_room();
    slot = find_slot(key);
    if (*slot != 0)
        return;
    memcpy(walk.keys[walk.node_count], key, KEY_BYTES);
    walk.nodes[walk.node_count++] = make_node();
    *slot = (uint32_t)walk.node_count;
}

/* ---- the search --------------------------------------------------------------------------- */

static void begin(apply_fn use, unsigned procs, unsigned stores, bool has_disk)
{
    struct core_options options = {
        .patience_ms = 30000, .granularity_bytes = GRAIN, .limits = {.events = 1}};
    uint8_t key[KEY_BYTES];

    memset(&walk, 0, sizeof walk);
    walk.apply = use;
    walk.procs = procs;
    walk.stores = stores;
    walk.has_disk = has_disk;
    require(core_new(&options, &walk.core) == 0);
    for (unsigned i = 0; i < stores; i++) {
        const char *name = i == 0 ? "a" : "b";
        require(apply(RECORD(STORE_CREATE, .name = name, .name_bytes = 1, .mode = 0755)) == 0);
        take_effects();
    }
    require(apply(RECORD(POOL_SET, .name = "high", .name_bytes = 4, .flags = CORE_POOL_CLASS,
                         .kind = POOL_CLASS_HIGH)) == 0);
    for (unsigned i = 0; i < stores; i++) {
        act(OPEN_WRITE, 0, i);
        act(CHANGE, 0, i);
        act(COMMIT, 0, i);
        act(CLOSE, 0, i);
        require(walk.facts.sights[i].committed);
    }
    make_key(key);
    remember(key);
}

static void finish(void)
{
    for (size_t i = 0; i < walk.node_count; i++)
        forget(&walk.nodes[i]);
    free(walk.nodes);
    free(walk.keys);
    free(walk.slots);
    core_free(walk.core);
    walk.core = NULL;
}

/* Computes each process's relation to the stores, and the key. */
struct stand {
    uint8_t codes[PROCS], key[KEY_BYTES];
};

static void take_stand(struct stand *stand)
{
    for (unsigned p = 0; p < PROCS; p++)
        stand->codes[p] = code_of(p);
    make_key(stand->key);
}

static bool has_twin(const struct stand *stand, unsigned p)
{
    return memchr(stand->codes, stand->codes[p], p) != NULL;
}

/* Does every possible deed from one state. */
static void expand(const struct node *node)
{
    struct stand before, now;
    bool is_there = true;

    go_to(node);
    if (walk.broken)
        return;
    take_stand(&before);
    for (unsigned deed = 0; deed < DEEDS; deed++)
        for (unsigned p = 0; p < PROCS; p++)
            for (unsigned store = 0; store < STORES; store++) {
                if (!is_there)
                    recall_facts(node);
                if (has_twin(&before, p) || !is_possible((enum deed)deed, p, store))
                    continue;
                if (!is_there)
                    go_to(node);
                if (!walk.broken)
                    act((enum deed)deed, p, store);
                if (walk.broken)
                    return;
                take_stand(&now);
                is_there = memcmp(&now, &before, sizeof now) == 0;
                if (!is_there)
                    remember(now.key);
            }
}

/* Expands states until none is new, `most` were expanded, or a law is broken. */
static void search(size_t most)
{
    while (walk.taken < walk.node_count && walk.taken < most && !walk.broken) {
        struct node node = walk.nodes[walk.taken]; /* which move as they become more */

        expand(&node);
        if (!walk.keeps) {
            forget(&node);
            walk.nodes[walk.taken] = node;
        }
        walk.taken++;
    }
}

#endif
