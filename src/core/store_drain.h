/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_drain - a store that lets nobody in, and asks who holds it to leave
 *
 * Included by core.h, for all who include that. Nothing is discarded. A drain, of a store or of the
 * mount, is its drainer's: whoever shows the token again, after a connection broke for which he can
 * do nothing, is him.
 */
#ifndef GMSFS_CORE_STORE_DRAIN_H
#define GMSFS_CORE_STORE_DRAIN_H

#include "core/event.h"

struct core_drainer {
    uint8_t token[16]; /* random; zero: nobody can come back for it */
    struct core_process process;
    uint32_t uid;
};

struct core_drain {
    bool is_on;                     /* false: the rest is zero */
    uint64_t id;                    /* the event of its begin: never used again */
    uint64_t since_ms, deadline_ms; /* wall clock; deadline 0: none was said */
    struct core_drainer by;
};

#endif
