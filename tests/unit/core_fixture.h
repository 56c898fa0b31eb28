/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_fixture - a core and its mirror, for the tests of the store core
 *
 * Every record goes to the core under test; its bytes, decoded again, go to a second core that was
 * fresh at the start. After each record both must be the same, and a record that failed must have
 * changed nothing (COMMIT excepted: it may set last_error, and says so). Included once by a test
 * program.
 */
#ifndef GMSFS_TESTS_UNIT_CORE_FIXTURE_H
#define GMSFS_TESTS_UNIT_CORE_FIXTURE_H

#include "core/core.h"
#include "record_bytes.h"
#include "tap.h"

#include <errno.h>
#include <stdlib.h>

#define PATIENCE_MS 30000u
#define MAX_LOGGED  65536u
#define GRAIN       4096u

#define P1 ((struct core_process){101, 11})
#define P2 ((struct core_process){102, 12})
#define P3 ((struct core_process){103, 13})

#define RW (CORE_OPEN_READ | CORE_OPEN_WRITE)

static struct core *core;
static struct core *mirror;
static uint64_t now = 1000;
static struct outcome out; /* of the last record */
static struct effect logged[MAX_LOGGED];
static size_t logged_count;
static unsigned applied[RECORD_TYPE_COUNT]; /* how often with success */
static uint8_t next_token;
static uint64_t next_memory;
static uint64_t device_free = UINT64_C(1) << 40;

struct state {
    uint8_t *bytes;
    size_t size;
};

static struct state last; /* of `core`, after the last record */

static struct state state_of(const struct core *of)
{
    struct state state = {0};

    require(core_encode(of, &state.bytes, &state.size) == 0);
    check_int((long long)core_count_encoded(of), (long long)state.size);
    return state;
}

static bool state_equal(struct state a, struct state b)
{
    return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0;
}

static bool state_decode(struct state state, struct core **decoded, struct failure *failure)
{
    int error = core_decode(state.bytes, state.size, decoded, failure);

    if (error < 0)
        check_int(error, error == -EPROTONOSUPPORT ? error : -EINVAL);
    return error == 0;
}

/* Returns a copy of a core, made by encoding and decoding as a new process would. */
static struct core *reborn(const struct core *of)
{
    struct state before = state_of(of), after;
    struct failure failure = {0};
    struct core *decoded = NULL;

    if (!state_decode(before, &decoded, &failure))
        fprintf(stderr, "# %s\n", failure.text);
    require(decoded != NULL);
    after = state_of(decoded);
    require(check_bytes(after.bytes, after.size, before.bytes, before.size));
    free(before.bytes);
    free(after.bytes);
    return decoded;
}

static bool mirror_is_reborn; /* before each record */

static struct core_limits core_start_limits = {.events = 16};
static uint32_t core_start_admin;

/* Starts anew, before each test. A test that changes a limit calls it again. */
static void core_start(void)
{
    struct core_options options = {.patience_ms = PATIENCE_MS,
                                   .granularity_bytes = GRAIN,
                                   .limits = core_start_limits,
                                   .admin_uid = core_start_admin};

    core_free(core);
    core_free(mirror);
    core = mirror = NULL;
    now = 1000;
    logged_count = 0;
    next_token = 1;
    next_memory = 1;
    device_free = UINT64_C(1) << 40;
    require(core_new(&options, &core) == 0);
    require(core_new(&options, &mirror) == 0);
    free(last.bytes);
    last = state_of(core);
}

TAP_BEFORE_EACH(core_start)

/* The same through bytes, on the other core. */
static int mirror_apply(const struct record *record, struct outcome *outcome)
{
    struct record_arena *arena;
    struct record decoded;
    uint8_t *bytes;
    size_t size = 0;
    int error;

    if (mirror_is_reborn) {
        struct core *again = reborn(mirror);
        core_free(mirror);
        mirror = again;
    }
    require(record_encode(record, &bytes, &size) == 0);
    require(record_decode(bytes, size, &decoded, &arena) == 0);
    error = core_apply(mirror, &decoded, outcome);
    record_decode_free(arena);
    free(bytes);
    return error;
}

