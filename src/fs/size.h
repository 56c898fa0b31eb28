/* SPDX-License-Identifier: Apache-2.0 */
/*
 * size - the lengths of the texts that files show
 *
 * For the files of src/fs. stat(2) returns the length that a read would now give. Most texts are a
 * word. A text that is costly to make is only made for GETATTR; a lookup, whose size no program
 * sees, returns an upper bound. If a thread asks for the size of the file that it has just opened,
 * the text is kept for its first read, which then matches the size.
 *
 * sendfile(2), splice(2) and mmap(2) read through the kernel's cache of pages, which all open files
 * of a node share, and which an open empties. So only the newest open file gets pages, of one text
 * that stays: no page of another text stands beside them. Other open files get EINVAL, after which
 * programs fall back to read(2).
 */
#ifndef GMSFS_FS_SIZE_H
#define GMSFS_FS_SIZE_H

#include "fs/node.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

struct fs;
struct fs_handle;
struct fuse_file_info;

#define FS_OPENED 256u
#define FS_NOBODY UINT32_MAX /* a uid that no user has */

struct fs_opened { /* the newest open file of a text */
    uint64_t node, file;
    uint32_t tid; /* the thread that opened it; 0: not known */
};

/* The last text that was made for the size of a node. The kernel asks for attributes before it
 * opens a file, and its opener asks once more. */
struct fs_measured {
    uint64_t node; /* 0: there is none */
    uint64_t made_ms, print;
    uint32_t uid, tid;
    uint8_t *text;
    size_t bytes; /* counted for the user */
};

/* The way of a read's bytes to its client. */
enum fs_reading {
    FS_READ_DIRECT, /* read(2) */
    FS_READ_PAGES,  /* through the kernel's cache: sendfile(2), splice(2), mmap(2) */
};

/* Returns how the read came: the kernel names the owner of locks with each read(2), and with no
 * read of pages. */
enum fs_reading fs_get_reading(const struct fuse_file_info *info);

/* Fills `stat`, with the size of a text as well; for a costly one an upper bound. */
void fs_stat(struct fs *fs, const struct node *node, struct stat *stat);
bool fs_is_costly_text(enum node_kind kind);
/* Notes that a thread has opened a text. */
void fs_size_opened(struct fs *fs, uint64_t node, uint64_t file, uint32_t tid);
/* Keeps the text for an open of this thread that may follow, or frees it. */
void fs_keep_measured(struct fs *fs, const struct fs_measured *measured);
void fs_drop_measured(struct fs *fs);
/* Drops the text once no open can use it. True: it is still kept. */
bool fs_age_measured(struct fs *fs);
bool fs_is_newest_open(const struct fs *fs, uint64_t node, uint64_t file);
/* Keeps the text, whose size the opener is told now, for its first read. Frees it if its user may
 * have no more: then that read makes it anew. */
void fs_keep_told_text(struct fs *fs, struct fs_handle *handle, uint8_t *text, size_t bytes);
/* Returns true if the file's text has the size that its opener was told, and a read would still
 * show the same. */
bool fs_is_told_text_true(const struct fs *fs, const struct fs_handle *handle);
/* Returns the file that this thread of this user opened last, if it has read nothing of it. NULL:
 * none, or no memory. */
struct fs_handle *fs_find_unread(struct fs *fs, uint64_t node, uint32_t tid, uint32_t uid);

#endif
