/* SPDX-License-Identifier: Apache-2.0 */
/* transfers - bytes of clients on their way to memory, spools and documents */
#ifndef GMSFS_SERVICE_TRANSFERS_H
#define GMSFS_SERVICE_TRANSFERS_H

#include "service/steps.h"
#include "service/turns.h"

/* transfer.c */
/* Finds the allocation of an open file. 0, -EBADF, -ESTALE (session over, or the file unlinked) */
int service_find_open_allocation(struct service *s, uint64_t file, const struct core_file **opened,
                                 const struct layout_allocation **allocation,
                                 const struct core_store **store);
struct service_transfer {
    struct piece *piece;
    uint64_t session; /* in use; the transfer takes this use over */
    uint64_t store;
    uint32_t uid;
    const void *from; /* NULL: a read */
    struct vmm_span span;
};

int service_start_transfer(struct service *s, const struct service_transfer *wanted,
                           struct service_request *request);

/* write.c */
/* Ends every spool of ranks [first, first+count) of the session's layout; each holds the session in
 * use while it ends. Returns how many were started, or a negative errno. */
int service_seal_spools(struct service *s, uint64_t session, uint64_t first, uint64_t count);
void service_seal_file(struct service *s, const struct core_file *file);
/* Extends a spool with zeros to this size, which is beyond its present one. Fails if that was not
 * begun */
int service_extend(struct service *s, uint64_t session, uint64_t serial, uint64_t size_bytes,
                   struct service_request *request);

/* spool.c: memory that grows as it is written */
enum spool_kind {
    SPOOL_WRITE,
    SPOOL_SETTLE, /* makes the memory that it will be sealed into */
    SPOOL_SEAL,
};

/* An operation that changes a spool's size (a write, its end) has the piece for itself; later
 * operations queue on it and start over, because the first may have changed the allocation. */
struct spool_op {
    struct turn turn;                /* first */
    struct service_request *request; /* NULL: no request waits */
    enum spool_kind kind;
    enum spool_state state;
    uint64_t session, serial;
    struct piece *piece;
    struct vmm_piece memory; /* of the piece, which others read while this changes it */
    const void *from;
    size_t bytes;
    uint64_t offset;
    uint64_t gap_bytes;      /* from here to the offset there are no bytes yet */
    uint64_t size_bytes;     /* of the spool after this */
    uint64_t reserved_bytes; /* of the piece before this: a failure returns to it */
    uint64_t charged_bytes;  /* charged by this */
    uint64_t drawn_bytes;    /* part of charged_bytes that came from the session's reservation */
    int error;
    struct spool_op *next;
};

/* Begins a copy of `wanted`, which answers its request in the end. closing: also if the session
 * ends. 0, -ESTALE, -ENOMEM: it was not begun, and nothing is answered. */
int spool_begin(struct service *s, const struct spool_op *wanted, bool closing);
void service_retry_spools(struct service *s);

/* metadata.c, bulk.c */
void service_apply_slices(struct service *s);
/* For service_free: answers -ENOTCONN. */
void service_drop_spools(struct service *s);
void service_drop_bulks(struct service *s);

#endif
