/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_load - shared by the parts of `gmsfs image load`
 *
 * image_load.c does the steps; image_load_bytes.c has the long one: allocating, and copying the
 * bytes.
 */
#ifndef GMSFS_CLI_IMAGE_LOAD_H
#define GMSFS_CLI_IMAGE_LOAD_H

#include "cli/image_commands.h"
#include "cli/target.h"

struct image_load {
    const struct image_request *request;
    struct image image;
    const uint8_t *contents; /* id of the image's contents, which may be in the store already: of a
                              * pull; NULL: the store is replaced in any case */
    struct target target;    /* the store */
    bool is_checked;         /* true if all sums were right once */
    uint64_t generation;
    uint64_t copied_ms;
};

/* Loads the image, which is open; signals are installed. Returns an exit status. */
int image_load_opened(struct image_load *load);
/* Sets the target to the request's store, before target_open(). */
void image_load_set_target(struct image_load *load, struct staging *staging);
/* Makes the image's allocations and fills them, comparing each sum. Needs the writer's lock. */
int image_load_bytes(struct image_load *load);

#endif
