/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spool - memory that grows as it is written
 * For write.c; spool.c. Whatever changes a spool's size (a write, its end) has the piece for
 * itself; later ones queue on it and start over, because the first may have changed what they are
 * about.
 */
#ifndef GMSFS_SERVICE_SPOOL_H
#define GMSFS_SERVICE_SPOOL_H

#include "service/steps.h"
#include "service/turns.h"

enum spool_kind {
    SPOOL_WRITE,
    SPOOL_SETTLE, /* that it could be sealed now */
    SPOOL_SEAL,
};

struct spool_op {
    struct turn turn;                /* first */
    struct service_request *request; /* NULL: nobody waits */
    enum spool_kind kind;
    enum spool_state state;
    uint64_t session, serial;
    struct piece *piece;
    struct vmm_piece memory; /* the piece's, while this changes it: others read there */
    const void *from;
    size_t bytes;
    uint64_t offset;
    uint64_t gap_bytes;      /* from here to the offset nobody has written */
    uint64_t size_bytes;     /* of the spool after this */
    uint64_t reserved_bytes; /* of the piece before this: what a failure falls back to */
    uint64_t charged_bytes;  /* what this charged */
    uint64_t drawn_bytes;    /* of which this much was set aside for the session */
    int error;
    struct spool_op *next;
};

/* Copies `what`, and answers its request in the end. closing: although the session ends. 0,
 * -ESTALE, -ENOMEM: it was not begun, and nothing is answered. */
int spool_begin(struct service *s, const struct spool_op *what, bool closing);

#endif
