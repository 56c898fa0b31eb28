/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_entries - the entries of an image into a store, through a `ctl` of its own
 *
 * For `gmsfs image load`. The library puts entries whose keys are C strings; a key may hold a NUL,
 * and a layout has its entries in the very form that `ctl` takes. Nothing is printed.
 */
#ifndef GMSFS_IMAGE_IMAGE_ENTRIES_H
#define GMSFS_IMAGE_IMAGE_ENTRIES_H

#include "gmsfs.h"
#include "image/image_layout.h"

/* Opens `ctl` of a store: a descriptor, or a negative errno. It follows the store, not its name. */
int image_entries_open(const char *store);
void image_entries_close(int ctl_fd); /* of -1: nothing */

/*
 * Joins the writer's session of `handle`, whose allocations by rank are those of the layout, and
 * puts all entries. -EINTR: is_stopped() said something else than 0, which is asked between two
 * system calls; other errors are the store's, then *culprit is the index of the entry at fault, or
 * SIZE_MAX. The session ends with `handle` and `ctl_fd` alike: what ends it must be called on
 * `handle`.
 */
int image_entries_put(int ctl_fd, gmsfs_t *handle, const struct image_layout *layout,
                      int (*is_stopped)(void), size_t *culprit);

#endif
