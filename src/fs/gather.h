/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gather - bytes that clients write to a file before they are applied: documents, entries' values
 *
 * For the files of src/fs. Gathered bytes are counted for the user of their file (service_gather).
 * A small part of them lies in the heap, the rest in shared memory of its own: it must not become
 * anonymous memory of the daemon.
 */
#ifndef GMSFS_FS_GATHER_H
#define GMSFS_FS_GATHER_H

#include <stddef.h>
#include <stdint.h>

struct fs;
struct fs_handle;

struct fs_gathered {
    uint8_t *bytes;
    size_t used;      /* bytes set by the caller */
    size_t room;      /* bytes counted for the user */
    size_t map_bytes; /* size of the mapping; 0: it is in the heap */
    size_t made;      /* bytes of the mapping with pages; the rest is untouched */
};

/* Makes room for `bytes` in all in handle->gathered. -EFBIG beyond max_bytes, -EDQUOT, -ENOMEM */
int fs_gather(struct fs *fs, struct fs_handle *handle, size_t bytes, size_t max_bytes);
/* Sets how many bytes are gathered, for which fs_gather has made room; new ones are zeros. */
void fs_gather_set_size(struct fs_handle *handle, size_t bytes);
void fs_gather_write(struct fs_handle *handle, size_t offset, const void *bytes, size_t size);
/* Begins an entry's new value as a copy of this one. Returns as fs_gather. */
int fs_gather_begin_value(struct fs *fs, struct fs_handle *handle, const void *value, size_t bytes);
/* Makes the pages for the next write. Called after the answer to this one has left, while the
 * client prepares its next piece. */
void fs_gather_ahead(struct fs_handle *handle);
/* Moves the gathered bytes to the caller; they still count for the handle's file. */
struct fs_gathered fs_gather_take(struct fs_handle *handle);
/* Frees bytes that fs_gather_take returned, without uncounting: the session is over. fs NULL: at
 * the mount's end. */
void fs_gather_discard(struct fs *fs, struct fs_gathered *gathered);
/* Frees gathered bytes while the handle's file is open. */
void fs_gather_free(struct fs *fs, struct fs_handle *handle, struct fs_gathered *gathered);

#endif
