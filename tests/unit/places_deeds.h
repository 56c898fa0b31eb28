/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places_deeds - all events that affect places: deeds of processes, the service, the operator and
 * the device
 *
 * For places_walk.h. act() does one deed, records the facts, and has them judged.
 */
#ifndef GMSFS_TESTS_UNIT_PLACES_DEEDS_H
#define GMSFS_TESTS_UNIT_PLACES_DEEDS_H

#include "places_world.h"

enum deed {
    OPEN_READ,
    OPEN_ANYWHERE,
    OPEN_PATH,
    OPEN_WRITE,
    OPEN_REPLACE,
    CLOSE,
    INTERRUPT,
    TOUCH,
    CHANGE, /* replaces the whole content */
    COMMIT,
    /* Of a store: */
    TO_DEVICE,
    TO_HOST,
    TO_DISK,
    TO_NONE,
    COPY_HOST,
    COPY_DISK,
    DROP_HOST,
    DROP_DISK,
    CANCEL,
    ENDS,
    ENDS_KEEPING,
    FAILS,
    EVICT,  /* for the other store, allowed or not */
    CHOOSE, /* a victim for this store, by evict_choose */
    PIN,    /* or unpin */
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
    struct record record =
        RECORD(LOCK_OPEN, .store = store_of(store)->id, .kind = kind, .wish = wish,
               .flags = CORE_OPEN_READ, .process = {100 + p, 10 + p}, .deadline_ms = LOCK_FOREVER);

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

/* Opens by ACQUIRE, which may not wait, through a `ctl` that is closed again if it is refused. */
static int open_by_ctl(unsigned p, unsigned store, enum way way, struct record *record)
{
    struct record ctl =
        RECORD(FILE_OPEN, .store = store_of(store)->id, .kind = CORE_KIND_CTL,
               .flags = CORE_OPEN_READ | CORE_OPEN_WRITE, .process = {100 + p, 10 + p});
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
        apply(RECORD(FILE_CLOSE, .file = file));
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

/* Gives a memory that its store's writer may write to a new content. */
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

    *record = RECORD(CLEAR, .session = proc->session);
    error = apply(*record);
    take_effects();
    if (error < 0)
        return error;
    memory = add_memory(++walk.facts.bytes, CORE_PLACE_DEVICE);
    error = apply(RECORD(ALLOC_ADD, .session = proc->session, .name = "w", .name_bytes = 1,
                         .count = 1, .size_bytes = 1000, .aligned_bytes = GRAIN,
                         .memories = &memory, .memory_count = 1));
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

    *record = RECORD(COMMIT, .session = proc->session);
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
        *record = RECORD(FILE_CLOSE, .file = proc->file);
        error = apply(*record);
        *proc = (struct proc){0};
        return error;
    case INTERRUPT:
        *record = RECORD(WAIT_END, .waiter = proc->waiter, .count = (uint64_t)EINTR);
        error = apply(*record);
        take_effects();
        *proc = (struct proc){0};
        return error;
    case TOUCH:
        *record = RECORD(TOUCH, .session = proc->session);
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

    *record = RECORD(MOVE_BEGIN, .store = store_of(store)->id, .kind = to,
                     .flags = spare                   ? CORE_MOVE_SPARE
                              : to == CORE_PLACE_DISK ? CORE_MOVE_VERIFY
                                                      : 0);
    error = apply(*record);
    if (error == 0 && to == CORE_PLACE_NONE)
        walk.facts.given_up[store] = true;
    if (error == 0 && walk.out.id != 0)
        walk.facts.source[store] = memory ? memory->bytes : 0;
    return error;
}

/* A copy that was there was only looked at. */
static int end_look(struct record *record, unsigned store)
{
    int error;

    *record =
        RECORD(MOVE_END, .store = store_of(store)->id, .count = walk.facts.sights[store].move);
    error = apply(*record);
    walk.ended_moves += error == 0;
    return error;
}

static int do_end(struct record *record, unsigned store, bool keep)
{
    const struct sight *sight = &walk.facts.sights[store];

    if (sight->spares[sight->to] != 0)
        return end_look(record, store);

    const struct memory *memory = find_memory(&walk.facts, sight->memory);
    bool same = memory && memory->bytes == walk.facts.source[store];
    uint64_t made = add_memory(same ? memory->bytes : ++walk.facts.bytes, sight->to);
    int error;

    *record = RECORD(MOVE_END, .store = store_of(store)->id, .count = sight->move,
                     .memories = &made, .memory_count = 1, .flags = keep ? CORE_MOVE_KEEP : 0);
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
    *record = RECORD(MOVE_BEGIN, .store = store_of(victim)->id, .kind = CORE_PLACE_HOST,
                     .flags = CORE_MOVE_EVICT, .count = store_of(evictor)->id);
    error = apply(*record);
    walk.evictions += error == 0;
    if (error == 0 && walk.out.id != 0)
        walk.facts.source[victim] = memory ? memory->bytes : 0;
    return error;
}

/* Fills a row for each store on the device, as src/service/evict.c does. */
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

    *record = RECORD(TIME);
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
        *record = RECORD(STORE_PIN, .flags = walk.facts.sights[store].pinned ? 0 : CORE_PIN_ON);
        break;
    case RAISE:
        *record =
            RECORD(STORE_POOL, .name = walk.facts.sights[store].important ? "default" : "high");
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
        *record = RECORD(MOVE_FAIL, .count = walk.facts.sights[store].move, .offset = EIO,
                         .flags = CORE_MOVE_REFUSE);
        break;
    case DROP_HOST:
    case DROP_DISK:
        *record = RECORD(COPY_DROP, .kind = deed == DROP_HOST ? CORE_PLACE_HOST : CORE_PLACE_DISK);
        break;
    default:
        *record = RECORD(MOVE_CANCEL);
        break;
    }
    record->store = store_of(store)->id;
    return apply(*record);
}

static int do_of_device(enum deed deed, struct record *record)
{
    *record = RECORD(HEALTH, .flags = CORE_NOTE_SUSPECT, .name = "why", .name_bytes = 3);
    if (deed == TRUST)
        record->flags = CORE_NOTE_TRUST;
    if (deed == LOST)
        record->flags = CORE_NOTE_LOST;
    walk.facts.lost |= deed == LOST;
    return apply(*record);
}

/* Returns true if the deed is possible now. */
static bool is_possible(enum deed deed, unsigned p, unsigned store)
{
    const struct proc *proc = &walk.facts.procs[p];
    bool writes = proc->session != 0 && (proc->way == WRITES || proc->way == REPLACES);
    bool disk = deed == TO_DISK || deed == COPY_DISK || deed == DROP_DISK;

    if (deed <= OPEN_REPLACE)
        return p < walk.procs && proc->way == IDLE && store < walk.stores &&
               (deed != OPEN_PATH || walk.facts.sights[store].serial != 0);
    if (deed <= COMMIT && (store != proc->store || p >= walk.procs))
        return false;
    if (deed == CLOSE)
        return proc->file != 0;
    if (deed == INTERRUPT)
        return proc->waiter != 0;
    if (deed == TOUCH) /* writing to a store off the device: EAGAIN */
        return writes && (proc->over || walk.facts.sights[store].place == CORE_PLACE_DEVICE);
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

/* Prints the deed that broke a law. */
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
    walk.error = error;
    take_effects();
    for (unsigned i = 0; i < walk.stores; i++)
        look_at_store(i);
    judge(&record, deed < SUSPECT ? walk.victim : STORES, error, &before);
    if (walk.broken)
        describe(deed, p, store, error, &before);
}

#endif
