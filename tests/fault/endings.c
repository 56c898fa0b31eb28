/* SPDX-License-Identifier: Apache-2.0 */
/*
 * endings - random records, where tables cannot grow while something ends
 *
 * Closes, ends of sessions and of waits, and time passing find room that the records before them
 * have left, so none of them fails for want of memory. The core and its mirror meet the same.
 */
#include "fault.h"
#include "core/core.h"

static struct fault_control *control;

static int apply_without_memory(struct core *core, const struct record *record,
                                struct outcome *outcome);
#define core_apply apply_without_memory
#include "../unit/core_random.h"
#undef core_apply

#define RUNS    40
#define RECORDS 2000

static unsigned endings, met;

static bool is_ending(uint32_t type)
{
    return type == RECORD_FILE_CLOSE || type == RECORD_DETACH || type == RECORD_WAIT_END ||
           type == RECORD_SESSION_END || type == RECORD_TIME;
}

static int apply_without_memory(struct core *to, const struct record *record,
                                struct outcome *outcome)
{
    bool ending = is_ending(record->type);

    control->fired = false;
    control->armed = ending;
    control->after = 0;
    int error = core_apply(to, record, outcome);
    control->armed = false;
    endings += ending;
    met += control->fired;
    if (ending)
        check(error != -ENOMEM);
    return error;
}

TAP_TEST(endings_need_no_memory)
{
    control = fault_start();
    require(control != NULL);
    control->processes = FAULT_COMMAND;
    control->point = FAULT_realloc;
    control->error = ENOMEM;
    for (uint64_t seed = 1; seed <= RUNS && !tap_failed; seed++) {
        random_state = seed * 0x9e3779b97f4a7c15u + 1;
        memset(&model, 0, sizeof model);
        core_start();
        make_store("weights");
        for (unsigned i = 0; i < RECORDS; i++) {
            memset(&out, 0, sizeof out);
            int error = random_step();
            model_take_all();
            check_reservations(error);
            check_memories();
            check_sessions();
            check_waiters();
            check_stores();
        }
    }
    fprintf(stderr, "# %u endings, %u of them asked for memory\n", endings, met);
}
