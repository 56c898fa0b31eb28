/* SPDX-License-Identifier: Apache-2.0 */
/* The drain of one store: new requests wait, holders are told, and the committed layout stays. */
#include "core/core_internal.h"

#include <errno.h>
#include <string.h>

/* Wakes polls of `state`, although its text is the same: `info` has changed. */
static void show_change(struct apply *apply, struct core_store *store)
{
    store->version++;
    core_push_effect(apply->core, (struct effect){.type = EFFECT_STATE, .store = store->id});
}

int apply_store_drain(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_store *store = core_store(apply->core, record->store);

    if (!store)
        return -ENOENT;
    store->drain = (struct core_drain){
        .is_on = true,
        .id = store->drain.is_on ? store->drain.id : apply->core->next_event,
        .since_ms = store->drain.is_on ? store->drain.since_ms : record->wall_ms,
        .deadline_ms = record->deadline_ms,
        .by = apply_get_drainer(apply),
    };
    lock_set_closed(&store->lock, true, record->now_ms);
    core_add_event(apply, CORE_EVENT_STORE_DRAINING, store, NULL);
    show_change(apply, store);
    return 0;
}

int apply_store_serve(struct apply *apply)
{
    struct core_store *store = core_store(apply->core, apply->record->store);

    if (!store)
        return -ENOENT;
    if (!store->drain.is_on)
        return 0;
    memset(&store->drain, 0, sizeof store->drain);
    lock_set_closed(&store->lock, false, apply->record->now_ms);
    core_add_event(apply, CORE_EVENT_STORE_SERVING, store, NULL);
    show_change(apply, store);
    apply_grant_waiters(apply, store);
    return 0;
}