static bool same_effect(const struct effect *a, const struct effect *b)
{
    return a->type == b->type && a->waiter == b->waiter && a->session == b->session &&
           a->file == b->file && a->memory == b->memory && a->store == b->store &&
           a->error == b->error;
}

static bool same_outcome(const struct outcome *a, const struct outcome *b)
{
    return a->id == b->id && a->file == b->file && a->session == b->session &&
           a->waiter == b->waiter && a->serial == b->serial && a->slot == b->slot &&
           a->rank == b->rank && a->generation == b->generation && a->count == b->count &&
           a->ticket_first == b->ticket_first && a->mode == b->mode && a->bound == b->bound &&
           a->rolled_back == b->rolled_back && a->noted == b->noted && a->pool == b->pool &&
           a->ticket.id == b->ticket.id;
}

static void take_effects(void)
{
    struct effect effect, other;

    while (core_next_effect(core, &effect)) {
        require(core_next_effect(mirror, &other));
        require(same_effect(&effect, &other));
        require(logged_count < MAX_LOGGED);
        logged[logged_count++] = effect;
    }
    require(!core_next_effect(mirror, &other));
}

static void check_states(const struct record *record, int error)
{
    struct state after = state_of(core), mirrored = state_of(mirror);
    bool same = state_equal(after, mirrored);
    bool changed = !state_equal(after, last);

    if (!same)
        check_bytes(mirrored.bytes, mirrored.size, after.bytes, after.size);
    if (!same || (error < 0 && changed && !out.noted))
        fprintf(stderr, "# record %s: %d\n", record_type_name(record->type), error);
    free(mirrored.bytes);
    free(last.bytes);
    last = after;
    require(same);
    require(error == 0 || out.noted || !changed);
    require(!out.noted || (error < 0 && record->type == RECORD_COMMIT));
}

static int apply(struct record record)
{
    struct outcome other;
    int error;

    record.now_ms = now;
    record.wall_ms = 1700000000000u + now;
    record.free_bytes = device_free;
    memset(&out, 0xee, sizeof out);
    error = core_apply(core, &record, &out);
    require(mirror_apply(&record, &other) == error);
    require(same_outcome(&out, &other));
    require(error == 0 || core->effect_count == 0);
    take_effects();
    check_states(&record, error);
    applied[record.type] += error == 0;
    return error;
}

/* ---- records, short ------------------------------------------------------------------------- */

__attribute__((unused)) static struct record named(struct record record, const char *name)
{
    record.name = name;
    record.name_bytes = strlen(name);
    return record;
}

__attribute__((unused)) static uint64_t make_store(const char *name)
{
    require(apply(named(RECORD(STORE_CREATE, .mode = 0755), name)) == 0);
    return out.id;
}

static struct record lock_open_record(uint64_t store, enum core_kind kind, enum lock_wish wish,
                                      struct core_process process)
{
    struct record record = RECORD(LOCK_OPEN, .store = store, .kind = kind, .wish = wish,
                                  .flags = wish == LOCK_WISH_RO ? CORE_OPEN_READ : RW,
                                  .process = process, .deadline_ms = LOCK_FOREVER);

    record.bytes16[0] = next_token++;
    record.bytes16[15] = 0xff;
    return record;
}

__attribute__((unused)) static int open_lock(uint64_t store, enum lock_wish wish,
                                             struct core_process process)
{
    enum core_kind kind = CORE_KIND_LOCK;

    if (wish == LOCK_WISH_AUTO)
        kind = CORE_KIND_AUTO;
    if (wish == LOCK_WISH_DATA)
        kind = CORE_KIND_DATA;
    return apply(lock_open_record(store, kind, wish, process));
}

/* A session by open, which must be granted at once. */
__attribute__((unused)) static uint64_t must_open(uint64_t store, enum lock_wish wish,
                                                  struct core_process process)
{
    require(open_lock(store, wish, process) == 0);
    require(out.session != 0 && out.file != 0 && out.waiter == 0);
    return out.session;
}

/* A waiter by open, which must not be granted at once. */
__attribute__((unused)) static uint64_t must_wait(uint64_t store, enum lock_wish wish,
                                                  struct core_process process)
{
    require(open_lock(store, wish, process) == 0);
    require(out.session == 0 && out.file == 0 && out.waiter != 0);
    return out.waiter;
}

