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

/* A poll that the last worker was to wake: whoever sleeps in it looks again, and asks anew. */
static void wake_poll(struct fs *fs, uint64_t poll)
{
    if (poll)
        fs_notify_poll(fs, poll);
}

void fs_restore_handles(struct fs *fs)
{
    struct fs_ledger *ledger = fs->options.ledger;

    for (uint32_t i = 0; i < ledger->handles_end; i++) {
        struct fs_kept_handle *kept = &ledger->handles[i];
        uint64_t poll = kept->poll;
        struct fs_handle *handle;
        if (!kept->file)
            continue;
        kept->poll = 0;
        handle =
            core_find_file(fs->core, kept->file) ? fs_handle_get(fs, kept->file, kept->node) : NULL;
        if (handle) {
            handle->kept = kept;
            fs_events_restore(fs, handle, kept->position, kept->at);
        } else {
            kept->file = 0;
        }
        wake_poll(fs, poll);
    }
}
