/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grants - how often each store was granted of late
 *
 * By the mount's own counters, of which three texts are kept: the present one, and those with which
 * the window and its second half began. Pure.
 */
#ifndef GMSFS_GOVERNOR_GRANTS_H
#define GMSFS_GOVERNOR_GRANTS_H

#include <stddef.h>
#include <stdint.h>

#define GOVERNOR_WINDOW_MS 300000u /* grants are counted for so long, at least for half of it */

struct governor_counts { /* grants of stores, by name, sorted */
    uint64_t since_ms;   /* 0: from the mount's beginning */
    struct governor_count {
        char *store;
        uint64_t grants;
    } * list;
    size_t count;
};

struct governor_grants {
    struct governor_counts before, later, now; /* zeros: nothing was taken yet */
};

/* The mount's `metrics`, as it says now; by a clock that may jump. 0 or -ENOMEM. */
int governor_grants_take(struct governor_grants *grants, const char *text, size_t bytes,
                         uint64_t now_ms);

/* Within the window, which is half to all of GOVERNOR_WINDOW_MS long; at first, since the mount. */
uint64_t governor_grants_count(const struct governor_grants *grants, const char *store);

void governor_grants_free(struct governor_grants *grants);

#endif
