/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_tree - the directories and files that a layout's file entries make (base/file_entry.h)
 *
 * Pure. Directories have no entry: each is there while the key of a file leads through it, and its
 * *first entry* is the file with the lowest such key. An entry whose path, value or place is not
 * valid is no file. Where a name is a file and a directory, the file counts. Every call takes a
 * time that does not grow with the number of entries, except that entries that are no files are
 * read up to FILE_TREE_MOST_SKIPPED of them; behind these is nothing.
 */
#ifndef GMSFS_META_FILE_TREE_H
#define GMSFS_META_FILE_TREE_H

#include "base/file_entry.h"
#include "meta/layout.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILE_TREE_MOST_SKIPPED 4096u

/* A file's bytes. */
struct file_tree_file {
    const struct layout_allocation *allocation; /* NULL for an empty file */
    uint64_t offset;                            /* in the allocation */
    uint64_t size_bytes;
    int64_t mtime_ns; /* FILE_ENTRY_NO_TIME if unknown */
    bool is_whole;    /* the file is all bytes of the allocation */
};

/* A name in a directory. */
struct file_tree_child {
    const struct layout_entry *entry; /* the file's, or the directory's first one */
    bool is_directory;
    const char *name; /* in the key, not terminated */
    size_t name_bytes;
};

struct file_tree_walk {
    const struct layout *layout;
    struct layout_cursor cursor;
    char key[FILE_ENTRY_KEY_BYTES + 1]; /* prefix of all keys in the directory */
    size_t key_bytes;
    unsigned skipped;
};

/* Returns the part of an entry's key behind the prefix; NULL if it is no file's. */
const char *file_tree_path(const struct layout_entry *entry, size_t *bytes);
/* Finds where the bytes of an entry's file are. False: it is no file. */
bool file_tree_read(const struct layout *layout, const struct layout_entry *entry,
                    struct file_tree_file *file);

/* A directory is named by its path; the top by 0 bytes. */
/* Returns the directory's first entry; NULL if it is not there. */
const struct layout_entry *file_tree_first(const struct layout *layout, const char *path,
                                           size_t bytes);
/* Returns the length of the path's first `depth` components, without the slash behind them; 0 if it
 * has no component more than these. */
size_t file_tree_cut(const char *path, size_t bytes, unsigned depth);
/* Finds a name in the directory. */
bool file_tree_find(const struct layout *layout, const char *path, size_t bytes, const char *name,
                    struct file_tree_child *child);

/* Begins at the first name of a directory; with `after`, an earlier child's entry, behind that
 * child. */
void file_tree_begin(struct file_tree_walk *walk, const struct layout *layout, const char *path,
                     size_t bytes, const struct layout_entry *after);
/* Moves to the next name, in order of keys. False at the end. */
bool file_tree_next(struct file_tree_walk *walk, struct file_tree_child *child);

#endif
