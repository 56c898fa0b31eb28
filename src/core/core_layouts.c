/* SPDX-License-Identifier: Apache-2.0 */
/* core_layouts - sets and drops the committed layout and the working copy of a store */
#include "core/core_internal.h"

#include <errno.h>
#include <string.h>

void core_drop_working(struct core *core, struct core_store *store)
{
    if (!store->working)
        return;
    core_memory_unref_layout(core, store->working, false);
    core_discard_layout(core, store->working);
    store->working = NULL;
}

void core_drop_fixed(struct core *core, struct core_store *store)
{
    if (!store->fixed)
        return;
    core_touch(core, store);
    core_end_move(core, store);
    core_drop_spares(core, store);
    core_set_place(core, store, CORE_PLACE_DEVICE);
    core_memory_unref_layout(core, store->fixed, true);
    core_discard_layout(core, store->fixed);
    core_discard_blob(core, store->encoding);
    store->fixed = NULL;
    store->encoding = NULL;
    store->made = (struct made_file_facts){0};
    store->pieces_bytes = 0;
    memset(store->hash, 0, sizeof store->hash);
    memset(store->group, 0, sizeof store->group);
    core_forget_contents(store);
    lock_set_committed(&store->lock, false);
    lock_set_sealed(&store->lock, false);
    if (!store->working)
        core_forget_writers(core, store);
}

void core_forget_contents(struct core_store *store)
{
    store->contents = 0;
    memset(store->contents_id, 0, sizeof store->contents_id);
}

void core_touch_bytes(struct core *core, struct core_session *session)
{
    session->touched = true;
    core_forget_contents(core_store(core, session->store));
}

bool core_is_settled(const struct core_store *store)
{
    const struct lock *lock = &store->lock;

    return lock->committed && !lock->bare && lock->held[LOCK_MODE_RW] == 0 &&
           lock->held[LOCK_MODE_RW_DATA] == 0 && store->suspect == 0;
}

const struct core_store *core_find_contents(const struct core *core, uint64_t contents)
{
    for (size_t i = 0; contents != 0 && i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];

        if (store->contents == contents)
            return core_is_settled(store) ? store : NULL;
    }
    return NULL;
}

int apply_contents(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_store *store = core_store(apply->core, record->store);

    if (!store || !core_is_settled(store) || store->generation != record->generation ||
        store->grants_rw != record->grants_rw)
        return -ESTALE;
    if (store->contents != 0 &&
        memcmp(store->contents_id, record->bytes16, sizeof store->contents_id) == 0)
        return 0;
    if (apply->core->next_contents >= CORE_MAX_CONTENTS)
        return -ENOSPC;
    store->contents = apply->core->next_contents++;
    memcpy(store->contents_id, record->bytes16, sizeof store->contents_id);
    return 0;
}

void core_set_fixed(struct core *core, struct core_store *store, struct layout *layout)
{
    if (layout != store->fixed)
        core_drop_fixed(core, store);
    if (layout == store->working)
        store->working = NULL;
    store->fixed = layout;
    core_mark_committed(core, layout, store->id);
}
