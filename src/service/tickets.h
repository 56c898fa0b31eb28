/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tickets - descriptors of memory: EXPORT makes a ticket, and the ticket is redeemed for
 * descriptors
 *
 * For front ends. A file exports the memory that it may read; writable, if it may write as well.
 * The user that asked for the ticket may redeem it, once, within seconds.
 */
#ifndef GMSFS_SERVICE_TICKETS_H
#define GMSFS_SERVICE_TICKETS_H

#include "service/service.h"

struct service_export {
    uint64_t first, count; /* ranks; count 0: all from first */
    bool by_slot;          /* exports the allocation with the slot `first`; -ENOENT */
    bool writable;
    uint32_t uid;         /* the user that may redeem it */
    uint8_t ticket[16];   /* out */
    uint64_t total_bytes; /* out */
    uint64_t generation;  /* out */
};

/* Exports. A spool is ended first. `export` is filled before done. -EBADF: the file may not read,
 * or (writable) not write */
int service_export(struct service *s, uint64_t file, struct service_export *export,
                   struct service_request *request);

struct service_redeemed { /* a ticket in use */
    uint64_t session;
    uint32_t uid; /* the user that redeemed it */
    uint64_t first, count;
    uint64_t serial; /* one allocation; its rank may have changed; 0: ranks */
    uint64_t region; /* a region's object, without a session; 0: memory of a store */
    bool writable;
};

/* Redeems a ticket for the process that gets the descriptors: before it can have a writable one, it
 * is recorded as a writer, until it exits. Errors of the ticket and of that record: -ENOSPC,
 * -EDQUOT, -ENFILE, and -EOPNOTSUPP if the session writes bytes alone and the process is not
 * visible */
int service_redeem(struct service *s, const uint8_t ticket[16], const struct service_peer *peer,
                   struct service_redeemed *out);

struct service_descriptor {
    uint64_t rank, slot, size_bytes, aligned_bytes;
    const char *tag;        /* of the layout, until it changes; NULL: a region */
    enum vmm_memory memory; /* its kind for a client */
    int fd;                 /* to be sent */
    bool is_own;            /* the caller closes it after sending; else the service owns it */
};

/* Returns the descriptor of one rank of a ticket in use. Users share no open file description, so
 * that a position, a flag or a lock of one is not another's. -ESTALE if its session is over;
 * -EMFILE, -ENFILE, -ENOMEM; -EBUSY: a process holds a lease on the memory's file. */
int service_get_descriptor(struct service *s, const struct service_redeemed *ticket, uint64_t rank,
                           struct service_descriptor *descriptor);

/* The same at once and without a ticket, for a front end that sends descriptors itself: for this
 * slot of the session that the file (a `ctl`) has, and for the processes that may get it. Writable
 * if the session writes. Errors as service_export and service_redeem; -ENOENT: no such slot;
 * -EBUSY: a spool */
int service_lend_descriptor(struct service *s, uint64_t file, uint64_t slot,
                            const struct core_process *processes, size_t count,
                            struct service_descriptor *descriptor);

#endif
