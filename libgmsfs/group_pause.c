/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pauses that break the symmetry between groups that stop each other.
 *
 * Two groups that need each other's memory evict each other's stores while they promote their own,
 * one after the other and with nothing in hand, so that neither ever has all of its stores on the
 * devices. A pause of random length, sometimes longer than that takes, lets one of them finish.
 */
#include <poll.h>
#include <sys/random.h>

#include "group.h"

#define PAUSE_MAX_MS       256u
#define BRING_PAUSE_MAX_MS 10000u
#define SLICE_MS           50u /* longest delay until a cancelled pause ends */
#define STEP_MS            4u  /* duration of an ACQUIRE beside the copy */

static uint64_t get_random(uint64_t most_ms)
{
    uint32_t random = 0;

    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
        return most_ms / 2;
    return (uint64_t)((double)most_ms * random / UINT32_MAX);
}

static void pause_up_to(const struct group *group, uint64_t most_ms)
{
    uint64_t left_ms = gfs_group_left_ms(group), end_ms, now_ms = gfs_clock_ms();

    end_ms = now_ms + get_random(most_ms < left_ms ? most_ms : left_ms);
    while (now_ms < end_ms && !gfs_wait_is_cancelled(group->members[0].handle)) {
        poll(NULL, 0, (int)(end_ms - now_ms < SLICE_MS ? end_ms - now_ms : SLICE_MS));
        now_ms = gfs_clock_ms();
    }
}

void gfs_group_pause(const struct group *group, unsigned tries)
{
    pause_up_to(group, tries < 8 ? 1u << tries : PAUSE_MAX_MS);
}

/* All of them, one after the other. */
static uint64_t count_bringing_ms(const struct group *group)
{
    uint64_t ms = 0;

    for (size_t i = 0; i < group->count; i++)
        ms += group->members[i].info.promote_ms + STEP_MS;
    return ms;
}

/* The other one's copies may take as long as ours. Half of the time that is left stays for ours. */
static uint64_t get_bring_pause_ms(const struct group *group)
{
    uint64_t ms = 2 * count_bringing_ms(group), half_ms = gfs_group_left_ms(group) / 2;

    if (ms > BRING_PAUSE_MAX_MS)
        ms = BRING_PAUSE_MAX_MS;
    return ms < half_ms ? ms : half_ms;
}

void gfs_group_bring(struct group *group, struct member *member)
{
    if (member->came) {
        pause_up_to(group, get_bring_pause_ms(group));
        for (size_t i = 0; i < group->count; i++)
            group->members[i].came = 0;
    }
    member->came = 1;
}
