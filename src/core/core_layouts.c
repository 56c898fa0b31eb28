/* SPDX-License-Identifier: Apache-2.0 */
/* core_layouts - sets and drops the committed layout and the working copy of a store */
#include "core/core_internal.h"

#include <string.h>

void core_drop_working(struct core *core, struct core_store *store)
{
    if (!store->working)
        return;
    core_memory_unref_layout(core, store->working);
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
    core_mark_committed(core, store->fixed, 0);
    core_memory_unref_layout(core, store->fixed);
    core_discard_layout(core, store->fixed);
    core_discard_blob(core, store->encoding);
    store->fixed = NULL;
    store->encoding = NULL;
    memset(store->hash, 0, sizeof store->hash);
    memset(store->group, 0, sizeof store->group);
    lock_set_committed(&store->lock, false);
    lock_set_sealed(&store->lock, false);
    if (!store->working)
        core_forget_writers(core, store);
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
