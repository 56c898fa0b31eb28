/* SPDX-License-Identifier: Apache-2.0 */
/* The health of the device: suspect memory goes to no new reader, and a lost device holds
 * nothing. */
#include "core/core_internal.h"

#include <errno.h>
#include <string.h>

static void set_reason(struct core *core, const char *text, size_t bytes)
{
    size_t length = bytes ? strnlen(text, bytes) : 0;

    if (length >= sizeof core->health_reason)
        length = sizeof core->health_reason - 1;
    memset(core->health_reason, 0, sizeof core->health_reason);
    if (length > 0)
        memcpy(core->health_reason, text, length);
}

/* Includes working copies: bytes that a writer is loading may be damaged as well. */
static void suspect_all(struct apply *apply)
{
    struct core *core = apply->core;

    apply_abandon_device_moves(apply, EIO);
    for (size_t i = 0; i < core->stores.count; i++) {
        struct core_store *store = core->stores.items[i];
        bool was_sound = store->suspect == 0;

        if (store->fixed)
            core_memory_suspect(core, store, store->fixed);
        if (store->working)
            core_memory_suspect(core, store, store->working);
        if (store->suspect > 0)
            core_forget_contents(store);
        if (was_sound && store->suspect > 0)
            core_add_event(apply, CORE_EVENT_SUSPECT, store, NULL);
    }
    if (core->suspect > 0)
        set_reason(core, apply->record->name, apply->record->name_bytes);
}

static void lose(struct apply *apply)
{
    apply->core->lost = true;
    set_reason(apply->core, apply->record->name, apply->record->name_bytes);
    core_add_event(apply, CORE_EVENT_LOST, NULL, NULL);
    apply_abandon_device_moves(apply, ENODEV);
    apply_refuse_all(apply, -ENODEV);
}

static void trust_store(struct apply *apply, struct core_store *store)
{
    if (store->suspect == 0)
        return;
    apply_abandon_move(apply, store, ECANCELED);
    if (store->fixed)
        core_memory_trust(apply->core, store->fixed);
    if (store->working)
        core_memory_trust(apply->core, store->working);
    core_add_event(apply, CORE_EVENT_TRUSTED, store, NULL);
    apply_grant_waiters(apply, store);
}

static int trust(struct apply *apply)
{
    struct core *core = apply->core;
    struct core_store *store = core_store(core, apply->record->store);

    if (core->lost)
        return -ENODEV;
    if (store)
        trust_store(apply, store);
    else if (apply->record->store != 0)
        return -ENOENT;
    for (size_t i = 0; !store && i < core->stores.count; i++)
        trust_store(apply, core->stores.items[i]);
    return 0;
}

int apply_health(struct apply *apply)
{
    switch (apply->record->flags) {
    case CORE_NOTE_SUSPECT:
        if (!apply->core->lost)
            suspect_all(apply);
        return 0;
    case CORE_NOTE_LOST:
        if (!apply->core->lost)
            lose(apply);
        return 0;
    case CORE_NOTE_TRUST:
        return trust(apply);
    default:
        return -EINVAL;
    }
}

static void empty_store(struct apply *apply, struct core_store *store)
{
    if (!store->fixed || store->lock.session_count > 0 ||
        store->places.place != CORE_PLACE_DEVICE ||
        apply_fall_back(apply, store, CORE_EVENT_DEMOTED))
        return;
    core_add_event(apply, CORE_EVENT_DROPPED, store, NULL);
    core_drop_fixed(apply->core, store);
    store->changed_ms = apply->record->wall_ms;
}

/* Empties all unused stores when the device is lost, and later each store after its last
 * session. */
static void empty_stores(struct apply *apply)
{
    struct core *core = apply->core;

    if (apply->record->type == RECORD_HEALTH) {
        for (size_t i = 0; i < core->stores.count; i++)
            empty_store(apply, core->stores.items[i]);
        return;
    }
    for (size_t i = 0; i < core->index.touched_count; i++) {
        struct core_store *store = core_store(core, core->index.touched[i].store);

        if (store)
            empty_store(apply, store);
    }
}

void apply_settle_health(struct apply *apply, uint64_t suspect_before)
{
    struct core *core = apply->core;

    bool was_suspect = suspect_before > 0 || core->suspect > 0;

    if (!core->lost && core->suspect > 0)
        apply_heal(apply);
    if (core->lost) {
        empty_stores(apply);
    } else if (was_suspect && core->suspect == 0) {
        set_reason(core, NULL, 0);
        core_add_event(apply, CORE_EVENT_HEALTHY, NULL, NULL);
    }
}
