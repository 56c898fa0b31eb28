/* SPDX-License-Identifier: Apache-2.0 */
/* The drain of the mount: no new sessions, and at its end no memory is held. */
#include "core/core_internal.h"

#include <errno.h>
#include <string.h>

struct core_drainer apply_get_drainer(const struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_drainer drainer = {.process = record->process, .uid = record->uid};

    memcpy(drainer.token, record->bytes16, sizeof drainer.token);
    return drainer;
}

static int drop_all(struct apply *apply)
{
    struct core *core = apply->core;

    if (!core->draining)
        return -EINVAL;
    if (core->sessions.count > 0)
        return -EBUSY;
    for (size_t i = 0; i < core->stores.count; i++) {
        struct core_store *store = core->stores.items[i];

        if (!store->fixed)
            continue;
        core_add_event(apply, CORE_EVENT_DROPPED, store, NULL);
        core_drop_fixed(core, store);
        store->changed_ms = apply->record->wall_ms;
    }
    return 0;
}

static int end_for_good(struct core *core)
{
    if (!core->draining)
        return -EINVAL;
    if (core->sessions.count > 0)
        return -EBUSY;
    core->drainer = (struct core_drainer){0};
    return 0;
}

int apply_drain_mount(struct apply *apply)
{
    struct core *core = apply->core;
    bool on = apply->record->flags == CORE_DRAIN_ON;

    if (apply->record->flags == CORE_DRAIN_DROP)
        return drop_all(apply);
    if (apply->record->flags == CORE_DRAIN_OVER)
        return end_for_good(core);
    if (apply->record->flags & ~(uint32_t)CORE_DRAIN_ON)
        return -EINVAL;
    if (on && !core->draining && core->fence.is_up)
        return -EBUSY;
    if (!on)
        core->drainer = (struct core_drainer){0};
    else if (!core->draining || core_has_drainer(core))
        core->drainer = apply_get_drainer(apply);
    if (core->draining == on)
        return 0;
    core->draining = on;
    core_add_event(apply, on ? CORE_EVENT_DRAINING : CORE_EVENT_SERVING, NULL, NULL);
    if (on)
        apply_refuse_all(apply, -ECANCELED);
    return 0;
}
