/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image - the parts of `gmsfs image`
 *
 * For cmd_image.c and image_*.c. A save goes: lock and map - plan - an unfinished manifest - data,
 * noted piece by piece - the finished manifest. A load goes: manifest and layout - check - lock -
 * (where nothing could be rolled back to: check all bytes) - clear and allocate - copy and check -
 * entries - commit. Each step prints its error and returns an exit status.
 */
#ifndef GMSFS_CLI_IMAGE_H
#define GMSFS_CLI_IMAGE_H

#include "cli/cli.h"
#include "cli/direct.h"
#include "cli/image_dir.h"
#include "cli/image_layout.h"
#include "cli/image_manifest.h"
#include "cli/progress.h"
#include "cli/staging.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define IMAGE_PIECE_BYTES        (64u << 20)
#define IMAGE_DEFAULT_FILE_BYTES (4ull << 30)
#define IMAGE_STEP_BYTES         (1u << 20) /* read, summed and written at a time */

/* As asked for. */
struct image_request {
    const char *store;
    const char *path; /* DIR */
    uint64_t timeout_ms;
    uint64_t threads;    /* 0: as many as are best */
    uint64_t file_bytes; /* 0: not said */
    enum direct_use direct;
    bool quiet;
    bool force, resume; /* save */
    bool realign;       /* load */
    bool as_json, entries, check;
    uint64_t first; /* ls: ranks or entries from here on */
    uint64_t most;  /* ls: so many of them */
};

/* An image that was opened for reading. */
struct image {
    struct image_dir dir;
    struct image_manifest manifest;
    struct image_layout layout;
    bool unfinished;
};

/*
 * image_open.c: the manifest, `layout` against its hash, both against each other, and that the data
 * files are there in their sizes. CLI_OK or CLI_FAILURE; image_close() in any case.
 */
int image_open(struct image *image, const char *path);
/* The same, but an unfinished image will do, and files may be missing: the first error about them
 * is printed, and *status becomes CLI_FAILURE. */
int image_open_any(struct image *image, const char *path, int *status);
void image_close(struct image *image);

/* image_check.c: reads all pieces and compares their sums; into[rank], where not NULL, gets the
 * bytes. CLI_OK, CLI_FAILURE, or 128 + the signal noted. */
struct image_check {
    const struct image *image;
    const char *verb; /* "checking" */
    void *const *into;
    struct staging *staging;             /* NULL where `into` is */
    const struct staging_memory *memory; /* of `into` */
    uint64_t threads;                    /* 0: as many as are best */
    enum direct_use direct;
    uint64_t taken_bytes; /* of memory that `into` is about to take from the page cache */
    bool quiet;
    uint64_t passed_ms; /* out */
};

int image_check(struct image_check *check);

int image_save(const struct image_request *request);
int image_load(const struct image_request *request);
int image_ls(const struct image_request *request);

#endif
