/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image - an image of a store, as it lies in its directory
 *
 * What this folder offers to the commands that save, load and list images; the headers that are
 * named here and no others. The format is that of gmsfs-image(5); everything of it that is read is
 * taken as foreign.
 *
 *   image_manifest  what an image consists of, and the text that says so (pure)
 *   image_layout    the canonical layout that it holds, looked into (pure)
 *   image_dir       its directory: names, files, and who may change it
 *   image_entries   its entries into a store
 *
 * and, here, opening one and checking or taking all its bytes. Which stores are locked, and what
 * they are cleared of, is the commands' business. Prints nothing: functions return 0 or a negative
 * errno, and a `struct failure` says why.
 */
#ifndef GMSFS_IMAGE_IMAGE_H
#define GMSFS_IMAGE_IMAGE_H

#include "image/image_dir.h"
#include "image/image_entries.h"
#include "image/image_layout.h"
#include "image/image_manifest.h"
#include "mover/direct.h"

#include <stdbool.h>
#include <stdint.h>

#define IMAGE_PIECE_BYTES        (16u << 20)
#define IMAGE_DEFAULT_FILE_BYTES (4ull << 30)
#define IMAGE_STEP_BYTES         (1u << 20) /* read, summed and written at a time */

struct failure;
struct staging;
struct staging_memory;
struct supply;

/* An image that was opened for reading. */
struct image {
    struct image_dir dir;
    struct image_manifest manifest;
    struct image_layout layout;
    bool unfinished;
};

/*
 * The manifest, `layout` against its hash, both against each other, and that the data files are
 * there in their sizes. image_close() in any case.
 */
int image_open(struct image *image, const char *path, struct failure *failure);
/* The same, but an unfinished image will do, and files may be missing: then *damage is the error
 * about the first of them, which `failure` tells. */
int image_open_any(struct image *image, const char *path, int *damage, struct failure *failure);
void image_close(struct image *image);

/* Reads all pieces, compares their sums, and puts them where they are wanted. */
struct image_check {
    const struct image *image;
    const char *store;                   /* that gets the bytes, to be named; NULL: none does */
    void *const *into;                   /* into[rank] gets the bytes; NULL: nothing mapped does */
    struct supply *supply;               /* files of host memory get them, by rank; or NULL */
    struct staging *staging;             /* NULL where there is no store */
    const struct staging_memory *memory; /* of the store */
    uint64_t threads;                    /* 0: as many as are best */
    enum direct_use direct;
    uint64_t taken_bytes; /* of memory that the store is about to take from the page cache */
    /* Several times a second, on any thread, but not two at a time; may be NULL. A negative errno
     * stops all, and is what image_check returns. */
    int (*tick)(void *context, uint64_t read_bytes);
    void *context;
};

/* -ECANCELED: by tick(), or because the supply's memory was refused, which the supply tells. */
int image_check(const struct image_check *check, struct failure *failure);

#endif
