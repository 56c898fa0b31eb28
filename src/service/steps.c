/* SPDX-License-Identifier: Apache-2.0 */
#include "service/steps.h"

#include "base/log.h"

#include <stdbool.h>
#include <stdlib.h>

#define TO(state) (1u << (state))
#define STEPS(name, rows)                            \
    {                                                \
        name, sizeof(rows) / sizeof((rows)[0]), rows \
    }

static const struct steps_row moves[] = {
    [MOVE_BEGINS] = {"begins", TO(MOVE_WAITS) | TO(MOVE_SHORT) | TO(MOVE_MAKES) |
                                   TO(MOVE_VERIFIES) | TO(MOVE_READS) | TO(MOVE_ENDS)},
    [MOVE_WAITS] = {"waits", TO(MOVE_BEGINS) | TO(MOVE_CANCELLED)},
    [MOVE_SHORT] = {"short", TO(MOVE_BEGINS) | TO(MOVE_WAITS) | TO(MOVE_CANCELLED)},
    [MOVE_MAKES] = {"makes", TO(MOVE_COPIES) | TO(MOVE_CANCELLED) | TO(MOVE_ENDS)},
    [MOVE_COPIES] = {"copies",
                     TO(MOVE_AGAIN) | TO(MOVE_SYNCS) | TO(MOVE_CANCELLED) | TO(MOVE_ENDS)},
    [MOVE_AGAIN] = {"again", TO(MOVE_SYNCS) | TO(MOVE_CANCELLED) | TO(MOVE_ENDS)},
    [MOVE_SYNCS] = {"syncs", TO(MOVE_CANCELLED) | TO(MOVE_ENDS)},
    [MOVE_VERIFIES] = {"verifies", TO(MOVE_CANCELLED) | TO(MOVE_ENDS)},
    [MOVE_READS] = {"reads", TO(MOVE_CANCELLED) | TO(MOVE_ENDS)},
    [MOVE_CANCELLED] = {"cancelled", TO(MOVE_CANCELLED) | TO(MOVE_ENDS)},
    [MOVE_ENDS] = {"ends", 0},
};
const struct steps move_steps = STEPS("move", moves);

static const struct steps_row allocs[] = {
    [ALLOC_TRIES] = {"tries", TO(ALLOC_WAITS) | TO(ALLOC_MAKES) | TO(ALLOC_ENDS)},
    [ALLOC_WAITS] = {"waits", TO(ALLOC_TRIES) | TO(ALLOC_ENDS)},
    [ALLOC_MAKES] = {"makes", TO(ALLOC_WAITS) | TO(ALLOC_ENDS)},
    [ALLOC_ENDS] = {"ends", 0},
};
const struct steps alloc_steps = STEPS("alloc", allocs);

static const struct steps_row spools[] = {
    [SPOOL_BEGINS] = {"begins",
                      TO(SPOOL_QUEUES) | TO(SPOOL_WAITS) | TO(SPOOL_RUNS) | TO(SPOOL_ENDS)},
    [SPOOL_QUEUES] = {"queues", TO(SPOOL_BEGINS)},
    [SPOOL_WAITS] = {"waits", TO(SPOOL_BEGINS)},
    [SPOOL_RUNS] = {"runs", TO(SPOOL_ENDS)},
    [SPOOL_ENDS] = {"ends", 0},
};
const struct steps spool_steps = STEPS("spool", spools);

static const struct steps_row turns[] = {
    [TURN_BEGINS] = {"begins", TO(TURN_WAITS) | TO(TURN_RUNS)},
    [TURN_WAITS] = {"waits", TO(TURN_RUNS) | TO(TURN_FAILS)},
    [TURN_RUNS] = {"runs", TO(TURN_ENDS)},
    [TURN_FAILS] = {"fails", TO(TURN_ENDS)},
    [TURN_ENDS] = {"ends", 0},
};
const struct steps turn_steps = STEPS("turn", turns);

static const struct steps_row endings[] = {
    [ENDING_WAITS] = {"waits", TO(ENDING_SEALS) | TO(ENDING_ENDS)},
    [ENDING_SEALS] = {"seals", TO(ENDING_PREPARES) | TO(ENDING_ENDS)},
    [ENDING_PREPARES] = {"prepares", TO(ENDING_PREPARES) | TO(ENDING_ENDS)},
    [ENDING_ENDS] = {"ends", 0},
};
const struct steps ending_steps = STEPS("ending", endings);

static const struct steps_row bulks[] = {
    [BULK_DECODES] = {"decodes", TO(BULK_APPLIES) | TO(BULK_ENDS)},
    [BULK_APPLIES] = {"applies", TO(BULK_WAITS) | TO(BULK_ENDS)},
    [BULK_WAITS] = {"waits", TO(BULK_APPLIES) | TO(BULK_ENDS)},
    [BULK_ENDS] = {"ends", 0},
};
const struct steps bulk_steps = STEPS("bulk", bulks);

void steps_report(const struct steps *steps, unsigned from, unsigned to)
{
    static bool is_told; /* no lock: only the loop's thread changes states */
    if (!is_told)
        log_error("%s: state '%s' must not follow '%s'; the worker goes on. Please report this",
                  steps->name, steps->rows[to].name, steps->rows[from].name);
    is_told = true;
#ifdef GMSFS_TEST_HOOKS
    abort();
#endif
}
