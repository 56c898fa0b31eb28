/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image - an image of a store, in its directory
 *
 * The commands that save, load and list images include the headers named here, and no others of
 * this folder. gmsfs-image(5) describes the format; all bytes read are treated as hostile.
 *
 *   image_manifest  the parts of an image, and the text that lists them (pure)
 *   image_layout    the canonical layout in an image, opened for reading (pure)
 *   image_dir       its directory: names, files, and locks
 *   image_entries   puts its entries into a store
 *   image_pieces    a store on other nodes, as an image (pure)
 *
 * This header opens an image, and checks or loads all its bytes. The commands lock and clear
 * stores. Prints nothing: functions return 0 or a negative errno, and a `struct failure` says why.
 */
#ifndef GMSFS_IMAGE_IMAGE_H
#define GMSFS_IMAGE_IMAGE_H

#include "image/image_dir.h"
#include "image/image_entries.h"
#include "image/image_layout.h"
#include "image/image_manifest.h"
#include "image/image_pieces.h"
#include "meta/pieces.h" /* for the commands, too */
#include "source/source.h"

#include <stdbool.h>
#include <stdint.h>

#define IMAGE_PIECE_BYTES        (16u << 20)
#define IMAGE_DEFAULT_FILE_BYTES (4ull << 30)
#define IMAGE_STEP_BYTES         (1u << 20) /* read, summed and written at a time */

struct staging;
struct staging_memory;
struct supply;

/* An image opened for reading. */
struct image {
    struct image_dir dir;
    struct image_manifest manifest;
    struct image_layout layout;
    bool unfinished;
    size_t *files; /* number of each data file in the source; SIZE_MAX: not added yet */
};

/*
 * Checks the manifest, `layout` against its hash, both against each other, and that the data files
 * exist with their sizes. Call image_close() in any case.
 */
int image_open(struct image *image, const char *path, struct failure *failure);
/* As image_open, but accepts an unfinished image and missing files: *damage is then the error of
 * the first of them, which `failure` describes. */
int image_open_any(struct image *image, const char *path, int *damage, struct failure *failure);
void image_close(struct image *image);
/* Makes the id of the contents from the sums of the manifest. -ENODATA: they do not give one: the
 * image is unfinished, its pieces have another size than a store's, or it keeps bytes behind a
 * size. -ENOMEM */
int image_get_contents_id(const struct image *image, uint8_t id[DIGEST_BYTES]);

/* Finds a data file in the source, and adds it first if need be. */
int image_find_file(const struct image *image, size_t index, size_t *file, struct failure *failure);

/* Reads all pieces, compares their sums, and puts the bytes into their sinks. */
struct image_check {
    const struct image *image;
    const char *store; /* name of the store that gets the bytes; NULL: none */
    void *const *into; /* into[rank] gets the bytes; NULL: not mapped */
    /* Its files of host memory, by rank, get the bytes; or NULL */
    struct supply *supply;
    struct staging *staging;             /* NULL without a store */
    const struct staging_memory *memory; /* of the store */
    uint64_t threads;                    /* 0: as many as are best */
    enum direct_use direct;
    uint64_t taken_bytes; /* memory that the store will take from the page cache */
    /* Called several times a second, on any thread, never twice at the same time; may be NULL. A
     * negative errno stops all, and image_check returns it. */
    int (*tick)(void *context, uint64_t read_bytes);
    void *context;
};

/* -ECANCELED: from tick(), or because the supply's memory was refused, which the supply reports. */
int image_check(const struct image_check *check, struct failure *failure);

#endif
