/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_drain - the drain of one store: no new sessions, and holders are asked to leave
 *
 * core.h includes this. A drain discards nothing. A drain of a store or of the mount belongs to its
 * drainer: a client that shows the token again, after its connection broke, is that drainer.
 */
#ifndef GMSFS_CORE_STORE_DRAIN_H
#define GMSFS_CORE_STORE_DRAIN_H

#include "core/event.h"

struct core_drainer {
    uint8_t token[16]; /* random; zero: no client can come back for it */
    struct core_process process;
    uint32_t uid;
};

struct core_drain {
    bool is_on;                     /* false: the rest is zero */
    uint64_t id;                    /* number of the event of its start: never used twice */
    uint64_t since_ms, deadline_ms; /* wall clock; deadline 0 if none */
    struct core_drainer by;
};

#endif
