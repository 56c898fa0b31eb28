/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout - layouts that are clones of each other, where each allocation of each change fails once
 *
 * A change that fails for lack of memory changes nothing, and can be done again; nothing leaks.
 */
#include "own_fault.h"

#include "../unit/layout_model.h"

#define ROUNDS 1500

static int try_once(struct deed *deed, int32_t after)
{
    int error;

    arm(after);
    error = deed_try(deed);
    control->armed = false;
    require(error == (control->fired ? -ENOMEM : 0));
    return error;
}

/* Makes one call after the other fail, and then none. Returns how many have failed. */
static size_t try_each(struct deed *deed)
{
    size_t failed = 0;

    for (int32_t after = 0; try_once(deed, after) < 0; after += after < 32 ? 1 : 41) {
        failed++;
        if (pick(8) == 0)
            model_compare(deed->model);
    }
    deed_note(deed);
    return failed;
}

TAP_TEST(what_lacks_memory_changes_nothing_and_leaks_nothing)
{
    static struct deed deed;
    size_t failed = 0, done = 0;
    int64_t living;

    begin_faults(FAULT_SITES, FAULT_NONE);
    living = control->living[FAULT_COMMAND];
    models_start(20260101);
    for (int round = 0; round < ROUNDS; round++) {
        if (!deed_choose(&deed))
            continue;
        failed += try_each(&deed);
        done++;
        if (deed.kind != DEED_FREE)
            model_compare(deed.model);
        if (deed_makes_one(&deed))
            model_compare(deed.clone);
    }
    models_end();
    check_int(control->living[FAULT_COMMAND], living);
    check(failed > done); /* most of them more than once */
    fprintf(stderr, "# %zu changes, which failed %zu times before\n", done, failed);
}

/* A layout that needs room can be emptied. */
TAP_TEST(deleting_what_no_clone_shares_takes_no_memory)
{
    const struct layout_entry *entry;
    struct layout_cursor cursor;
    struct deed deed = {0};

    begin_faults(FAULT_SITES, FAULT_NONE);
    models_start(5);
    deed.model = &models[0];
    deed.kind = DEED_PUT;
    while (layout_count_entries(models[0].layout) < MODEL_KEYS * 3 / 4) {
        choose_put(&deed);
        require(deed_try(&deed) == 0);
        deed_note(&deed);
    }
    control->after = 0;
    control->fired = false;
    control->armed = true;
    while (layout_cursor_first(&cursor, models[0].layout),
           (entry = layout_cursor_next(&cursor)) != NULL)
        require(layout_delete(models[0].layout, entry->key, entry->key_bytes) == 0);
    control->armed = false;
    check(!control->fired);
    memset(models[0].present, 0, sizeof models[0].present);
    models_end();
}
