/* SPDX-License-Identifier: Apache-2.0 */
/* file_tags=slow */
/*
 * The places of stores, explored: every order of requests, ends, writes, moves, failures and
 * changes of the device's health, judged by laws that are written separately; and cores that are
 * broken on purpose, each of which must be caught.
 *
 * Covered are three processes at one store (3,022 states), and three at two stores, of which one
 * can be pinned and raised (1,588,924 states), each in all tiers and to the end: every state was
 * continued from until no new one was found. The second takes five minutes of a processor, so it
 * stops here at GMSFS_STATES states; 0: runs to the end, as `make crash-test FULL=1` does. The same
 * holds for the comparison of futures, which shows that states that count as equal have equal
 * futures: here for two processes at one store, there for three, and for two at two stores without
 * a disk. Not covered: time (patience, deadlines, min_stay), a full device or host, drains, seals,
 * fences, and lent descriptors.
 */
#include "places_futures.h"

#define USUAL_STATES 12000

static void tell(const char *label)
{
    for (unsigned law = 0; law < LAWS; law++)
        if (walk.broken & 1u << law)
            fprintf(stderr, "# %s: broken: %s\n", label, laws[law].says);
    if (walk.broken & UNDECODED)
        fprintf(stderr, "# %s: broken: a state can be decoded\n", label);
    printf("# %s: %zu states, gone on from %zu, %llu records judged by %zu laws, %llu moves, "
           "%llu grants, %llu evictions\n",
           label, walk.node_count, walk.taken, (unsigned long long)walk.steps, LAWS,
           (unsigned long long)walk.ended_moves, (unsigned long long)walk.grants,
           (unsigned long long)walk.evictions);
}

static void check_sound(const char *label, unsigned procs, unsigned stores, bool disk, size_t most)
{
    begin(core_apply, procs, stores, disk);
    search(most);
    tell(label);
    check_int(walk.broken, 0);
    check(most < 1000 || (walk.ended_moves > 100 && walk.grants > 100));
    check(most < 1000 || stores == 1 || walk.evictions > 100);
    if (most == SIZE_MAX)
        check(walk.taken == walk.node_count);
    finish();
}

TAP_TEST(every_order_of_three_processes_at_one_store_in_all_tiers_obeys_every_law)
{
    check_sound("three processes, one store, all tiers", 3, 1, true, SIZE_MAX);
}

static size_t most_states(void)
{
    const char *text = getenv("GMSFS_STATES");
    size_t most = text ? strtoul(text, NULL, 10) : USUAL_STATES;

    return most > 0 ? most : SIZE_MAX;
}

TAP_TEST(three_processes_at_two_stores_in_all_tiers_obey_every_law_as_far_as_they_are_followed)
{
    check_sound("three processes, two stores, all tiers", 3, 2, true, most_states());
}

static void check_futures(const char *label, unsigned procs, unsigned stores, bool disk)
{
    begin(core_apply, procs, stores, disk);
    walk.keeps = true;
    search(SIZE_MAX);
    check(walk.taken == walk.node_count);
    compare_futures();
    printf("# %s: %zu states, %llu of them come to in another way\n", label, walk.node_count,
           (unsigned long long)futures.others);
    check_int(walk.broken, 0);
    check_int(futures.unknown, 0);
    check_int(futures.differ, 0);
    check(futures.others > walk.node_count);
    finish();
}

TAP_TEST(what_counts_as_one_state_has_one_future_however_it_was_come_to)
{
    check_futures("two processes, one store, all tiers", 2, 1, true);
    if (most_states() < SIZE_MAX)
        return;
    check_futures("three processes, one store, all tiers", 3, 1, true);
    check_futures("two processes, two stores", 2, 2, false);
}

/* ---- broken on purpose -------------------------------------------------------------------- */

static struct core_store *find_store(struct core *core, const struct record *record)
{
    return core_store(core, record->store);
}

static struct core_store *find_store_of(struct core *core, const struct record *record)
{
    const struct core_session *session = core_find_session(core, record->session);

    return session ? core_store(core, session->store) : NULL;
}

/* A demotion without the check for holders. */
static int demote_held(struct core *core, const struct record *record, struct outcome *outcome)
{
    int error = core_apply(core, record, outcome);
    struct core_store *store = record->type == RECORD_MOVE_BEGIN ? find_store(core, record) : NULL;

    if (store && error == -EBUSY && record->kind == CORE_PLACE_HOST && store->lock.committed &&
        store->places.place == CORE_PLACE_DEVICE && store->places.spares[CORE_PLACE_HOST] &&
        store->places.move.id == 0)
        core_switch_place(core, store, CORE_PLACE_HOST, false, record->wall_ms);
    return error;
}

