/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shown - the texts that open files show
 *
 * For the files of src/fs. A text is fixed while it is read, and counted for the user of its file.
 * A committed layout is not copied: it is counted once for each user, however many files show it,
 * for it is memory of its own only when the store has another one. What was read to its end is let
 * go.
 */
#ifndef GMSFS_FS_SHOWN_H
#define GMSFS_FS_SHOWN_H

#include "base/blob.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fs;
struct fs_handle;

struct fs_shown {
    uint8_t *bytes;      /* NULL: it was read to its end */
    struct blob *shared; /* whose bytes they are; NULL: they are the handle's own */
    size_t size, at;     /* at: events.c's */
    bool is_fixed;       /* there is a text, or was one of this size */
};

/* Takes `text` (malloc'ed). -EDQUOT, -ENOMEM: the bound; then it is freed. */
int fs_shown_set(struct fs *fs, struct fs_handle *handle, uint8_t *text, size_t bytes);
/* The text is these bytes, without a copy. -EDQUOT, -ENOMEM */
int fs_shown_share(struct fs *fs, struct fs_handle *handle, struct blob *text);
/* Nobody reads on, but for the end. */
void fs_shown_finish(struct fs *fs, struct fs_handle *handle);
void fs_shown_drop(struct fs *fs, struct fs_handle *handle);

#endif
