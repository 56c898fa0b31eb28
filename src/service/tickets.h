/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tickets - descriptors of memory: what EXPORT makes, what is redeemed for it
 *
 * For front ends. A file exports what it may read; writable, if it may write as well. Whoever has
 * the ticket and is the user that asked for it may redeem it, once, within seconds.
 */
#ifndef GMSFS_SERVICE_TICKETS_H
#define GMSFS_SERVICE_TICKETS_H

#include "service/service.h"

struct service_export {
    uint64_t first, count; /* ranks; count 0: all from first */
    bool by_slot;          /* of the one allocation whose slot is `first`; -ENOENT */
    bool writable;
    uint32_t uid;         /* who may redeem it */
    uint8_t ticket[16];   /* out */
    uint64_t total_bytes; /* out */
    uint64_t generation;  /* out */
};

/* A spool behind it is ended first. `export` is filled before done. -EBADF: the file may not read,
 * or (writable) not write */
int service_export(struct service *s, uint64_t file, struct service_export *export,
                   struct service_request *request);

struct service_redeemed { /* a ticket in use */
    uint64_t session;
    uint32_t uid; /* whose */
    uint64_t first, count;
    uint64_t serial; /* one allocation, whatever its rank by now; 0: ranks */
    uint64_t region; /* its object, and no session; 0: memory of a store */
    bool writable;
};

/* By the process that is to have the descriptors: before it can have a writable one, it is recorded
 * as one that writes, until it exits. Beside the ticket's own errors those of such a record:
 * -ENOSPC, -EDQUOT, -ENFILE, and -EOPNOTSUPP where bytes alone are written and the process is not
 * visible */
int service_redeem(struct service *s, const uint8_t ticket[16], const struct service_peer *peer,
                   struct service_redeemed *out);

struct service_descriptor {
    uint64_t rank, slot, size_bytes, aligned_bytes;
    const char *tag;        /* the layout's, until that changes; NULL: it has none, a region */
    enum vmm_memory memory; /* what it is to a client */
    int fd;                 /* to be sent */
    bool is_own;            /* the caller's, to be closed once it is sent; else the service's */
};

/* The descriptor of one rank of a ticket in use. Users share no open file description, so that a
 * position, a flag or a lock of one is not another's. -ESTALE when its session is over; -EMFILE,
 * -ENFILE, -ENOMEM; -EBUSY: somebody holds a lease on the memory's file. */
int service_get_descriptor(struct service *s, const struct service_redeemed *ticket, uint64_t rank,
                           struct service_descriptor *descriptor);

/* The same at once and without a ticket, for a front end that hands descriptors out itself: of this
 * slot of the session that the file (a `ctl`) has, for the processes of which each may get it.
 * Writable if the session writes. Errors as service_export and service_redeem; -ENOENT: no such
 * slot; -EBUSY: a spool */
int service_lend_descriptor(struct service *s, uint64_t file, uint64_t slot,
                            const struct core_process *processes, size_t count,
                            struct service_descriptor *descriptor);

#endif
