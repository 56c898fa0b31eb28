/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drains - regions that were unregistered while requests use them, and how long they may
 *
 * For the opener. Counts from when the front end learns of it: a client unregistered it, or a
 * request wants one that was removed in the tree.
 */
#ifndef GMSFS_TRITON_DRAINS_H
#define GMSFS_TRITON_DRAINS_H

#include "base/idvec.h"
#include "triton/registry.h"

#include <stdbool.h>

#define DRAINS_FOREVER UINT64_MAX

struct drains {
    uint64_t limit_ms; /* DRAINS_FOREVER: as long as they are used */
    struct idvec items;
};

void drains_free(struct drains *drains);
/* Looks at these; where memory lacks one of them may take longer. */
void drains_note(struct drains *drains, const struct gmsfs_region_info *list, size_t count,
                 uint64_t now_ms);
/* Its time is over: no request may have it any more. */
bool drains_is_over(const struct drains *drains, const struct gmsfs_region_info *info);
/* In how many milliseconds the next one's time is over; -1: of none. */
int drains_get_wait_ms(const struct drains *drains, uint64_t now_ms);
/* The next one whose time is over now, once each; false: there is none. */
bool drains_take_over(struct drains *drains, uint64_t now_ms, uint64_t *region);
/* Forgets those that the mount knows no more. */
void drains_look(struct drains *drains, struct registry *registry);

#endif
