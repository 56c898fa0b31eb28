/* SPDX-License-Identifier: Apache-2.0 */
/*
 * views - the parts of its store that an open file may see
 *
 * For front ends. Nothing here changes anything. Each view checks whether the file may read
 * (-EBADF) and whether there is something to see (-ESTALE). Pointers are valid until the next
 * record.
 *
 * Everybody may look at the device: service_measure, then service_get_device.
 */
#ifndef GMSFS_SERVICE_VIEWS_H
#define GMSFS_SERVICE_VIEWS_H

#include "service/service.h"
#include "vmm/room.h"

struct service_info {
    const struct core_store *store;
    const struct core_session *session; /* of this file; NULL: none */
    const struct layout
        *seen; /* in its own RW session the working copy, else the committed layout; NULL: none */
    enum lock_state state;
    uint64_t readers, writers_waiting;
    const struct blob *layout; /* for `layout` and `layout_hash`; NULL: they are empty */
};

int service_view_info(const struct service *s, uint64_t file, struct service_info *info);
/* Returns the layout that the directory shows to everybody. Two views with the same `name` have the
 * same layout. */
int service_view_layout(const struct service *s, uint64_t file, const struct layout **layout,
                        uint8_t name[16]);
/* -ENOENT; an impossible key: -EINVAL, -ENAMETOOLONG */
int service_view_entry(const struct service *s, uint64_t file, const void *key, size_t key_bytes,
                       const struct layout **layout, const struct layout_entry **entry);

/* The answer of an ACQUIRE about the session that the file now has. -ECANCELED: the session was
 * revoked in the same moment */
struct service_acquired {
    const struct core_store *store;
    const struct core_session *session;
    uint8_t hash[16]; /* zeros while it writes, and if the file may not read */
};

int service_view_acquired(const struct service *s, uint64_t file,
                          struct service_acquired *acquired);

/* Returns the layout that the files `layout` and `layout_hash` show; NULL: they are empty. */
struct blob *service_get_shown_layout(const struct core_store *store);
/* Returns a number that grows with each record: while it is the same, the texts of stores, sessions
 * and regions are the same. */
uint64_t service_count_changes(const struct service *s);
uint64_t service_count_readers(const struct core_store *store);

/* Returns why clients cannot map the memory of an immutable layout; NULL if they can. */
const char *service_get_unmappable_reason(const struct service *s, const struct core_store *store);

/* Returns the store with the waiter that holds off this store's requests for device memory; NULL if
 * there is none. */
const struct core_store *service_get_ahead(const struct service *s, const struct core_store *store);

/* Has the device measure the bytes of other programs, if it can, and answers after that, or after a
 * moment without it. -ENOMEM */
int service_measure(struct service *s, struct service_request *request);

/* Returns the daemon's own memory, as of the last look; looks if there was none. Zeros: it cannot
 * tell. */
struct room_view service_get_room(const struct service *s);

#endif