__attribute__((unused)) static int open_file(uint64_t store, enum core_kind kind, uint64_t serial,
                                             uint32_t flags, uint64_t session,
                                             struct core_process process)
{
    return apply(RECORD(FILE_OPEN, .store = store, .kind = kind, .serial = serial, .flags = flags,
                        .session = session, .process = process));
}

__attribute__((unused)) static uint64_t open_ctl(uint64_t store, struct core_process process)
{
    require(open_file(store, CORE_KIND_CTL, 0, RW, 0, process) == 0);
    return out.file;
}

__attribute__((unused)) static int acquire(uint64_t file, enum lock_wish wish,
                                           struct core_process process, uint64_t timeout_ms)
{
    struct record record =
        RECORD(ACQUIRE, .file = file, .wish = wish, .process = process,
               .deadline_ms = timeout_ms == LOCK_FOREVER ? LOCK_FOREVER : now + timeout_ms);

    record.bytes16[0] = next_token++;
    record.bytes16[15] = 0xee;
    return apply(record);
}

__attribute__((unused)) static int
acquire_reserving(uint64_t file, uint64_t bytes, struct core_process process, uint64_t timeout_ms)
{
    return apply(
        RECORD(ACQUIRE, .file = file, .wish = LOCK_WISH_RW, .process = process, .size_bytes = bytes,
               .deadline_ms = timeout_ms == LOCK_FOREVER ? LOCK_FOREVER : now + timeout_ms));
}

__attribute__((unused)) static int close_file(uint64_t file)
{
    return apply(RECORD(FILE_CLOSE, .file = file));
}

__attribute__((unused)) static int of_session(enum record_type type, uint64_t session)
{
    return apply((struct record){.type = type, .session = session});
}

__attribute__((unused)) static int commit(uint64_t session)
{
    return of_session(RECORD_COMMIT, session);
}

__attribute__((unused)) static int pass(uint64_t ms)
{
    now += ms;
    return apply(RECORD(TIME));
}

__attribute__((unused)) static int wait_end(uint64_t waiter, int error, uint32_t flags)
{
    return apply(RECORD(WAIT_END, .waiter = waiter, .count = (uint64_t)error, .flags = flags));
}

/* One allocation of a page with memory of its own; the serial is in `out`. wire_id "": none */
__attribute__((unused)) static int add_wired(uint64_t session, const char *name,
                                             const char *wire_id)
{
    uint64_t memory = next_memory++;

    return apply(named(RECORD(ALLOC_ADD, .session = session, .count = 1, .size_bytes = 1000,
                              .aligned_bytes = GRAIN, .memories = &memory, .memory_count = 1,
                              .value = (const uint8_t *)wire_id, .value_bytes = strlen(wire_id)),
                       name));
}

__attribute__((unused)) static int add_memory(uint64_t session, const char *name)
{
    return add_wired(session, name, "");
}

__attribute__((unused)) static int put_entry(uint64_t session, const char *key, uint64_t slot,
                                             uint64_t offset)
{
    return apply(named(RECORD(ENTRY_PUT, .session = session, .slot = slot, .offset = offset,
                              .value = (const uint8_t *)"v", .value_bytes = 1),
                       key));
}

/* Makes a store with one committed allocation "w", held by no session. Returns its serial. */
__attribute__((unused)) static uint64_t make_committed(const char *name, uint64_t *serial)
{
    uint64_t store = make_store(name);
    uint64_t session = must_open(store, LOCK_WISH_RW, P3);
    uint64_t file = out.file;

    require(add_memory(session, "w") == 0);
    if (serial)
        *serial = out.serial;
    require(commit(session) == 0);
    require(close_file(file) == 0);
    return store;
}

/* Starts a core with the empty store `weights`. */
__attribute__((unused)) static uint64_t start_store(void)
{
    core_start();
    return make_store("weights");
}

/* The same, and P1 writes; returns its session. */
__attribute__((unused)) static uint64_t start_writer(uint64_t *store)
{
    *store = start_store();
    return must_open(*store, LOCK_WISH_RW, P1);
}

