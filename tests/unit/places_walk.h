/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places_walk - takes a core, sound or broken, through everything that can happen to places
 *
 * For test_core_places.c, which includes it once. It does what processes, the service, whoever
 * gives orders, and the device would do, writes down the facts, has each record judged by
 * places_laws.h, and remembers the states that it has seen. A state is kept as the core's own
 * bytes, so core_encode and core_decode are walked as well.
 *
 * States are equal when nothing that follows can tell them apart: numbers count by their order
 * alone, and one process is as good as another. Time stands still.
 */
#ifndef GMSFS_TESTS_UNIT_PLACES_WALK_H
#define GMSFS_TESTS_UNIT_PLACES_WALK_H

#include "places_laws.h"
#include "tap.h"

#include <errno.h>
#include <stdlib.h>

#define NOW_MS     1000u
#define GRAIN      4096u
#define MAX_STATES (1u << 17)
#define MAX_SLOTS  (1u << 18) /* of the hash table: a power of two */
#define KEY_BYTES  64
#define UNDECODED  (1u << 31) /* a state that core_decode refuses: a law of its own */

/* What rows do not say of their stores. */
enum blindness {
    BLIND_TO_NOTHING,
    BLIND_TO_WAITERS,
    BLIND_TO_HOLDERS,
    BLIND_TO_PINS,
    BLIND_TO_MOVES,
    BLINDNESS_COUNT,
};

typedef int (*apply_fn)(struct core *core, const struct record *record, struct outcome *outcome);

struct node {
    uint8_t *bytes;
    size_t size;
    struct facts facts;
};

static struct {
    apply_fn apply;
    unsigned procs, stores;
    bool has_disk;
    struct core *core;
    struct facts facts;
    struct outcome out;
    struct node *nodes;
    uint8_t (*keys)[KEY_BYTES];
    uint32_t *slots;
    size_t node_count, taken;
    uint64_t steps, ended_moves, grants, evictions;
    unsigned victim, evictor; /* of this deed: whose move it begins, and for whom; STORES: nobody */
    bool chosen;
    enum blindness blind; /* of the choice: broken on purpose */
    unsigned broken;      /* laws, a bit each */
} walk;

/* ---- looking ----------------------------------------------------------------------------------
 */

static struct core_store *store_of(unsigned i)
{
    return walk.core->stores.items[i];
}

static void look_at_store(unsigned i)
{
    const struct core_store *store = store_of(i);
    struct sight *sight = &walk.facts.sights[i];
    const struct core_session *writer = core_get_writer(walk.core, store->id);
    const struct layout_allocation *only =
        store->fixed && layout_count_allocations(store->fixed) > 0 ? layout_at_rank(store->fixed, 0)
                                                                   : NULL;

    memset(sight, 0, sizeof *sight);
    sight->committed = store->lock.committed;
    sight->place = store->places.place;
    sight->generation = store->generation;
    sight->moves = store->places.moves;
    sight->move = store->places.move.id;
    sight->to = store->places.move.to;
    memcpy(sight->hash, store->hash, sizeof sight->hash);
    sight->slot = only ? only->slot : 0;
    sight->serial = only ? only->serial : 0;
    sight->memory = only && only->memory != LAYOUT_NO_MEMORY ? only->memory : 0;
    for (unsigned tier = 0; tier < CORE_TIER_COUNT; tier++)
        if (store->places.spares[tier])
            sight->spares[tier] = layout_at_rank(store->places.spares[tier], 0)->memory;
    sight->writer = writer ? writer->id : 0;
    sight->sessions = store->lock.session_count;
    for (size_t s = 0; s < store->lock.session_count; s++) {
        const struct core_session *session =
            core_find_session(walk.core, store->lock.sessions[s].id);
        if (session->holds)
            sight->holder = session->id;
    }
    sight->suspect = store->suspect > 0;
    sight->pinned = store->use.pinned;
    sight->important = store->use.pool != CORE_DEFAULT_POOL;
    if (!sight->committed)
        walk.facts.wanted[i] = 0;
    if (!sight->move)
        walk.facts.source[i] = 0;
}

static void forget_memory(uint64_t id)
{
    struct facts *facts = &walk.facts;

    for (size_t i = 0; i < facts->memory_count; i++)
        if (facts->memories[i].id == id) {
            facts->memories[i] = facts->memories[--facts->memory_count];
            return;
        }
}

