/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drains - regions that were unregistered while requests use them, and how long the requests may
 *
 * For the opener. The time starts when the front end learns of it: a client unregistered the
 * region, or a request names a region that was removed in the tree.
 */
#ifndef GMSFS_TRITON_DRAINS_H
#define GMSFS_TRITON_DRAINS_H

#include "base/idvec.h"
#include "triton/registry.h"

#include <stdbool.h>

#define DRAINS_FOREVER UINT64_MAX

struct drains {
    uint64_t limit_ms; /* DRAINS_FOREVER: no limit */
    struct idvec items;
};

void drains_free(struct drains *drains);
/* Starts the time of the draining regions in the list; without memory for one, its time starts at a
 * later call. */
void drains_note(struct drains *drains, const struct gmsfs_region_info *list, size_t count,
                 uint64_t now_ms);
/* Returns true if the region's time is over: no request may use it any more. */
bool drains_is_over(const struct drains *drains, const struct gmsfs_region_info *info);
/* Returns the milliseconds until the next region's time is over; -1 if none is draining. */
int drains_get_wait_ms(const struct drains *drains, uint64_t now_ms);
/* Takes the next region whose time is over, each once; false if there is none. */
bool drains_take_over(struct drains *drains, uint64_t now_ms, uint64_t *region);
/* Forgets the regions that the mount no longer lists. */
void drains_look(struct drains *drains, struct registry *registry);

#endif
