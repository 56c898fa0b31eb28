/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_entries - puts the entries of an image into a store, through its own `ctl`
 *
 * For `gmsfs image load`. The library takes keys that are C strings; a key may contain a NUL, and a
 * layout has its entries in the form that `ctl` takes. Nothing is printed.
 */
#ifndef GMSFS_IMAGE_IMAGE_ENTRIES_H
#define GMSFS_IMAGE_IMAGE_ENTRIES_H

#include "gmsfs.h"
#include "image/image_layout.h"

/* Opens `ctl` of a store: a descriptor, or a negative errno. The descriptor follows a renamed
 * store. */
int image_entries_open(const char *store);
void image_entries_close(int ctl_fd); /* -1: does nothing */

/*
 * Joins the writer's session of `handle`, whose allocations by rank are those of the layout, and
 * puts all entries. -EINTR: is_stopped(), asked between two system calls, returned non-zero; other
 * errors are the store's, then *culprit is the index of the failed entry, or SIZE_MAX. The session
 * stays open until both `handle` and `ctl_fd` are closed; commit or abort it through `handle`.
 */
int image_entries_put(int ctl_fd, gmsfs_t *handle, const struct image_layout *layout,
                      int (*is_stopped)(void), size_t *culprit);

#endif
