/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shown - the texts that open files show
 *
 * For the files of src/fs. A text is fixed while it is read, and counted for the user of its file.
 * A committed layout is not copied: it counts once for each user, however many files show it,
 * because it is extra memory only when the store has a newer one. A text is freed once it was read
 * to its end.
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
    struct blob *shared; /* owner of the bytes; NULL: the handle */
    size_t size, at;     /* at: events.c's */
    bool is_fixed;       /* there is a text, or was one of this size */
    bool is_noted;       /* noted for the next worker, with its bytes */
    bool is_lost;        /* its bytes were lost with the last worker */
    bool is_paged;       /* the kernel's cache has pages of it, so it must not change */
    bool is_told;        /* its size was told to the file's opener, which has not read it yet */
    uint64_t told_ms;    /* time when the size was told */
    uint64_t told_print; /* print of the text's sources at that time */
    uint64_t print;      /* of the bytes, also if they are lost; 0: not known */
};

/* Takes `text` (malloc'ed). -EDQUOT, -ENOMEM: the user's bound; the text is freed. */
int fs_shown_set(struct fs *fs, struct fs_handle *handle, uint8_t *text, size_t bytes);
/* Shows these bytes without a copy. -EDQUOT, -ENOMEM */
int fs_shown_share(struct fs *fs, struct fs_handle *handle, struct blob *text);
/* Frees the bytes: only the end of the text can still be read. */
void fs_shown_finish(struct fs *fs, struct fs_handle *handle);
void fs_shown_drop(struct fs *fs, struct fs_handle *handle);

/* shown_kept.c: a text whose reading continues after a worker's death is the same text. */
struct fs_kept_position;
/* Keeps the facts that the next worker needs, because `end` bytes are about to have been read: size
 * and print in memory that outlives this worker, and a note of the bytes if the text is read in
 * parts. */
void fs_shown_keep(struct fs *fs, struct fs_handle *handle, size_t end);
void fs_shown_restore(struct fs *fs, struct fs_handle *handle, const struct fs_kept_position *from);
/* Returns true if a text that was made again has this size and print. */
bool fs_shown_is_same(struct fs *fs, const struct fs_handle *handle, size_t size, uint64_t print);

#endif