/* Starts a core with the committed store `weights`. */
__attribute__((unused)) static uint64_t start_committed(uint64_t *serial)
{
    core_start();
    return make_committed("weights", serial);
}

/* ---- effects -------------------------------------------------------------------------------- */

__attribute__((unused)) static enum lock_state state(uint64_t store)
{
    return lock_get_state(&core_find_store(core, store)->lock);
}

/* The answer to a waiter, or NULL; more than one is a failure. */
__attribute__((unused)) static const struct effect *answer_to(uint64_t waiter)
{
    const struct effect *found = NULL;

    for (size_t i = 0; i < logged_count; i++) {
        const struct effect *effect = &logged[i];

        if (effect->waiter != waiter || waiter == 0)
            continue;
        check(found == NULL);
        found = effect;
    }
    return found;
}

__attribute__((unused)) static bool granted(uint64_t waiter)
{
    const struct effect *effect = answer_to(waiter);

    return effect && effect->type == EFFECT_GRANTED;
}

/* The errno that it was refused with; 0: it was not. */
__attribute__((unused)) static int refused(uint64_t waiter)
{
    const struct effect *effect = answer_to(waiter);

    return effect && effect->type == EFFECT_REFUSED ? effect->error : 0;
}

__attribute__((unused)) static size_t count_effects(enum effect_type type)
{
    size_t count = 0;

    for (size_t i = 0; i < logged_count; i++)
        count += logged[i].type == type;
    return count;
}

__attribute__((unused)) static bool freed(uint64_t memory)
{
    for (size_t i = 0; i < logged_count; i++) {
        if (logged[i].type == EFFECT_FREE_MEMORY && logged[i].memory == memory)
            return true;
    }
    return false;
}

__attribute__((unused)) static enum core_event_type last_event(void)
{
    const struct core_event *event = core_find_event(core, core->next_event - 1);

    return event ? event->type : CORE_EVENT_STORE_CREATED;
}

/* Makes a committed store and demotes it: its place is the copy on the host. */
__attribute__((unused)) static uint64_t make_demoted(const char *name)
{
    uint64_t store = make_committed(name, NULL), memory = next_memory++;

    require(apply(RECORD(MOVE_BEGIN, .store = store, .kind = CORE_PLACE_HOST)) == 0);
    require(apply(RECORD(MOVE_END, .store = store, .count = out.id, .memories = &memory,
                         .memory_count = 1)) == 0);
    return store;
}

/* Straight to the core: the mirror's comparison would take its time for many. */
__attribute__((unused)) static int apply_fast(struct record record, struct outcome *outcome)
{
    struct effect effect;
    int error;

    record.now_ms = now;
    error = core_apply(core, &record, outcome);
    while (core_next_effect(core, &effect))
        ;
    return error;
}

__attribute__((unused)) static uint64_t slot_of(uint64_t serial)
{
    const struct layout_allocation *allocation = core_find_allocation(core, serial, NULL);

    return allocation ? allocation->slot : LAYOUT_UNBOUND;
}

__attribute__((unused)) static int set_memory(uint64_t session, uint64_t serial, uint64_t memory,
                                              uint64_t size_bytes, uint32_t flags)
{
    return apply(RECORD(ALLOC_MEMORY, .session = session, .serial = serial, .memory = memory,
                        .size_bytes = size_bytes,
                        .aligned_bytes = (size_bytes + GRAIN - 1) / GRAIN * GRAIN, .flags = flags));
}

__attribute__((unused)) static int remove_allocation(uint64_t session, uint64_t serial)
{
    return apply(RECORD(ALLOC_REMOVE, .session = session, .serial = serial));
}

/* While the state of `core` says so, core_check notices it. */
#define LIE(lvalue, value)                                                \
    do {                                                                  \
        struct failure failure_ = {0};                                    \
        __typeof__(lvalue) *at_ = &(lvalue), was_ = *at_;                 \
        *at_ = (__typeof__(lvalue))(value);                               \
        if (!check_int(core_check(core, &failure_), -EINVAL))             \
            fprintf(stderr, "# not noticed: %s = %s\n", #lvalue, #value); \
        *at_ = was_;                                                      \
        require(core_check(core, &failure_) == 0);                        \
    } while (0)

#endif
