/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounds - a user takes part of a bound when there is no memory to note that: it must take nothing
 * of the bound or of the daemon's own memory
 */
#include "../unit/service_fixture.h"
#include "own_fault.h"

#include "service/bounds.h"
#include "service/service_internal.h"

#define FIRST_USER 2000u
#define BYTES      65536u

static struct room room;

static int look(void *context, struct room_view *view)
{
    (void)context;
    *view = (struct room_view){.free_bytes = UINT64_C(1) << 30, .reserve_bytes = 16u << 20};
    return 0;
}

static int take_all(uint32_t uid, uint64_t *taken)
{
    *taken = BYTES;
    return service_take(service, SERVICE_BOUND_QUEUED, 0, uid, BYTES);
}

static int take_some(uint32_t uid, uint64_t *taken)
{
    return service_take_some(service, SERVICE_BOUND_QUEUED, 0, uid, BYTES, 4096, taken);
}

/* Makes one call for memory after the other fail, each time for a user without notes. */
static void fail_each(int (*take)(uint32_t uid, uint64_t *taken))
{
    const struct share *share = &service->bounds.shares[SERVICE_BOUND_QUEUED];
    unsigned refused = 0;
    int error = 0;

    for (int after = 0; after == 0 || control->fired; after++) {
        uint32_t uid = FIRST_USER + (uint32_t)after;
        uint64_t taken = 0, spent_bytes = room.spent_bytes;

        arm(after);
        error = take(uid, &taken);
        control->armed = false;
        if (error) {
            check_int(error, -ENOMEM);
            check_int((long long)room.spent_bytes, (long long)spent_bytes);
            refused++;
        } else {
            check_int((long long)share_get_taken(share, uid), BYTES);
            check_int((long long)room.spent_bytes, (long long)spent_bytes + BYTES);
            service_give(service, SERVICE_BOUND_QUEUED, uid, taken);
        }
        check_int((long long)share->taken, 0);
    }
    check_int(error, 0);
    check(refused > 0);
}

TAP_TEST(what_cannot_be_noted_of_a_user_is_not_taken)
{
    fixture_host.room = &room;
    room_init(&room, look, NULL);
    service_start();
    begin_faults(FAULT_SITES, FAULT_NONE);
    fail_each(take_all);
    fail_each(take_some);
    service_end();
}
