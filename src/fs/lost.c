/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lost - what clients had written for later, and a worker took with it
 *
 * What is gathered for a file lies in the worker's memory. The core knows how much it was, so a
 * next worker notices, and says so where it would have been used.
 */
#include "fs/fs_internal.h"

#include <errno.h>

bool fs_has_lost_bytes(struct fs *fs, uint64_t fh)
{
    const struct core_file *file = core_find_file(fs->core, fh);
    const struct fs_handle *handle = fs_handle_find(fs, fh);
    return file && file->gathered_bytes > 0 && (!handle || handle->counted_bytes == 0);
}

int fs_take_loss(struct fs *fs, uint64_t fh)
{
    if (!fs_has_lost_bytes(fs, fh))
        return 0;
    service_gather(fs->service, fh, 0);
    return -EIO;
}
