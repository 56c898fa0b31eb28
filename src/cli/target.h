/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target - a store that gets a whole layout: of an image, or of another store
 *
 * For `gmsfs image load` and `gmsfs copy`. The steps: open - (the caller takes the writer's lock) -
 * clear - memory, which the caller fills - entries - (commit) - check. Errors are printed here,
 * once; functions return an exit status unless they say otherwise.
 */
#ifndef GMSFS_CLI_TARGET_H
#define GMSFS_CLI_TARGET_H

#include "gmsfs.h"
#include "image/image.h"
#include "model/pack.h"
#include "mover/staging.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TARGET_FILES_AT_ONCE PACK_CHUNKS_BEFORE_LARGE /* allocations that are made at once */

struct target {
    /* Set by the caller. */
    const char *store;
    const char *from; /* name of the image or the store that has the layout */
    const struct image_manifest *manifest;
    const struct image_layout *layout;
    bool realign;            /* accepts another granularity, and so another hash */
    bool immutable;          /* the layout will be committed so */
    struct staging *staging; /* shared by all targets of a command */

    gmsfs_t *handle;
    int ctl_fd;        /* of the same store, also after a rename; set to -1 by the caller */
    uint64_t *aligned; /* aligned sizes of the allocations in this mount, by rank */
    uint64_t needed_bytes;
    struct gmsfs_mapping *mappings; /* of a GPU's memory, for `staging` alone */
    size_t mapping_count;
    struct staging_memory memory;
    uint8_t hash[DIGEST_BYTES]; /* that the layout will have */
};

/* Opens or makes the store, and refuses all that can be refused without the lock: a granularity, a
 * size, an entry, a hash, a device that is smaller. */
int target_open(struct target *target);
void target_close(struct target *target);

/* Drops the contents; needs the writer's lock, as all that follow. */
int target_clear(struct target *target);

/* Makes and maps all allocations, of memory that is no file (staging_is_file). */
int target_map(struct target *target);
/*
 * Makes `count` allocations from `rank` on, at most TARGET_FILES_AT_ONCE, of memory that is files,
 * and gets their descriptors. 0 or a negative errno, which target_explain_files() prints; *is_made:
 * they were made, and only their descriptors failed. -ECANCELED: a signal.
 */
int target_get_files(struct target *target, size_t rank, size_t count, int *fds, bool *is_made);
int target_explain_files(struct target *target, size_t rank, size_t count, bool is_made, int error);
/* Returns true if allocations of these ranks can be made by one call without delaying each other.
 */
bool target_are_alike(const struct target *target, size_t rank, size_t other);
/* Compares the hash that the made allocations give with the one promised; after all files. */
int target_check_hash(struct target *target);

int target_put_entries(struct target *target);

/* Compares the committed hash, as the reader that a commit with GMSFS_COMMIT_STAY left; then
 * disconnects. */
int target_check_committed(struct target *target);
/* Prints that it was committed; `remark` follows the hash. */
void target_print_committed(const struct target *target, const char *remark);

#endif