static void take_effects(void)
{
    struct effect effect;

    while (core_next_effect(walk.core, &effect)) {
        if (effect.type == EFFECT_FREE_MEMORY)
            forget_memory(effect.memory);
        for (unsigned p = 0; p < PROCS; p++) {
            struct proc *proc = &walk.facts.procs[p];
            if (!effect.waiter || proc->waiter != effect.waiter)
                continue;
            proc->waiter = 0;
            proc->session = effect.type == EFFECT_GRANTED ? effect.session : 0;
            proc->file = effect.type == EFFECT_GRANTED ? effect.file : 0;
            proc->way = effect.type == EFFECT_GRANTED ? proc->way : IDLE;
            walk.grants += effect.type == EFFECT_GRANTED;
        }
    }
}

/* ---- one record -------------------------------------------------------------------------------
 */

static uint64_t add_memory(uint64_t bytes, enum core_place tier)
{
    struct facts *facts = &walk.facts;
    uint64_t id = 1;

    for (size_t i = 0; i < facts->memory_count; i++)
        id = facts->memories[i].id >= id ? facts->memories[i].id + 1 : id;
    require(facts->memory_count < MEMORIES);
    facts->memories[facts->memory_count++] = (struct memory){id, bytes, tier};
    return id;
}

static int apply(struct record record)
{
    record.now_ms = NOW_MS;
    record.wall_ms = NOW_MS;
    record.free_bytes = UINT64_C(1) << 40;
    memset(&walk.out, 0, sizeof walk.out);
    return walk.apply(walk.core, &record, &walk.out);
}

static void judge(const struct record *record, unsigned store, int error,
                  const struct facts *before)
{
    struct step step = {.type = record->type,
                        .store = store,
                        .kind = record->kind,
                        .flags = record->flags,
                        .evictor = walk.evictor,
                        .chosen = walk.chosen,
                        .error = error,
                        .core = walk.core,
                        .before = before,
                        .after = &walk.facts};

    walk.steps++;
    for (unsigned law = 0; law < LAWS; law++)
        for (unsigned i = 0; i < walk.stores; i++)
            if (!laws[law].holds(&step, i))
                walk.broken |= 1u << law;
}

/* ---- deeds ------------------------------------------------------------------------------------
 */

enum deed {
    OPEN_READ,
    OPEN_ANYWHERE,
    OPEN_PATH,
    OPEN_WRITE,
    OPEN_REPLACE,
    CLOSE,
    INTERRUPT,
    TOUCH,
    CHANGE, /* all that there is, for something new */
    COMMIT,
    /* Of a store: */
    TO_DEVICE,
    TO_HOST,
    TO_DISK,
    TO_NONE,
    COPY_HOST,
    COPY_DISK,
    DROP_HOST,
    CANCEL,
    ENDS,
    ENDS_KEEPING,
    FAILS,
    EVICT,  /* for the other store, whether it may go or not */
    CHOOSE, /* who has to go for this one, by evict_choose */
    PIN,    /* or no longer */
    RAISE,  /* to the important pool, or back */
    /* Of the device: */
    SUSPECT,
    TRUST,
    LOST,
    DEEDS,
};

static struct record open_record(unsigned p, unsigned store, enum core_kind kind,
                                 enum lock_wish wish)
{
    struct record record = {.type = RECORD_LOCK_OPEN,
                            .store = store_of(store)->id,
                            .kind = kind,
                            .wish = wish,
                            .flags = CORE_OPEN_READ,
                            .process = {100 + p, 10 + p},
                            .deadline_ms = LOCK_FOREVER};

    if (wish == LOCK_WISH_RW)
        record.flags |= CORE_OPEN_WRITE;
    record.bytes16[0] = (uint8_t)(walk.core->next_id & 0xff);
    record.bytes16[1] = (uint8_t)(walk.core->next_id >> 8);
    record.bytes16[15] = 0xff;
    return record;
}

static void note_open(unsigned p, unsigned store, enum way way)
{
    walk.facts.procs[p] = (struct proc){.way = way,
                                        .store = store,
                                        .file = walk.out.file,
                                        .session = walk.out.session,
                                        .waiter = walk.out.waiter};
    walk.grants += walk.out.session != 0;
}