/* A commit that keeps the copies of the old layout. */
static int keep_spares(struct core *core, const struct record *record, struct outcome *outcome)
{
    struct core_store *store = record->type == RECORD_COMMIT ? find_store_of(core, record) : NULL;
    struct layout *spare = store ? store->places.spares[CORE_PLACE_HOST] : NULL;
    int error;

    if (store)
        store->places.spares[CORE_PLACE_HOST] = NULL;
    error = core_apply(core, record, outcome);
    if (store)
        store->places.spares[CORE_PLACE_HOST] = spare;
    return error;
}

/* A move that ends as ordered although a session holds the store by now. */
static int end_under_holders(struct core *core, const struct record *record,
                             struct outcome *outcome)
{
    struct core_store *store = record->type == RECORD_MOVE_END ? find_store(core, record) : NULL;
    enum core_place to = store ? store->places.move.to : CORE_PLACE_NONE;
    bool spare = store && store->places.move.spare;
    int error = core_apply(core, record, outcome);

    if (store && error == 0 && !spare && store->places.place < to && store->places.spares[to])
        core_switch_place(core, store, to, false, record->wall_ms);
    return error;
}

/* Readers of the lock that are let in wherever the store is. */
static int grant_anywhere(struct core *core, const struct record *record, struct outcome *outcome)
{
    struct core_store *store = record->type == RECORD_LOCK_OPEN ? find_store(core, record) : NULL;
    enum core_place place = store ? store->places.place : CORE_PLACE_DEVICE;
    int error;

    if (place == CORE_PLACE_HOST)
        store->places.place = CORE_PLACE_DEVICE;
    error = core_apply(core, record, outcome);
    if (place == CORE_PLACE_HOST)
        store->places.place = place;
    return error;
}

/* Memory that is never given back. */
static int leak_source(struct core *core, const struct record *record, struct outcome *outcome)
{
    struct core_store *store = record->type == RECORD_MOVE_END ? find_store(core, record) : NULL;

    if (store && store->places.place == CORE_PLACE_DEVICE)
        core_memory_ref_layout(core, store->fixed);
    return core_apply(core, record, outcome);
}

/* Damaged bytes that are copied as if they were sound. */
static int copy_suspect(struct core *core, const struct record *record, struct outcome *outcome)
{
    struct core_store *store = record->type == RECORD_MOVE_BEGIN ? find_store(core, record) : NULL;
    uint64_t suspect = store ? store->suspect : 0;
    int error;

    if (store)
        store->suspect = 0;
    error = core_apply(core, record, outcome);
    if (store)
        store->suspect = suspect;
    return error;
}

/* A copy on disk that is used without being verified. */
static int rely_on_unread(struct core *core, const struct record *record, struct outcome *outcome)
{
    struct record order = *record;

    if (record->type == RECORD_MOVE_BEGIN)
        order.flags &= ~CORE_MOVE_VERIFY;
    return core_apply(core, &order, outcome);
}

/* Damaged bytes that are given up for it at once. */
static int heal_unread(struct core *core, const struct record *record, struct outcome *outcome)
{
    int error = core_apply(core, record, outcome);

    for (size_t i = 0; i < core->stores.count; i++) {
        struct core_store *store = core->stores.items[i];

        if (core_wants_heal(core, store))
            core_switch_place(core, store, CORE_PLACE_DISK, false, record->wall_ms);
    }
    return error;
}

/* A writer that is let in while its store is copied, and does not end that. */
static int write_under_a_move(struct core *core, const struct record *record,
                              struct outcome *outcome)
{
    struct core_store *store = record->type == RECORD_LOCK_OPEN ? find_store(core, record) : NULL;
    struct core_move move = store ? store->places.move : (struct core_move){0};
    int error;

    if (store)
        store->places.move = (struct core_move){0};
    error = core_apply(core, record, outcome);
    if (store)
        store->places.move = move;
    return error;
}

/* An abort that keeps bytes that it has changed. */
static int roll_back_to_spoilt(struct core *core, const struct record *record,
                               struct outcome *outcome)
{
    for (size_t i = 0; i < core->sessions.count && record->type == RECORD_FILE_CLOSE; i++) {
        struct core_session *session = core->sessions.items[i];
        session->touched = false;
    }
    return core_apply(core, record, outcome);
}

/* A reader that goes on sleeping when its store is there. */
static int grant_nobody(struct core *core, const struct record *record, struct outcome *outcome)
{
    struct core_store *store = record->type == RECORD_MOVE_END ? find_store(core, record) : NULL;
    size_t waiters = store ? store->lock.waiter_count : 0;
    int error;

    if (store)
        store->lock.waiter_count = 0;
    error = core_apply(core, record, outcome);
    if (store)
        store->lock.waiter_count = waiters;
    return error;
}

