/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_wind - brings any core to its end, by records, and holds it against core_check after each
 *
 * For states decoded from bytes instead of made by records: all that such a state holds must end
 * like a state made by records. Used by the tests of src/core and by tests/fuzz.
 */
#ifndef GMSFS_TESTS_UNIT_CORE_WIND_H
#define GMSFS_TESTS_UNIT_CORE_WIND_H

#include "core/core.h"
#include "record_bytes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct wind {
    struct core *core;
    bool wrong;
};

/* -ENOSPC, -EIO and the like are valid answers; the test looks for broken states. */
static int wind_apply(struct wind *wind, struct record record)
{
    struct failure failure;
    struct effect effect;
    int error;

    if (wind->wrong)
        return -ECANCELED;
    record.now_ms = 5000;
    record.free_bytes = 1u << 20;
    error = core_apply(wind->core, &record, NULL);
    while (core_next_effect(wind->core, &effect))
        ;
    if (core_check(wind->core, &failure) < 0) {
        fprintf(stderr, "# after %s: %s\n", record_type_name(record.type), failure.text);
        wind->wrong = true;
    }
    return error;
}

static uint64_t wind_last(const struct idvec *vec)
{
    return *(const uint64_t *)vec->items[vec->count - 1];
}

static void wind_writers(struct wind *wind)
{
    for (size_t i = 0; i < wind->core->stores.count; i++) {
        const struct core_session *writer =
            core_get_writer(wind->core, *(const uint64_t *)wind->core->stores.items[i]);

        if (!writer)
            continue;
        wind_apply(wind, RECORD(ENTRY_PUT, .session = writer->id, .name = "wind", .name_bytes = 4,
                                .slot = LAYOUT_UNBOUND));
        wind_apply(wind, RECORD(COMMIT, .session = writer->id, .flags = i % 2));
    }
}

/* As wind_apply, for a record that must succeed: a caller's loop until all is gone would not end.
 */
static void wind_must(struct wind *wind, struct record record)
{
    int error = wind_apply(wind, record);

    if (error == 0 || wind->wrong)
        return;
    fprintf(stderr, "# %s: %s\n", record_type_name(record.type), strerror(-error));
    wind->wrong = true;
}

/* A fenced store is neither drained nor removed. */
static void wind_fence(struct wind *wind)
{
    struct record record = RECORD(FENCE, .flags = CORE_FENCE_ABORT);

    memcpy(record.bytes16, wind->core->fence.token, sizeof record.bytes16);
    if (wind->core->fence.is_up)
        wind_must(wind, record);
}

static void wind_region(struct wind *wind, const struct region *region)
{
    char name[REGION_MAX_NAME_BYTES];

    memcpy(name, region->name, region->name_bytes);
    wind_must(wind, RECORD(REGION_UNREGISTER, .uid = region->uid, .name = name,
                           .name_bytes = region->name_bytes));
}

/* Whether all of it ended. */
static bool wind_down(struct core *ending)
{
    struct wind wind = {.core = ending};

    wind_must(&wind, RECORD(RESUME));
    wind_apply(&wind, RECORD(TIME));
    wind_fence(&wind);
    wind_writers(&wind);
    while (ending->waiters.count > 0 && !wind.wrong)
        wind_must(&wind, RECORD(WAIT_END, .waiter = wind_last(&ending->waiters), .count = EINTR));
    wind_apply(&wind, RECORD(DRAIN, .flags = CORE_DRAIN_ON));
    while (ending->files.count > 0 && !wind.wrong)
        wind_must(&wind, RECORD(FILE_CLOSE, .file = wind_last(&ending->files)));
    while (ending->regions.items.count > 0 && !wind.wrong)
        wind_region(&wind, ending->regions.items.items[ending->regions.items.count - 1]);
    while (ending->sessions.count > 0 && !wind.wrong)
        wind_must(&wind, RECORD(SESSION_END, .session = wind_last(&ending->sessions)));
    wind_apply(&wind, RECORD(DRAIN, .flags = CORE_DRAIN_DROP));
    while (ending->stores.count > 0 && !wind.wrong)
        wind_must(&wind, RECORD(STORE_REMOVE, .store = wind_last(&ending->stores)));
    return !wind.wrong && ending->memories.count == 0 && ending->tickets.count == 0 &&
           ending->suspect == 0 && ending->reserved_bytes == 0 &&
           ending->shares[CORE_BOUND_FILES].taken == 0 &&
           ending->shares[CORE_BOUND_REGIONS].taken == 0 &&
           ending->shares[CORE_BOUND_REGION_BYTES].taken == 0;
}

#endif
