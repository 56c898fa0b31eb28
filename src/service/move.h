/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move - which tier a store's bytes are in, and orders to move them
 *
 * For front ends. An order only begins a move; the front end learns of its end from
 * service_observer.on_place. A store that a client waits for in the lock comes to the device by
 * itself.
 */
#ifndef GMSFS_SERVICE_MOVE_H
#define GMSFS_SERVICE_MOVE_H

#include "service/service.h"

enum service_move_act {
    SERVICE_MOVE_TO = 0, /* moves the store to this place */
    SERVICE_MOVE_COPY,   /* makes a spare copy in this place */
    SERVICE_MOVE_DROP,   /* drops the spare copy in this place */
    SERVICE_MOVE_CANCEL, /* ends the move under way */
};

struct service_move_order {
    enum service_move_act act;
    enum core_place place;
    bool is_drained; /* TO: only while the drain with this token is on */
    uint8_t token[16];
};

/* Orders a move by an open file of the store; the file's user has to be the store's owner or root.
 * 0: the move has begun, or there is nothing to do. -EPERM; -ECANCELED: the drain with that token
 * is over; -EBUSY: the store is held, being written or being moved, or (cancel) the move heals it
 * or a client waits for it; -ENOMEM: there is no such tier, or no room in it; -EIO: suspect bytes
 * are not copied; -ENODATA: no copy, or no move; -EAGAIN: other waiters are ahead in the queue for
 * device memory; -EINVAL: scratch is not copied; -ENODEV, -ESTALE */
int service_order_move(struct service *s, uint64_t file, const struct service_move_order *order);

/* Returns true if the committed layout has chunks of graph pools alone. Their contents are not
 * worth a copy: the store leaves the device by giving them up. */
bool service_is_scratch(const struct core_store *store);

struct service_moving {
    enum core_place to;
    bool spare;
    uint64_t done_bytes, all_bytes;
};

/* Returns false if no move of this store is under way. */
bool service_get_moving(const struct service *s, const struct core_store *store,
                        struct service_moving *moving);

#endif
