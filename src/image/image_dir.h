/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_dir - the directory of an image: names, files, and who may change it
 *
 * For this folder and the commands that save and load images. Never follows a symbolic link inside
 * of the directory, never opens what is not a regular file, and touches no name but those of an
 * image. The calls return a negative errno, beside the usual ones -ELOOP (a symbolic link) and
 * -ENOTSUP (no regular file); image_dir_explain() puts it into words. Nothing is printed.
 */
#ifndef GMSFS_IMAGE_IMAGE_DIR_H
#define GMSFS_IMAGE_IMAGE_DIR_H

#include "image/image_manifest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMAGE_MANIFEST   "manifest"
#define IMAGE_UNFINISHED "unfinished"
#define IMAGE_LAYOUT     "layout"
#define IMAGE_NEW        ".new" /* behind the name of one that is being written */
#define IMAGE_NAME_BYTES 32u

struct failure;

enum image_dir_use {
    IMAGE_DIR_LOOK, /* while others write, too */
    IMAGE_DIR_READ, /* with others who read */
    IMAGE_DIR_WRITE,
};

struct image_dir {
    const char *path;
    int fd;       /* -1: not open */
    bool created; /* by image_dir_open */
};

/* What lies in a directory. */
struct image_dir_content {
    bool manifest, unfinished;
    bool others;                       /* anything besides */
    char in_the_way[IMAGE_NAME_BYTES]; /* a name of an image's other files; "" */
};

/*
 * Opens, and locks against other uses; -EWOULDBLOCK: there are some. WRITE makes the directory
 * where there is none. image_dir_close() in any case.
 */
int image_dir_open(struct image_dir *dir, const char *path, enum image_dir_use use,
                   struct failure *failure);
void image_dir_close(struct image_dir *dir);

int image_dir_look(const struct image_dir *dir, struct image_dir_content *content);

/* Removes the data files from this number on. */
int image_dir_remove_data(const struct image_dir *dir, uint64_t first);
/* Takes a beginning back: the unfinished manifest, data if there is any, and the directory if it
 * was created. */
void image_dir_undo(const struct image_dir *dir, bool data);

/* "data-00000" and so on. */
const char *image_data_name(uint64_t file, char name[IMAGE_NAME_BYTES]);

/* A regular file, never through a link; flags as of open(2). The descriptor. */
int image_dir_open_file(const struct image_dir *dir, const char *name, int flags);
/* Whole, free(3). -EFBIG: more than most_bytes. */
int image_dir_read(const struct image_dir *dir, const char *name, size_t most_bytes,
                   uint8_t **bytes, size_t *size_bytes);
/* Writes a file anew, through NAME.new, onto the disk and in place: whole or not at all. */
int image_dir_write(const struct image_dir *dir, const char *name, const void *bytes,
                    size_t size_bytes);
int image_dir_remove(const struct image_dir *dir, const char *name); /* none is no error */
/* Its names, onto the disk; and its own where it was created. */
int image_dir_sync(const struct image_dir *dir);

/* "DIR/NAME: cannot DOING: why"; returns `error`. */
int image_dir_explain(const struct image_dir *dir, const char *name, const char *doing, int error,
                      struct failure *failure);

/*
 * Reads the manifest, or the unfinished one. -ENOENT: there is none, and nothing to say. Other
 * errors are in `failure`, and returned as -EINVAL. image_manifest_free() in any case.
 */
int image_dir_read_manifest(const struct image_dir *dir, bool unfinished,
                            struct image_manifest *manifest, struct failure *failure);

#endif
