/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move - where a store's bytes are, and having them moved
 *
 * For front ends. An order only begins a move; who wants to wait for it looks again
 * (service_observer.on_place). A promotion for somebody who waits in the lock begins by itself.
 */
#ifndef GMSFS_SERVICE_MOVE_H
#define GMSFS_SERVICE_MOVE_H

#include "service/service.h"

enum service_move_act {
    SERVICE_MOVE_TO = 0, /* the store's place is to be there */
    SERVICE_MOVE_COPY,   /* and a spare there */
    SERVICE_MOVE_DROP,   /* and no spare there */
    SERVICE_MOVE_CANCEL, /* what is under way is to end */
};

struct service_move_order {
    enum service_move_act act;
    enum core_place place;
    bool is_drained; /* TO: only while the store is, by the drain that has this token */
    uint8_t token[16];
};

/* By an open file of the store, whose user has to own it or to be root. 0: it is so, or has begun.
 * -EPERM; -ECANCELED: it is not drained by that drain; -EBUSY: held, a writer is there, or another
 * move is under way, or (cancel) waited for or healing; -ENOMEM: there is no such tier, or no room
 * in it; -EIO: suspect bytes are not copied; -ENODATA: no copy, or no move; -EAGAIN: others' turn
 * for the device's memory comes first; -EINVAL: scratch is not copied; -ENODEV, -ESTALE */
int service_order_move(struct service *s, uint64_t file, const struct service_move_order *order);

/* All that is committed are chunks of graph pools. What is in them is worth no copy: they leave the
 * device by being given up. */
bool service_is_scratch(const struct core_store *store);

struct service_moving {
    enum core_place to;
    bool spare;
    uint64_t done_bytes, all_bytes;
};

/* False: nothing of this store is under way. */
bool service_get_moving(const struct service *s, const struct core_store *store,
                        struct service_moving *moving);

#endif