/* By ACQUIRE, which may not wait: with a `ctl` that goes again where it is refused. */
static int open_by_ctl(unsigned p, unsigned store, enum way way, struct record *record)
{
    struct record ctl = {.type = RECORD_FILE_OPEN,
                         .store = store_of(store)->id,
                         .kind = CORE_KIND_CTL,
                         .flags = CORE_OPEN_READ | CORE_OPEN_WRITE,
                         .process = {100 + p, 10 + p}};
    uint64_t file;
    int error = apply(ctl);

    if (error < 0)
        return error;
    file = walk.out.file;
    *record = open_record(p, store, CORE_KIND_CTL, way == REPLACES ? LOCK_WISH_RW : LOCK_WISH_RO);
    record->type = RECORD_ACQUIRE;
    record->store = 0;
    record->kind = 0;
    record->file = file;
    record->flags = way == REPLACES ? CORE_OPEN_REPLACE : CORE_OPEN_ANY;
    record->deadline_ms = 0;
    error = apply(*record);
    if (error < 0) {
        apply((struct record){.type = RECORD_FILE_CLOSE, .file = file});
        return error;
    }
    walk.out.file = file;
    note_open(p, store, way);
    return 0;
}

static int do_open(enum deed deed, unsigned p, unsigned store, struct record *record)
{
    static const enum way ways[] = {READS, ANYWHERE, BY_PATH, WRITES, REPLACES};
    enum way way = ways[deed - OPEN_READ];
    int error;

    if (way == ANYWHERE || way == REPLACES)
        return open_by_ctl(p, store, way, record);
    *record = open_record(p, store, way == BY_PATH ? CORE_KIND_ALLOCATION : CORE_KIND_LOCK,
                          way == WRITES ? LOCK_WISH_RW : LOCK_WISH_RO);
    if (way == BY_PATH) {
        record->serial = walk.facts.sights[store].serial;
        record->deadline_ms = 0;
    }
    error = apply(*record);
    if (error == 0)
        note_open(p, store, way);
    return error;
}

/* What is in memory that its store's writer may write to is another content from now on. */
static void spoil(uint64_t memory)
{
    for (size_t i = 0; i < walk.facts.memory_count; i++)
        if (walk.facts.memories[i].id == memory && walk.facts.memories[i].tier == CORE_PLACE_DEVICE)
            walk.facts.memories[i].bytes = ++walk.facts.bytes;
}

static int do_change(unsigned p, struct record *record)
{
    const struct proc *proc = &walk.facts.procs[p];
    uint64_t memory;
    int error;

    *record = (struct record){.type = RECORD_CLEAR, .session = proc->session};
    error = apply(*record);
    take_effects();
    if (error < 0)
        return error;
    memory = add_memory(++walk.facts.bytes, CORE_PLACE_DEVICE);
    error = apply((struct record){.type = RECORD_ALLOC_ADD,
                                  .session = proc->session,
                                  .name = "w",
                                  .name_bytes = 1,
                                  .count = 1,
                                  .size_bytes = 1000,
                                  .aligned_bytes = GRAIN,
                                  .memories = &memory,
                                  .memory_count = 1});
    if (error < 0)
        forget_memory(memory);
    return error;
}

static int do_commit(unsigned p, struct record *record)
{
    const struct proc *proc = &walk.facts.procs[p];
    const struct core_store *store = store_of(proc->store);
    const struct memory *memory;
    int error;

    *record = (struct record){.type = RECORD_COMMIT, .session = proc->session};
    error = apply(*record);
    if (error < 0)
        return error;
    memory = find_memory(&walk.facts, layout_count_allocations(store->fixed) > 0
                                          ? layout_at_rank(store->fixed, 0)->memory
                                          : 0);
    if (store->places.place != CORE_PLACE_NONE) {
        walk.facts.wanted[proc->store] = memory ? memory->bytes : 0;
        walk.facts.given_up[proc->store] = false;
    }
    return 0;
}

