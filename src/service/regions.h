/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions - named shared memory of clients: registering, unregistering, referring to it
 *
 * For front ends. A region belongs to its owner: the owner and root may see it, and other users do
 * not learn whether it exists. An open file of it (service_open, by its id) may hold a reference,
 * and then gets its descriptor, or for an allocation the bytes as well (service_read, from the
 * region's beginning).
 */
#ifndef GMSFS_SERVICE_REGIONS_H
#define GMSFS_SERVICE_REGIONS_H

#include "service/service.h"

/* The key of a client's object never begins with this, slashes aside. */
#define SERVICE_REGION_RESERVED_PREFIX "triton_python_backend_shm_region_"

/* Why a region was not registered, where the errno leaves more than one cause; as in the ABI. */
enum service_region_reason {
    SERVICE_REGION_FINE,
    SERVICE_REGION_BAD_NAME,     /* -EINVAL, -ENAMETOOLONG */
    SERVICE_REGION_EXISTS,       /* -EEXIST */
    SERVICE_REGION_BAD_KEY,      /* -EINVAL, -ENAMETOOLONG */
    SERVICE_REGION_RESERVED_KEY, /* -EINVAL */
    SERVICE_REGION_NO_OBJECT,    /* -ENOENT, -EACCES: no such store or allocation */
    SERVICE_REGION_BAD_OBJECT,   /* -EINVAL */
    SERVICE_REGION_BAD_RANGE,    /* -EINVAL */
    SERVICE_REGION_NO_SIZE,      /* -EINVAL */
    SERVICE_REGION_BAD_HANDLE,   /* -EINVAL */
    SERVICE_REGION_UNCOMMITTED,  /* -EAGAIN, -ENODATA */
    SERVICE_REGION_NOT_OWNER,    /* -EPERM */
    SERVICE_REGION_BOUND,        /* -EDQUOT, -ENOSPC, -ENFILE */
    SERVICE_REGION_DRAINED,      /* -ENODEV */
    SERVICE_REGION_UNKNOWN,      /* -ENOENT: not from registering */
};

struct service_region_wish {
    uint32_t kind; /* enum region_kind */
    const char *name, *key;
    size_t name_bytes, key_bytes;
    uint64_t offset, byte_size;
    int64_t device_id;
    const uint8_t *raw_handle; /* CUDA: REGION_HANDLE_BYTES bytes */
    size_t handle_bytes;
    int fd; /* of the object; the service owns it from now on, in any case. -1: an allocation, or
               CUDA */
    const struct service_caller *owner; /* the owner; a store is read with its rights */
};

/* Checks whether this user may act for that owner. 0, -EPERM */
int service_check_region_owner(uint32_t uid, uint32_t owner);
/* Checks whether this user may open a region, or read or change its owner's directory. 0,
 * -EACCES */
int service_check_region_right(uint32_t uid, uint32_t owner);

/* Registers a region. `wish` must live as long as the call; `reason` as long as the request. Errors
 * as enum service_region_reason says, and -ENOMEM. */
int service_region_register(struct service *s, const struct service_peer *peer,
                            const struct service_region_wish *wish,
                            enum service_region_reason *reason, struct service_request *request);
/* Unregisters a region of this owner and kind (or REGION_ANY); name NULL: all. count: how many.
 * -EPERM, -ENOENT */
int service_region_unregister(struct service *s, const struct service_peer *peer, uint32_t owner,
                              uint32_t kind, const char *name, size_t name_bytes, uint64_t *count);

/* Has the file, which is an open region, hold a reference from now on; ticket: for its descriptor,
 * zeros if it has none. uid: the user that may redeem it. -EBADF, -ESTALE, and a ticket's errors,
 * after which the file holds nothing. */
int service_region_hold(struct service *s, uint64_t file, uint32_t uid, uint8_t ticket[16]);
/* Ends the reference. -ENOLCK, -ESTALE */
int service_region_release(struct service *s, uint64_t file);

#endif
