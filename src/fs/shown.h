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
    bool is_noted;       /* for a next worker, with its bytes */
    bool is_lost;        /* its bytes were, with the last worker */
    bool is_paged;       /* pages of it are in the kernel's cache: it stays this one */
    bool is_told;        /* its size was told to the file's opener, who has not read it yet */
    uint64_t told_ms;    /* when, */
    uint64_t told_print; /* and the print of what it was made of */
    uint64_t print;      /* of the bytes, also where they are lost; 0: not known */
};

/* Takes `text` (malloc'ed). -EDQUOT, -ENOMEM: the bound; then it is freed. */
int fs_shown_set(struct fs *fs, struct fs_handle *handle, uint8_t *text, size_t bytes);
/* The text is these bytes, without a copy. -EDQUOT, -ENOMEM */
int fs_shown_share(struct fs *fs, struct fs_handle *handle, struct blob *text);
/* Nobody reads on, but for the end. */
void fs_shown_finish(struct fs *fs, struct fs_handle *handle);
void fs_shown_drop(struct fs *fs, struct fs_handle *handle);

/* shown_kept.c: a text that is read on behind a worker's death is the one that it was. */
struct fs_kept_position;
/* `end` bytes of it are about to have been read. What a next worker is to know is in memory that
 * outlives this one, and the bytes of a text that is read in parts are noted. */
void fs_shown_keep(struct fs *fs, struct fs_handle *handle, size_t end);
void fs_shown_restore(struct fs *fs, struct fs_handle *handle, const struct fs_kept_position *from);
/* The text was made anew though it is read on: is it what it was before, of this size? */
bool fs_shown_is_same(struct fs *fs, const struct fs_handle *handle, size_t size, uint64_t print);

#endif
