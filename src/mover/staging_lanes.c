/* SPDX-License-Identifier: Apache-2.0 */
/* Lanes of a device's threads, and the choice of how many threads. */
#include "mover/staging_parts.h"

#include "base/near.h"
#include "base/thread.h"
#include "mover/work.h"

#include <errno.h>
#include <stdlib.h>

static struct staging_lane *staging_add_lane(struct staging *staging, struct staging_device *device)
{
    struct staging_lane *lane = calloc(1, sizeof(*lane) + device->kind->lane_bytes);

    if (!lane)
        return NULL;
    lane->device = device;
    lane->next = staging->lanes;
    staging->lanes = lane;
    return lane;
}

/* Prefers a lane of an earlier work, which has its buffers already. */
static struct staging_lane *staging_find_lane(struct staging *staging,
                                              struct staging_device *device)
{
    struct staging_lane *lane = staging->lanes;

    while (lane && (lane->is_out || lane->device != device))
        lane = lane->next;
    return lane ? lane : staging_add_lane(staging, device);
}

void staging_stay_near(const struct staging_device *device)
{
    if (device->has_near)
        near_stay(&device->near);
}

int staging_take_lane(struct staging_device *device, bool anew, void **own)
{
    struct staging *staging = device->staging;
    struct staging_lane *lane;

    staging_stay_near(device);
    pthread_mutex_lock(&staging->lock);
    lane = anew ? staging_add_lane(staging, device) : staging_find_lane(staging, device);
    if (lane)
        lane->is_out = true;
    pthread_mutex_unlock(&staging->lock);
    *own = lane;
    return lane ? 0 : -ENOMEM;
}

void staging_give_lane_back(struct staging_lane *lane)
{
    struct staging *staging = lane->device->staging;

    SCOPED_LOCK(&staging->lock);
    lane->is_out = false;
}

int staging_settle_lane(struct staging_lane *lane)
{
    const struct staging_kind *kind = lane->device->kind;
    int error = kind->settle ? kind->settle(lane) : 0;

    lane->left_bytes = 0;
    staging_give_lane_back(lane);
    return error;
}

size_t staging_count_sharing(const struct staging_device *device)
{
    const struct staging *staging = device->staging;
    size_t sharing = 0;

    for (size_t i = 1; i < staging->device_count; i++)
        sharing += staging->devices[i] == device || !staging->devices[i]->is_idle;
    return sharing;
}

unsigned staging_count_threads(const struct staging_kind *kind, uint64_t threads)
{
    unsigned best = work_default_threads();

    if (threads)
        return (unsigned)threads;
    return best < kind->most_threads ? best : kind->most_threads;
}

unsigned staging_prepare(struct staging_device *device, uint64_t threads)
{
    unsigned count = staging_count_threads(device->kind, threads);

    if (device->kind->prepare)
        device->kind->prepare(device, count);
    return count;
}
