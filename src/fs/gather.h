/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather - bytes that clients write to a file before they are applied: documents, entries' values
 *
 * For the files of src/fs. What is gathered is counted for the user of its file (service_gather). A
 * little of it lies in the heap, the rest in shared memory of its own: much of it must not
 * become anonymous memory of the daemon's.
 */
#ifndef GMSFS_FS_GATHER_H
#define GMSFS_FS_GATHER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fs;
struct fs_handle;

struct fs_gathered {
    uint8_t *bytes;
    size_t used;      /* the caller's */
    size_t room;      /* counted for the user */
    size_t map_bytes; /* of the mapping; 0: it is in the heap */
    size_t made;      /* of the mapping: what is behind is untouched */
};

/* Makes room for `bytes` in all in handle->gathered. -EFBIG beyond max_bytes, -EDQUOT, -ENOMEM */
int fs_gather(struct fs *fs, struct fs_handle *handle, size_t bytes, size_t max_bytes);
/* There is room for them: so many bytes are gathered, new ones zeros; these stand at `offset`, and
 * what lies between was zeros. */
void fs_gather_set_size(struct fs_handle *handle, size_t bytes);
void fs_gather_write(struct fs_handle *handle, size_t offset, const void *bytes, size_t size);
/* An entry's new value begins as a copy of this one. As fs_gather */
int fs_gather_begin_value(struct fs *fs, struct fs_handle *handle, const void *value, size_t bytes);
/* Makes the pages that the next write needs. To be called when the answer to this one has left,
 * so that it happens while the client makes its next piece. */
void fs_gather_ahead(struct fs_handle *handle);
/* What the handle has gathered becomes the caller's, still counted for the handle's file. */
struct fs_gathered fs_gather_take(struct fs_handle *handle);
/* What was taken, where its file is no longer of interest: the session is over. fs NULL: so is all
 * else. */
void fs_gather_discard(struct fs *fs, struct fs_gathered *gathered);
/* To be called while the handle's file is open. */
void fs_gather_free(struct fs *fs, struct fs_handle *handle, struct fs_gathered *gathered);

#endif
