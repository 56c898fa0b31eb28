/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_load - what the parts of `gmsfs image load` share
 *
 * image_load.c goes through its steps; image_load_bytes.c has the one that takes long, memory and
 * the bytes in it, and what the layout has to be.
 */
#ifndef GMSFS_CLI_IMAGE_LOAD_H
#define GMSFS_CLI_IMAGE_LOAD_H

#include "cli/image_commands.h"

struct image_load {
    const struct image_request *request;
    struct image image;
    gmsfs_t *handle;
    int ctl_fd;        /* of the same store, whatever it is called later */
    bool is_checked;   /* all sums were right once */
    uint64_t *aligned; /* what the allocations cost in this mount, by rank */
    uint64_t needed_bytes;
    struct gmsfs_mapping *mappings; /* for `staging` alone */
    size_t mapping_count;
    struct staging *staging;
    struct staging_memory memory;
    uint8_t hash[IMAGE_DIGEST_BYTES]; /* what the layout will have */
    uint64_t generation;
    uint64_t copied_ms;
};

/* Without --realign it has to be the very hash that was saved. */
int image_load_check_hash(struct image_load *load, const uint64_t *aligned);
/* Allocates what the image has and fills it, each sum compared; the writer's lock is held. */
int image_load_bytes(struct image_load *load);

#endif