static int do_of_proc(enum deed deed, unsigned p, unsigned store, struct record *record)
{
    struct proc *proc = &walk.facts.procs[p];
    int error;

    switch (deed) {
    case CLOSE:
        *record = (struct record){.type = RECORD_FILE_CLOSE, .file = proc->file};
        error = apply(*record);
        *proc = (struct proc){0};
        return error;
    case INTERRUPT:
        *record = (struct record){
            .type = RECORD_WAIT_END, .waiter = proc->waiter, .count = (uint64_t)EINTR};
        error = apply(*record);
        take_effects();
        *proc = (struct proc){0};
        return error;
    case TOUCH:
        *record = (struct record){.type = RECORD_TOUCH, .session = proc->session};
        error = apply(*record);
        if (error == 0)
            spoil(walk.facts.sights[proc->store].memory);
        return error;
    case CHANGE:
        return do_change(p, record);
    case COMMIT:
        return do_commit(p, record);
    default:
        return do_open(deed, p, store, record);
    }
}

static int do_begin(struct record *record, unsigned store, enum core_place to, bool spare)
{
    const struct sight *sight = &walk.facts.sights[store];
    const struct memory *memory = find_memory(&walk.facts, sight->memory);
    int error;

    *record = (struct record){.type = RECORD_MOVE_BEGIN,
                              .store = store_of(store)->id,
                              .kind = to,
                              .flags = spare ? CORE_MOVE_SPARE : 0};
    error = apply(*record);
    if (error == 0 && to == CORE_PLACE_NONE)
        walk.facts.given_up[store] = true;
    if (error == 0 && walk.out.id != 0)
        walk.facts.source[store] = memory ? memory->bytes : 0;
    return error;
}

static int do_end(struct record *record, unsigned store, bool keep)
{
    const struct sight *sight = &walk.facts.sights[store];
    const struct memory *memory = find_memory(&walk.facts, sight->memory);
    bool same = memory && memory->bytes == walk.facts.source[store];
    uint64_t made = add_memory(same ? memory->bytes : ++walk.facts.bytes, sight->to);
    int error;

    *record = (struct record){.type = RECORD_MOVE_END,
                              .store = store_of(store)->id,
                              .count = sight->move,
                              .memories = &made,
                              .memory_count = 1,
                              .flags = keep ? CORE_MOVE_KEEP : 0};
    error = apply(*record);
    walk.ended_moves += error == 0;
    if (error < 0)
        forget_memory(made);
    record->memories = NULL;
    return error;
}

static int evict(struct record *record, unsigned victim, unsigned evictor)
{
    const struct memory *memory = find_memory(&walk.facts, walk.facts.sights[victim].memory);
    int error;

    walk.victim = victim;
    walk.evictor = evictor;
    *record = (struct record){.type = RECORD_MOVE_BEGIN,
                              .store = store_of(victim)->id,
                              .kind = CORE_PLACE_HOST,
                              .flags = CORE_MOVE_EVICT,
                              .count = store_of(evictor)->id};
    error = apply(*record);
    walk.evictions += error == 0;
    if (error == 0 && walk.out.id != 0)
        walk.facts.source[victim] = memory ? memory->bytes : 0;
    return error;
}

/* What the evictor knows of the stores that are on the device, as src/service/evict.c has it. */
static size_t fill_rows(struct evict_row *rows)
{
    size_t count = 0;

    for (unsigned i = 0; i < walk.stores; i++) {
        const struct core_store *store = store_of(i);

        if (!store->lock.committed || layout_count_allocations(store->fixed) == 0 ||
            store->places.place != CORE_PLACE_DEVICE)
            continue;
        rows[count++] = (struct evict_row){
            .store = store->id,
            .pool = store->use.pool != CORE_DEFAULT_POOL,
            .class = core_find_pool(walk.core, store)->class,
            .bytes = GRAIN,
            .pinned = (walk.blind != BLIND_TO_PINS && store->use.pinned) ||
                      (store->suspect > 0 && !store->places.spares[CORE_PLACE_HOST]),
            .held = walk.blind != BLIND_TO_HOLDERS &&
                    (core_is_held(store) || core_get_writer(walk.core, store->id)),
            .waited_for = walk.blind != BLIND_TO_WAITERS && store->lock.waiter_count > 0,
            .moving = walk.blind != BLIND_TO_MOVES && store->places.move.id != 0,
            .has_spare = store->places.spares[CORE_PLACE_HOST] != NULL};
    }
    return count;
}

