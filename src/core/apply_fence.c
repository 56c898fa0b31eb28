/* SPDX-License-Identifier: Apache-2.0 */
/* The fence of a checkpoint: stores that nobody gets a session of until it is resolved. What a
 * checkpoint demands of them besides is the service's to ask. */
#include "core/core_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

bool core_is_fenced(const struct core *core, uint64_t store)
{
    return core->fence.is_up && (core->fence.stores[0] == store || core->fence.stores[1] == store);
}

bool core_is_idle(const struct core *core, const struct core_store *store)
{
    for (size_t i = 0; i < store->lock.waiter_count; i++) {
        enum lock_wish wish = store->lock.waiters[i].wish;

        if ((wish == LOCK_WISH_RW || wish == LOCK_WISH_DATA) &&
            core_waiter_counts(core_waiter(core, store->lock.waiters[i].id)))
            return false;
    }
    return store->lock.session_count == 0;
}

static int check_idle(const struct core *core, uint64_t id)
{
    const struct core_store *store = core_store(core, id);

    if (!store)
        return -ENOENT;
    return core_is_idle(core, store) ? 0 : -EBUSY;
}

static void tell(struct apply *apply, enum core_event_type type)
{
    for (size_t i = 0; i < 2; i++) {
        const struct core_store *store = core_store(apply->core, apply->core->fence.stores[i]);

        if (store)
            core_add_event(apply, type, store, NULL);
    }
}

static int raise_fence(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_fence *fence = &apply->core->fence;
    int error = fence->is_up ? -EBUSY : check_idle(apply->core, record->store);

    if (error == 0 && apply->core->draining)
        error = -ENODEV;
    if (error == 0 && record->serial != 0)
        error = check_idle(apply->core, record->serial);
    if (error < 0)
        return error;
    *fence = (struct core_fence){.is_up = true, .stores = {record->store, record->serial}};
    memcpy(fence->token, record->bytes16, sizeof fence->token);
    for (size_t i = 0; i < 2; i++) {
        if (fence->stores[i] != 0)
            apply_refuse_store(apply, core_store(apply->core, fence->stores[i]), -ENODEV);
    }
    tell(apply, CORE_EVENT_FENCED);
    return 0;
}

int apply_fence(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_fence *fence = &apply->core->fence;
    bool is_its = memcmp(fence->token, record->bytes16, sizeof fence->token) == 0;

    if (record->flags == CORE_FENCE_ON)
        return raise_fence(apply);
    if (record->flags != CORE_FENCE_ABORT && record->flags != CORE_FENCE_COMPLETE)
        return -EINVAL;
    if (!fence->is_up)
        return is_its && fence->resolved_by == record->flags ? 0 : -ESTALE;
    if (!is_its)
        return -EINVAL;
    tell(apply, CORE_EVENT_UNFENCED);
    fence->is_up = false;
    fence->stores[0] = fence->stores[1] = 0;
    fence->resolved_by = record->flags;
    return 0;
}

/* Of core_check. */
int core_check_fence(const struct core *core, struct failure *failure)
{
    const struct core_fence *fence = &core->fence;

    if (fence->is_up ? fence->resolved_by != 0 || fence->stores[0] == 0
                     : fence->stores[0] != 0 || fence->stores[1] != 0)
        return failure_set(failure, -EINVAL, "whether the fence is up is not clear");
    if (fence->is_up && core->draining)
        return failure_set(failure, -EINVAL, "the mount is fenced, and drained");
    if (fence->resolved_by != 0 && fence->resolved_by != CORE_FENCE_ABORT &&
        fence->resolved_by != CORE_FENCE_COMPLETE)
        return failure_set(failure, -EINVAL, "the last fence was resolved in no way that there is");
    for (size_t i = 0; i < 2 && fence->stores[i] != 0; i++) {
        if (check_idle(core, fence->stores[i]) < 0)
            return failure_set(failure, -EINVAL, "store %" PRIu64 ": it is fenced, and in use",
                               fence->stores[i]);
    }
    return 0;
}
