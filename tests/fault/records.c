/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records - random records, with lack of memory
 *
 * Closes, ends of sessions and of waits, and time passing use the room that earlier records have
 * left, so none of them fails for lack of memory. Any other record without memory fails whole, or
 * does the same as with plenty: the core is short of memory at any call, its mirror never.
 */
#include "core/core.h"
#include "own_fault.h"

static int apply_short(struct core *core, const struct record *record, struct outcome *outcome);
#define core_apply apply_short
#include "../unit/core_random.h"
#undef core_apply

#define RUNS    25
#define RECORDS 2000

static bool only_endings;
static int lacked; /* the core's error without memory, for its mirror; 0 if it had none */
static unsigned endings, met, failed;

static bool is_ending(uint32_t type)
{
    return type == RECORD_FILE_CLOSE || type == RECORD_DETACH || type == RECORD_WAIT_END ||
           type == RECORD_SESSION_END || type == RECORD_TIME || type == RECORD_RESERVE ||
           type == RECORD_HEALTH || type == RECORD_REGION_UNREGISTER ||
           type == RECORD_REGION_RELEASE || type == RECORD_RESUME;
}

/* Arms the next call, or one of the next few. */
static int apply_armed(struct core *to, const struct record *record, struct outcome *outcome,
                       int after)
{
    arm(after);
    int error = core_apply(to, record, outcome);
    control->armed = false;
    met += control->fired;
    if (is_ending(record->type))
        check(error != -ENOMEM || record->type == RECORD_RESERVE);
    return error;
}

static int apply_short(struct core *to, const struct record *record, struct outcome *outcome)
{
    endings += is_ending(record->type);
    if (only_endings) /* if both have no memory, neither may notice */
        return is_ending(record->type) ? apply_armed(to, record, outcome, 0)
                                       : core_apply(to, record, outcome);
    if (to == core) {
        int error = apply_armed(to, record, outcome, (int)below(6));
        lacked = error == -ENOMEM && control->fired ? error : 0;
        failed += lacked != 0;
        return error;
    }
    if (!lacked)
        return core_apply(to, record, outcome);
    memcpy(outcome, &out, sizeof out);
    return lacked;
}

static void start(enum fault_point point)
{
    begin_faults(FAULT_ANYWHERE, point);
    endings = met = failed = 0;
}

static void run(uint64_t seed)
{
    random_state = seed * 0x9e3779b97f4a7c15u + 1;
    memset(&model, 0, sizeof model);
    choose_limits(seed);
    core_start();
    lacked = 0;
    while (core->stores.count == 0) /* it may have no memory too */
        apply(named((struct record){.type = RECORD_STORE_CREATE, .mode = 0755}, "weights"));
    for (unsigned i = 0; i < RECORDS; i++) {
        memset(&out, 0, sizeof out);
        check_step(random_step());
    }
}

TAP_TEST(endings_need_no_memory)
{
    only_endings = true;
    start(FAULT_realloc);
    for (uint64_t seed = 1; seed <= RUNS && !tap_failed; seed++)
        run(seed);
    fprintf(stderr, "# %u endings, %u of them asked for memory\n", endings, met);
}

TAP_TEST(a_record_that_lacks_memory_fails_whole_or_does_what_it_does_with_plenty)
{
    only_endings = false;
    start(FAULT_NONE);
    for (uint64_t seed = 1; seed <= RUNS && !tap_failed; seed++)
        run(seed);
    check(failed > RECORDS);
    fprintf(stderr, "# %u records lacked memory, %u of them failed for it\n", met, failed);
}
