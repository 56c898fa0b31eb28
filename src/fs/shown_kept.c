/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shown_kept - texts whose reading continues after the death of the worker that made them
 *
 * A text's length, and a print of it, are in memory that outlives the worker: so a text that was
 * read to its end stays at its end. If a text is read in parts, its bytes are noted besides, within
 * its user's share of notes. A committed layout is not noted: mostly it is still there, and its
 * hash proves it.
 */
#include "fs/fs_internal.h"

#include "base/xxh3.h"

#include <string.h>

static uint64_t make_print(struct fs *fs, const struct fs_handle *handle)
{
    const struct fs_shown *shown = &handle->shown;
    struct node node;
    uint64_t print = 0;
    if (!shown->shared)
        return XXH3_64bits(shown->bytes, shown->size);
    if (node_find(fs->core, handle->node, &node) == 0 && node.store)
        memcpy(&print, node.store->hash, sizeof print);
    return print;
}

void fs_shown_keep(struct fs *fs, struct fs_handle *handle, size_t end)
{
    struct fs_shown *shown = &handle->shown;
    struct fs_kept_handle *kept = shown->bytes ? fs_handle_keep(fs, handle) : NULL;
    if (!kept)
        return;
    if (!shown->print) {
        shown->print = make_print(fs, handle);
        fs_kept_move(fs, kept,
                     (struct fs_kept_position){.position = shown->size + 1, .at = shown->print});
    }
    if (end < shown->size && !shown->shared && !shown->is_noted)
        shown->is_noted = fs_note_text(fs, handle);
}

void fs_shown_restore(struct fs *fs, struct fs_handle *handle, const struct fs_kept_position *from)
{
    struct fs_shown *shown = &handle->shown;
    if (from->position == 0) /* nothing was read */
        return;
    size_t size = (size_t)from->position - 1;
    if (shown->bytes && fs_shown_is_same(fs, handle, size, from->at)) {
        shown->print = from->at;
        return;
    }
    fs_shown_drop(fs, handle);
    handle->shown =
        (struct fs_shown){.size = size, .is_fixed = true, .is_lost = true, .print = from->at};
}

bool fs_shown_is_same(struct fs *fs, const struct fs_handle *handle, size_t size, uint64_t print)
{
    return handle->shown.size == size && make_print(fs, handle) == print;
}