static int choose(struct record *record, unsigned store)
{
    struct evict_pool pools[2] = {
        {.class = POOL_CLASS_STANDARD, .max_bytes = UINT64_MAX, .used_bytes = STORES * GRAIN},
        {.class = POOL_CLASS_HIGH, .max_bytes = UINT64_MAX, .used_bytes = STORES * GRAIN}};
    struct evict_wish wish = {.store = store_of(store)->id,
                              .pool = store_of(store)->use.pool != CORE_DEFAULT_POOL,
                              .bytes = GRAIN};
    struct evict_row rows[STORES];
    long chosen = evict_choose(rows, fill_rows(rows), pools, 2, &wish);

    *record = (struct record){.type = RECORD_TIME};
    if (chosen <= 0)
        return apply(*record);
    walk.chosen = true;
    return evict(record, rows[0].store == store_of(0)->id ? 0 : 1, store);
}

static int do_of_store(enum deed deed, unsigned store, struct record *record)
{
    switch (deed) {
    case EVICT:
        return evict(record, store, 1 - store);
    case CHOOSE:
        return choose(record, store);
    case PIN:
        *record = (struct record){.type = RECORD_STORE_PIN,
                                  .flags = walk.facts.sights[store].pinned ? 0 : CORE_PIN_ON};
        break;
    case RAISE:
        *record = (struct record){.type = RECORD_STORE_POOL,
                                  .name = walk.facts.sights[store].important ? "default" : "high"};
        record->name_bytes = strlen(record->name);
        break;
    case TO_DEVICE:
    case TO_HOST:
    case TO_DISK:
    case TO_NONE:
        return do_begin(record, store, (enum core_place)(deed - TO_DEVICE), false);
    case COPY_HOST:
        return do_begin(record, store, CORE_PLACE_HOST, true);
    case COPY_DISK:
        return do_begin(record, store, CORE_PLACE_DISK, true);
    case ENDS:
    case ENDS_KEEPING:
        return do_end(record, store, deed == ENDS_KEEPING);
    case FAILS:
        *record = (struct record){.type = RECORD_MOVE_FAIL,
                                  .count = walk.facts.sights[store].move,
                                  .offset = EIO,
                                  .flags = CORE_MOVE_REFUSE};
        break;
    case DROP_HOST:
        *record = (struct record){.type = RECORD_COPY_DROP, .kind = CORE_PLACE_HOST};
        break;
    default:
        *record = (struct record){.type = RECORD_MOVE_CANCEL};
        break;
    }
    record->store = store_of(store)->id;
    return apply(*record);
}

static int do_of_device(enum deed deed, struct record *record)
{
    *record = (struct record){
        .type = RECORD_HEALTH, .flags = CORE_NOTE_SUSPECT, .name = "why", .name_bytes = 3};
    if (deed == TRUST)
        record->flags = CORE_NOTE_TRUST;
    if (deed == LOST)
        record->flags = CORE_NOTE_LOST;
    walk.facts.lost |= deed == LOST;
    return apply(*record);
}

/* Could somebody do it now? */
static bool is_possible(enum deed deed, unsigned p, unsigned store)
{
    const struct proc *proc = &walk.facts.procs[p];
    bool writes = proc->session != 0 && (proc->way == WRITES || proc->way == REPLACES);
    bool disk = deed == TO_DISK || deed == COPY_DISK;

    if (deed <= OPEN_REPLACE)
        return p < walk.procs && proc->way == IDLE && store < walk.stores &&
               (deed != OPEN_PATH || walk.facts.sights[store].serial != 0);
    if (deed <= COMMIT && (store != proc->store || p >= walk.procs))
        return false;
    if (deed == CLOSE)
        return proc->file != 0;
    if (deed == INTERRUPT)
        return proc->waiter != 0;
    if (deed == TOUCH) /* what is elsewhere is not written to: EAGAIN */
        return writes && walk.facts.sights[store].place == CORE_PLACE_DEVICE;
    if (deed <= COMMIT)
        return writes;
    if (p != 0 || (disk && !walk.has_disk) || store >= walk.stores)
        return false;
    if (deed == ENDS || deed == ENDS_KEEPING || deed == FAILS)
        return walk.facts.sights[store].move != 0;
    if (deed == EVICT || deed == CHOOSE)
        return walk.stores == STORES;
    if (deed == PIN || deed == RAISE)
        return walk.stores == STORES && store == 0;
    return deed < SUSPECT || store == 0;
}