/* A change of place without a change of the version. */
static int count_nothing(struct core *core, const struct record *record, struct outcome *outcome)
{
    struct core_store *store = record->type == RECORD_MOVE_END ? find_store(core, record) : NULL;
    uint64_t moves = store ? store->places.moves : 0;
    int error = core_apply(core, record, outcome);

    if (store)
        store->places.moves = moves;
    return error;
}

/* An eviction that is an order like any other. */
static int evict_by_order(struct core *core, const struct record *record, struct outcome *outcome)
{
    struct record order = *record;

    if (record->type == RECORD_MOVE_BEGIN && record->flags & CORE_MOVE_EVICT) {
        order.flags = 0;
        order.count = 0;
    }
    return core_apply(core, &order, outcome);
}

/* A core that ignores pins when it evicts. */
static int evict_pinned(struct core *core, const struct record *record, struct outcome *outcome)
{
    bool evicts = record->type == RECORD_MOVE_BEGIN && record->flags & CORE_MOVE_EVICT;
    struct core_store *store = evicts ? find_store(core, record) : NULL;
    bool pinned = store && store->use.pinned;
    int error;

    if (store)
        store->use.pinned = false;
    error = core_apply(core, record, outcome);
    if (store)
        store->use.pinned = pinned;
    return error;
}

/* A core that ignores the pools' classes when it evicts. */
static int evict_important(struct core *core, const struct record *record, struct outcome *outcome)
{
    bool evicts = record->type == RECORD_MOVE_BEGIN && record->flags & CORE_MOVE_EVICT;
    struct core_pool *pool = evicts ? core->pools.items.items[1] : NULL;
    int error;

    if (pool)
        pool->class = POOL_CLASS_STANDARD;
    error = core_apply(core, record, outcome);
    if (pool)
        pool->class = POOL_CLASS_HIGH;
    return error;
}

/* A core that evicts held stores at once if they have a copy. */
static int evict_held(struct core *core, const struct record *record, struct outcome *outcome)
{
    bool evicts = record->type == RECORD_MOVE_BEGIN && record->flags & CORE_MOVE_EVICT;
    struct core_store *store = evicts ? find_store(core, record) : NULL;
    uint64_t holds = store ? store->use.holds : 0;
    int error;

    if (store)
        store->use.holds = 0;
    error = core_apply(core, record, outcome);
    if (store)
        store->use.holds = holds;
    return error;
}

/* A core that gives the bytes up instead of copying them. */
static int evict_to_none(struct core *core, const struct record *record, struct outcome *outcome)
{
    struct record none = *record;

    if (record->type == RECORD_MOVE_BEGIN && record->flags & CORE_MOVE_EVICT)
        none.kind = CORE_PLACE_NONE;
    return core_apply(core, &none, outcome);
}

static const struct {
    const char *name;
    apply_fn apply;
    unsigned stores;
    bool disk;
} mutants[] = {
    {"demote_held", demote_held, 1, false},
    {"keep_spares", keep_spares, 1, false},
    {"end_under_holders", end_under_holders, 1, false},
    {"grant_anywhere", grant_anywhere, 1, false},
    {"leak_source", leak_source, 1, false},
    {"copy_suspect", copy_suspect, 1, false},
    {"rely_on_unread", rely_on_unread, 1, true},
    {"heal_unread", heal_unread, 1, true},
    {"write_under_a_move", write_under_a_move, 1, false},
    {"roll_back_to_spoilt", roll_back_to_spoilt, 1, false},
    {"grant_nobody", grant_nobody, 1, false},
    {"count_nothing", count_nothing, 1, false},
    {"evict_by_order", evict_by_order, 2, false},
    {"evict_pinned", evict_pinned, 2, false},
    {"evict_important", evict_important, 2, false},
    {"evict_held", evict_held, 2, false},
    {"evict_to_none", evict_to_none, 2, false},
};

TAP_TEST(every_core_that_is_broken_on_purpose_is_caught)
{
    for (size_t i = 0; i < sizeof mutants / sizeof mutants[0]; i++) {
        begin(mutants[i].apply, 2, mutants[i].stores, mutants[i].disk);
        search(SIZE_MAX);
        if (!check(walk.broken != 0))
            fprintf(stderr, "# %s was not caught\n", mutants[i].name);
        tell(mutants[i].name);
        finish();
    }
}

TAP_TEST(a_choice_that_does_not_see_who_waits_holds_pins_or_moves_is_caught)
{
    for (enum blindness blind = BLIND_TO_WAITERS; blind < BLINDNESS_COUNT; blind++) {
        begin(core_apply, 3, 2, false);
        walk.blind = blind;
        search(SIZE_MAX);
        if (!check(walk.broken != 0))
            fprintf(stderr, "# blindness %d was not caught\n", (int)blind);
        tell("a blind choice");
        finish();
    }
}
