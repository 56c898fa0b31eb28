/* SPDX-License-Identifier: Apache-2.0 */
/* kept - what open files have in memory that outlives the worker: polls, positions in `events` */
#include "fs/fs_internal.h"

#include <errno.h>

static struct fs_kept_handle *find_place(struct fs_ledger *ledger, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        if (ledger->handles[i].file == 0)
            return &ledger->handles[i];
    return NULL;
}

/* Places are given back in any order; as a rule the next one is free. */
struct fs_kept_handle *fs_handle_keep(struct fs *fs, struct fs_handle *handle)
{
    struct fs_ledger *ledger = fs->options.ledger;
    struct fs_kept_handle *kept = handle->kept;

    if (kept)
        return kept;
    if (fs->kept_next >= CORE_MAX_FILES)
        fs->kept_next = 0;
    kept = find_place(ledger, fs->kept_next, CORE_MAX_FILES);
    if (!kept)
        kept = find_place(ledger, 0, fs->kept_next);
    if (!kept)
        return NULL;
    fs->kept_next = (uint32_t)(kept - ledger->handles) + 1;
    if (ledger->handles_end < fs->kept_next)
        ledger->handles_end = fs->kept_next;
    *kept = (struct fs_kept_handle){.node = handle->node};
    kept->file = handle->id;
    handle->kept = kept;
    return kept;
}

void fs_handle_unkeep(struct fs *fs, struct fs_handle *handle)
{
    (void)fs;
    if (handle->kept)
        handle->kept->file = 0;
    handle->kept = NULL;
}
