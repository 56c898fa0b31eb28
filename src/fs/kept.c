/* SPDX-License-Identifier: Apache-2.0 */
/* kept - state of open files in memory that outlives the worker: polls, positions in `events` */
#include "fs/fs_internal.h"

static struct fs_kept_handle *find_place(struct fs_ledger *ledger, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++)
        if (atomic_load(&ledger->handles[i].file) == 0)
            return &ledger->handles[i];
    return NULL;
}

/* Places are freed in any order; mostly the next one is free. */
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
    if (atomic_load(&ledger->handles_end) < fs->kept_next)
        atomic_store(&ledger->handles_end, fs->kept_next);
    kept->node = handle->node;
    kept->positions[0] = (struct fs_kept_position){0};
    atomic_store(&kept->last, 0);
    atomic_store(&kept->poll, 0);
    atomic_store(&kept->file, handle->id);
    handle->kept = kept;
    return kept;
}

void fs_handle_unkeep(struct fs_handle *handle)
{
    if (handle->kept)
        atomic_store(&handle->kept->file, 0);
    handle->kept = NULL;
}

static uint64_t get_served(const struct fs *fs)
{
    return atomic_load(&fs->options.ledger->requests[0].unique) & ~FS_RESENT_BIT;
}

void fs_kept_move(struct fs *fs, struct fs_kept_handle *kept, struct fs_kept_position to)
{
    uint32_t next = 1 - atomic_load(&kept->last);

    to.unique = get_served(fs);
    kept->positions[next] = to;
    atomic_store(&kept->last, next);
}

bool fs_kept_return(struct fs *fs, struct fs_kept_handle *kept)
{
    uint32_t last = atomic_load(&kept->last);

    if (kept->positions[last].unique != get_served(fs))
        return false;
    atomic_store(&kept->last, 1 - last);
    return true;
}

const struct fs_kept_position *fs_kept_position(const struct fs_kept_handle *kept)
{
    return &kept->positions[atomic_load(&kept->last)];
}