static void describe_facts(const struct facts *facts)
{
    for (unsigned p = 0; p < walk.procs; p++)
        fprintf(stderr, "#   process %u: way %d of store %u, %s\n", p, (int)facts->procs[p].way,
                facts->procs[p].store,
                facts->procs[p].waiter    ? "waits"
                : facts->procs[p].session ? "has a session"
                                          : "is outside");
    for (unsigned i = 0; i < walk.stores; i++) {
        const struct sight *sight = &facts->sights[i];
        fprintf(stderr, "#   store %u: %s at %s%s%s%s%s%s%s, moving to %s\n", i,
                sight->committed ? "committed" : "empty", core_place_name(sight->place),
                sight->spares[CORE_PLACE_HOST] ? " host" : "",
                sight->spares[CORE_PLACE_DISK] ? " disk" : "", sight->suspect ? " suspect" : "",
                sight->writer ? " written" : "", sight->pinned ? " pinned" : "",
                sight->important ? " important" : "",
                sight->move ? core_place_name(sight->to) : "nowhere");
    }
}

/* What broke a law. */
static void describe(enum deed deed, unsigned p, unsigned store, int error,
                     const struct facts *before)
{
    fprintf(stderr, "# deed %d by process %u at store %u: %d; before:\n", (int)deed, p, store,
            error);
    describe_facts(before);
    fprintf(stderr, "# after:\n");
    describe_facts(&walk.facts);
}

/* Does it, and judges it. */
static void act(enum deed deed, unsigned p, unsigned store)
{
    struct facts before = walk.facts;
    struct record record = {0};
    int error;

    walk.victim = store;
    walk.evictor = STORES;
    walk.chosen = false;
    if (deed <= COMMIT)
        error = do_of_proc(deed, p, store, &record);
    else if (deed < SUSPECT)
        error = do_of_store(deed, store, &record);
    else
        error = do_of_device(deed, &record);
    take_effects();
    for (unsigned i = 0; i < walk.stores; i++)
        look_at_store(i);
    judge(&record, deed < SUSPECT ? walk.victim : STORES, error, &before);
    if (walk.broken)
        describe(deed, p, store, error, &before);
}

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

static size_t hash_of(const uint8_t *key)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < KEY_BYTES; i++)
        hash = (hash ^ key[i]) * UINT64_C(1099511628211);
    return (size_t)(hash ^ hash >> 32) & (MAX_SLOTS - 1);
}

/* Remembers the state that there is, unless it was seen. */
static void remember(void)
{
    uint8_t key[KEY_BYTES];
    struct node *node;
    size_t slot;

    make_key(key);
    for (slot = hash_of(key); walk.slots[slot] != 0; slot = (slot + 1) & (MAX_SLOTS - 1))
        if (memcmp(walk.keys[walk.slots[slot] - 1], key, KEY_BYTES) == 0)
            return;
    require(walk.node_count < MAX_STATES);
    memcpy(walk.keys[walk.node_count], key, KEY_BYTES);
    node = &walk.nodes[walk.node_count++];
    walk.slots[slot] = (uint32_t)walk.node_count;
    node->facts = walk.facts;
    require(core_encode(walk.core, &node->bytes, &node->size) == 0);
}

static void go_to(const struct node *node)
{
    struct failure failure = {0};

    core_free(walk.core);
    walk.core = NULL;
    if (core_decode(node->bytes, node->size, &walk.core, &failure) != 0)
        walk.broken |= UNDECODED;
    walk.facts = node->facts;
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
    walk.nodes = calloc(MAX_STATES, sizeof *walk.nodes);
    walk.keys = calloc(MAX_STATES, sizeof *walk.keys);
    walk.slots = calloc(MAX_SLOTS, sizeof *walk.slots);
    require(walk.nodes && walk.keys && walk.slots && core_new(&options, &walk.core) == 0);
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

static void finish(void)
{
    for (size_t i = 0; i < walk.node_count; i++)
        free(walk.nodes[i].bytes);
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
                walk.facts = node->facts;
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
    for (; walk.taken < walk.node_count && walk.taken < most && !walk.broken; walk.taken++)
        expand(&walk.nodes[walk.taken]);
}

#endif
