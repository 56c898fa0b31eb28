/* SPDX-License-Identifier: Apache-2.0 */
/*
 * views - what an open file may see of its store
 * For front ends. Nothing here changes anything. Each view asks whether the file may read (-EBADF)
 * and whether there is something to be seen (-ESTALE). Pointers are valid until the next record.
 *
 * The device is everybody's to look at: service_measure, then service_get_device.
 */
#ifndef GMSFS_SERVICE_VIEWS_H
#define GMSFS_SERVICE_VIEWS_H

#include "service/service.h"
#include "vmm/room.h"

struct service_info {
    const struct core_store *store;
    const struct core_session *session; /* of this file; NULL: none */
    const struct layout *seen;          /* in its own RW session the working copy, else what is
                                           committed; NULL: nothing */
    enum lock_state state;
    uint64_t readers, writers_waiting;
    const struct blob *layout; /* as `layout` and `layout_hash` show it now; NULL: they are empty */
};

int service_view_info(const struct service *s, uint64_t file, struct service_info *info);
/* As the directory shows it, to everybody. `name` is the same only where all that this layout told
 * is the same. */
int service_view_layout(const struct service *s, uint64_t file, const struct layout **layout,
                        uint8_t name[16]);
/* -ENOENT; a key that none can have: -EINVAL, -ENAMETOOLONG */
int service_view_entry(const struct service *s, uint64_t file, const void *key, size_t key_bytes,
                       const struct layout **layout, const struct layout_entry **entry);

/* What an ACQUIRE is told of the session that the file now has. -ECANCELED: it was revoked in the
 * same moment */
struct service_acquired {
    const struct core_store *store;
    const struct core_session *session;
    uint8_t hash[16]; /* zeros while it writes, and where the file may not read */
};

int service_view_acquired(const struct service *s, uint64_t file,
                          struct service_acquired *acquired);

/* Of a store, as the files `layout` and `layout_hash` show it; NULL: they are empty. */
struct blob *service_get_shown_layout(const struct service *s, const struct core_store *store);
/* Grows with each record: while it is the same, nothing that stores, sessions and regions show has
 * changed. */
uint64_t service_count_changes(const struct service *s);
uint64_t service_count_readers(const struct core_store *store);

/* Whose waiter holds off who asks for memory of the device for this store, or waits for it already;
 * NULL: nobody's. */
const struct core_store *service_get_ahead(const struct service *s, const struct core_store *store);

/* Has the device asked what others hold of it, where that can be asked, and answers when it is
 * known, or after a moment all the same. -ENOMEM */
int service_measure(struct service *s, struct service_request *request);

/* The daemon's own memory, as of the last look; looks where it never did. Zeros: it cannot tell. */
struct room_view service_get_room(const struct service *s);

#endif
