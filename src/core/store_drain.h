/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_drain - a store that lets nobody in, and asks who holds it to leave
 *
 * Included by core.h, for all who include that. Nothing is discarded.
 */
#ifndef GMSFS_CORE_STORE_DRAIN_H
#define GMSFS_CORE_STORE_DRAIN_H

#include "core/event.h"

struct core_drain {
    bool is_on;                     /* false: the rest is zero */
    uint64_t id;                    /* the event of its begin: never used again */
    uint64_t since_ms, deadline_ms; /* wall clock; deadline 0: none was said */
    struct core_process by;
    uint32_t uid;
};

#endif
