/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grants - how often each store was granted recently
 *
 * Uses the mount's own counters. Three sets are kept: the current one, and those from the start of
 * the window and of its second half. Pure.
 */
#ifndef GMSFS_GOVERNOR_GRANTS_H
#define GMSFS_GOVERNOR_GRANTS_H

#include <stddef.h>
#include <stdint.h>

#define GOVERNOR_WINDOW_MS 300000u /* length of the window; at least half of it is counted */

struct governor_counts { /* grants by store name, sorted */
    uint64_t since_ms;   /* 0: since the mount started */
    struct governor_count {
        char *store;
        uint64_t grants;
    } * list;
    size_t count;
};

struct governor_grants {
    struct governor_counts before, later, now; /* zeros: not read yet */
};

/* Reads the mount's `metrics`; the clock may jump. 0 or -ENOMEM. */
int governor_grants_take(struct governor_grants *grants, const char *text, size_t bytes,
                         uint64_t now_ms);

/* Returns the grants in the window, half to all of GOVERNOR_WINDOW_MS long; at first, since the
 * mount started. */
uint64_t governor_grants_count(const struct governor_grants *grants, const char *store);

void governor_grants_free(struct governor_grants *grants);

#endif
