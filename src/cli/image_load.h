/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_load - shared by the parts of `gmsfs image load`
 *
 * image_load.c does the steps; image_load_bytes.c has the long one (allocating, and copying the
 * bytes) and the check of the layout's hash.
 */
#ifndef GMSFS_CLI_IMAGE_LOAD_H
#define GMSFS_CLI_IMAGE_LOAD_H

#include "cli/image_commands.h"

struct image_load {
    const struct image_request *request;
    struct image image;
    gmsfs_t *handle;
    int ctl_fd;        /* of the same store, also after a rename */
    bool is_checked;   /* true if all sums were right once */
    uint64_t *aligned; /* aligned sizes of the allocations in this mount, by rank */
    uint64_t needed_bytes;
    struct gmsfs_mapping *mappings; /* for `staging` alone */
    size_t mapping_count;
    struct staging *staging;
    struct staging_memory memory;
    uint8_t hash[DIGEST_BYTES]; /* that the layout will have */
    uint64_t generation;
    uint64_t copied_ms;
};

/* Checks the layout's hash: without --realign it has to equal the saved one. */
int image_load_check_hash(struct image_load *load, const uint64_t *aligned);
/* Allocates the image's allocations and fills them, comparing each sum. Needs the writer's lock. */
int image_load_bytes(struct image_load *load);

#endif
