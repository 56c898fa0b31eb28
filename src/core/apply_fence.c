/* SPDX-License-Identifier: Apache-2.0 */
/* The fence of a checkpoint: until it is resolved, the stores of its names grant no session, and
 * are neither created nor removed. The service checks the checkpoint's other conditions. */
#include "core/core_internal.h"

#include <errno.h>
#include <string.h>

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

static struct core_store *find_fenced(const struct apply *apply, size_t index)
{
    const struct core_store *store =
        core_find_store_name(apply->core, apply->core->fence.names[index]);

    return store ? core_store(apply->core, store->id) : NULL;
}

static void add_events(struct apply *apply, enum core_event_type type)
{
    for (size_t i = 0; i < 2; i++) {
        struct core_store *store = find_fenced(apply, i);

        if (store)
            core_add_event(apply, type, store, NULL);
    }
}

static int copy_names(const struct record *record, char names[2][256])
{
    int error = apply_copy_name(record, names[0]);

    if (error == 0)
        error = apply_copy_tag(record, names[1]);
    if (error == 0)
        error = core_check_store_name(names[0]);
    if (error == 0 && names[1][0] != '\0')
        error = core_check_store_name(names[1]);
    if (error == 0 && strcmp(names[0], names[1]) == 0)
        error = -EINVAL;
    return error;
}

static int check_idle(const struct core *core, char names[2][256])
{
    for (size_t i = 0; i < 2; i++) {
        const struct core_store *store = core_find_store_name(core, names[i]);

        if (store ? !core_is_idle(core, store) : i == 0)
            return store ? -EBUSY : -ENOENT;
    }
    return 0;
}

static int raise_fence(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_fence *fence = &apply->core->fence;
    struct core_fence raised = {.is_up = true};
    int error = fence->is_up ? -EBUSY : copy_names(record, raised.names);

    if (error == 0 && apply->core->draining)
        error = -ENODEV;
    if (error == 0)
        error = check_idle(apply->core, raised.names);
    if (error < 0)
        return error;
    memcpy(raised.token, record->bytes16, sizeof raised.token);
    *fence = raised;
    for (size_t i = 0; i < 2; i++) {
        struct core_store *store = find_fenced(apply, i);

        if (store)
            apply_refuse_store(apply, store, -ENODEV);
    }
    add_events(apply, CORE_EVENT_FENCED);
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
    add_events(apply, CORE_EVENT_UNFENCED);
    fence->is_up = false;
    memset(fence->names, 0, sizeof fence->names);
    fence->resolved_by = record->flags;
    return 0;
}
