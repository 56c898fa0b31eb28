/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay - repeats the records of a core that was short of memory, with a core that is not
 *
 * A journal has the records that succeeded, and the COMMITs that were noted. Replayed with plenty
 * of memory they give the same state, no matter which calls failed when they were applied: a record
 * that succeeds does all that it does without memory that may be missing. Here calls for memory
 * fail again and again, at random, and no record is spared.
 */
#include "core/core.h"
#include "own_fault.h"

static int apply_short(struct core *core, const struct record *record, struct outcome *outcome);
#define core_apply apply_short
#include "../unit/core_random.h"
#undef core_apply

#define RUNS    40
#define RECORDS 1500

static bool is_short; /* calls of the core under test fail */
/* The core's error for a call without a record, for its mirror; 0 if there was a record. */
static int lacked;
static unsigned replayed, lost, hit;

/* `after` calls succeed, then one fails, and then each one of `again`; 0 if only one fails. */
static int apply_armed(struct core *to, const struct record *record, struct outcome *outcome,
                       int after, int again)
{
    control->again = again;
    arm(after);
    int error = core_apply(to, record, outcome);
    control->armed = false;
    control->again = 0;
    return error;
}

/* The mirror replays the journal, with plenty of memory. */
static int apply_short(struct core *to, const struct record *record, struct outcome *outcome)
{
    if (to != core) {
        if (to == mirror && lacked) {
            memcpy(outcome, &out, sizeof out);
            return lacked;
        }
        return core_apply(to, record, outcome);
    }
    if (!is_short)
        return core_apply(to, record, outcome);
    int error = apply_armed(to, record, outcome, (int)below(8), one_in(2) ? 1 + (int)below(4) : 0);
    bool recorded = error == 0 || outcome->noted;
    lacked = !recorded && control->fired ? error : 0;
    hit += recorded && control->fired;
    replayed += recorded;
    lost += lacked == -ENOMEM;
    return error;
}

static void start(enum fault_point point)
{
    begin_faults(FAULT_ANYWHERE, point);
    is_short = false;
    lacked = 0;
}

static void run(uint64_t seed)
{
    random_state = seed * 0x9e3779b97f4a7c15u + 7;
    memset(&model, 0, sizeof model);
    choose_limits(seed);
    is_short = false;
    lacked = 0;
    mirror_is_reborn = seed % 8 == 0; /* from a snapshot */
    core_start();
    make_store("weights");
    is_short = true;
    for (unsigned i = 0; i < RECORDS; i++) {
        memset(&out, 0, sizeof out);
        check_step(random_step());
    }
    is_short = false;
    mirror_is_reborn = false;
}

TAP_TEST(what_succeeded_without_memory_is_the_same_when_it_is_replayed_with_plenty)
{
    start(FAULT_NONE);
    for (uint64_t seed = 1; seed <= RUNS && !tap_failed; seed++)
        run(seed);
    fprintf(stderr, "# %u records, %u of them short of memory; %u failed for it\n", replayed, hit,
            lost);
    check(replayed > RECORDS && hit > 0 && lost > RUNS);
}

/* ---- waiters -------------------------------------------------------------------------------- */

/* Makes a store that has left the device, with one waiter for it and, after that one, as many
 * readers that take it as it is as the lock has room for. */
static uint64_t make_waited(uint64_t *waiter)
{
    struct record any = {.type = RECORD_ACQUIRE,
                         .wish = LOCK_WISH_RO,
                         .process = P2,
                         .flags = CORE_OPEN_ANY,
                         .deadline_ms = LOCK_FOREVER};
    struct record move = {.type = RECORD_MOVE_BEGIN, .kind = CORE_PLACE_HOST};
    uint64_t memory;

    core_start();
    move.store = make_committed("weights", NULL);
    require(apply(move) == 0);
    memory = next_memory++;
    require(apply((struct record){.type = RECORD_MOVE_END,
                                  .store = move.store,
                                  .count = out.id,
                                  .memories = &memory,
                                  .memory_count = 1}) == 0);
    for (unsigned i = 0; i < 15; i++) {
        if (i == 14)
            *waiter = must_wait(move.store, LOCK_WISH_RO, P1);
        any.file = open_ctl(move.store, P2);
        require(apply(any) == 0 && out.session != 0);
    }
    move.kind = CORE_PLACE_DEVICE;
    require(apply(move) == 0);
    return move.store;
}

TAP_TEST(a_grant_to_one_who_has_waited_needs_no_memory)
{
    int after = 0;

    start(FAULT_NONE);
    do {
        uint64_t waiter = 0, memory, store = make_waited(&waiter);
        struct record record = {.type = RECORD_MOVE_END,
                                .store = store,
                                .count = core_find_store(core, store)->places.move.id,
                                .memories = &memory,
                                .memory_count = 1};
        struct effect effect;

        memory = next_memory++;
        record.free_bytes = device_free;
        record.now_ms = now;
        if (apply_armed(core, &record, NULL, after++, 1) < 0)
            continue;
        while (core_next_effect(core, &effect))
            check(effect.type != EFFECT_REFUSED);
        check(core_find_waiter(core, waiter) == NULL);
        check_int(core_find_store(core, store)->lock.session_count, 16);
    } while (control->fired && !tap_failed);
    check(after > 2);
}
