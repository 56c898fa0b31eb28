/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_dir - the directory of an image: names, files, and locks
 *
 * For this folder and the commands that save and load images. Never follows a symbolic link inside
 * the directory, never opens anything but regular files, and touches only names of an image. Calls
 * return a negative errno, also -ELOOP (a symbolic link) and -ENOTSUP (not a regular file);
 * image_dir_explain() puts it into words. Nothing is printed.
 */
#ifndef GMSFS_IMAGE_IMAGE_DIR_H
#define GMSFS_IMAGE_IMAGE_DIR_H

#include "image/image_manifest.h"
#include "source/source.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMAGE_MANIFEST   "manifest"
#define IMAGE_UNFINISHED "unfinished"
#define IMAGE_LAYOUT     "layout"
#define IMAGE_NEW        ".new" /* suffix of a file that is being written */
#define IMAGE_NAME_BYTES 32u

enum image_dir_use {
    IMAGE_DIR_LOOK, /* allows readers and writers meanwhile */
    IMAGE_DIR_READ, /* allows readers meanwhile */
    IMAGE_DIR_WRITE,
};

struct image_dir {
    const char *place;
    char *path;            /* the place, for messages */
    int fd;                /* -1: not open, or no directory of this machine */
    bool created;          /* by image_dir_open */
    struct source *source; /* reads its files */
};

/* Files in a directory. */
struct image_dir_content {
    bool manifest, unfinished;
    bool others;                       /* other files */
    char in_the_way[IMAGE_NAME_BYTES]; /* a name of an image's other files; "" */
};

/*
 * Opens and locks the directory; -EWOULDBLOCK: another process uses it. WRITE creates a missing
 * directory, and refuses another place. Call image_dir_close() in any case.
 */
int image_dir_open(struct image_dir *dir, const char *path, enum image_dir_use use,
                   struct failure *failure);
void image_dir_close(struct image_dir *dir);

int image_dir_look(const struct image_dir *dir, struct image_dir_content *content);

/* Removes the data files from this number on. */
int image_dir_remove_data(const struct image_dir *dir, uint64_t first);
/* Removes a partial image: the unfinished manifest, the data if wanted, and the directory if it was
 * created. */
void image_dir_undo(const struct image_dir *dir, bool data);

/* Returns "data-00000" and so on. */
const char *image_data_name(uint64_t file, char name[IMAGE_NAME_BYTES]);

/* Opens a regular file, never through a link; flags as of open(2). Returns the descriptor. */
int image_dir_open_file(const struct image_dir *dir, const char *name, int flags);
/* Adds a file to the directory's source. */
int image_dir_add(const struct image_dir *dir, const char *name, size_t *file,
                  struct failure *failure);
/* Reads a whole file; the caller frees it. -EFBIG: more than most_bytes. */
int image_dir_read(const struct image_dir *dir, const char *name, size_t most_bytes,
                   uint8_t **bytes, size_t *size_bytes, struct failure *failure);
/* Replaces a file atomically and durably, through NAME.new. */
int image_dir_write(const struct image_dir *dir, const char *name, const void *bytes,
                    size_t size_bytes);
/* A missing file is no error */
int image_dir_remove(const struct image_dir *dir, const char *name);
/* Makes its names durable, and its own name if it was created. */
int image_dir_sync(const struct image_dir *dir);

/* "DIR/NAME: cannot DOING: why"; returns `error`. */
int image_dir_explain(const struct image_dir *dir, const char *name, const char *doing, int error,
                      struct failure *failure);

/*
 * Reads the manifest, or the unfinished one. -ENOENT: there is none. Other errors are in
 * `failure`, and returned as -EINVAL. Call image_manifest_free() in any case.
 */
int image_dir_read_manifest(const struct image_dir *dir, bool unfinished,
                            struct image_manifest *manifest, struct failure *failure);

#endif
