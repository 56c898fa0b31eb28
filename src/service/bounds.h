/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bounds - bounds that users share besides the bounds of the state (core.h)
 *
 * For front ends and the parts of the service: the cost of an open directory, a text, a connection
 * or a transfer is counted for its user. A user that meets a bound, one of the state too, learns by
 * errno whether its share was used up (EDQUOT) or the whole; an event now and then names the user.
 */
#ifndef GMSFS_SERVICE_BOUNDS_H
#define GMSFS_SERVICE_BOUNDS_H

#include "service/service.h"

enum service_bound {
    SERVICE_BOUND_DIRECTORIES, /* open directories; ENFILE */
    SERVICE_BOUND_TEXTS,       /* bytes of texts that are being read; ENOMEM */
    SERVICE_BOUND_LAYOUTS,     /* bytes of layouts that are being read, each once; ENOMEM */
    SERVICE_BOUND_CONNECTIONS, /* ENFILE */
    SERVICE_BOUND_WATCHES,     /* processes whose exit ends sessions; ENFILE */
    SERVICE_BOUND_TRANSFERS,   /* reads and writes that run or wait for their turn; ENOMEM */
    SERVICE_BOUND_QUEUED,   /* bytes that clients have written and that wait to be moved: beyond the
                               bound they are taken in small pieces, never refused */
    SERVICE_BOUND_SPOOLS,   /* bytes of host memory of spools that become memory of a GPU; ENOMEM */
    SERVICE_BOUND_FRAMES,   /* bytes of long requests and answers of GMS clients; ENOMEM */
    SERVICE_BOUND_NOTES,    /* bytes that clients have gathered, noted for a next worker: beyond the
                               bound they are not refused, but lost with the worker */
    SERVICE_BOUND_REQUESTS, /* requests of the kernel without an answer yet; ENOMEM */
    SERVICE_BOUND_AHEAD,  /* bytes of those requests that were read and wait for their turn, without
                             the bytes of QUEUED; ENOMEM */
    SERVICE_BOUND_ALLOCS, /* bytes of ALLOCs, RESERVEs and truncations that run or wait; ENOMEM */
    SERVICE_BOUND_SUMS,   /* bytes of sums of contents, and of their texts; ENOMEM */
    SERVICE_BOUND_COUNT,
};

#define SERVICE_MAX_DIRECTORIES  65536u
#define SERVICE_MAX_TEXT_BYTES   (64ull << 20)
#define SERVICE_MAX_LAYOUT_BYTES (4ull << 30)
#define SERVICE_MAX_CONNECTIONS  1024u
#define SERVICE_MAX_WATCHES      16384u
#define SERVICE_MAX_TRANSFERS    8192u
#define SERVICE_MAX_QUEUED_BYTES (20ull << 20)
#define SERVICE_SPOOLS           4u /* times the bound of one spool */
#define SERVICE_MAX_FRAME_BYTES  (256ull << 20)
#define SERVICE_MAX_NOTED_BYTES  (16ull << 20)
#define SERVICE_MAX_REQUESTS     15358u
#define SERVICE_MAX_AHEAD_BYTES  (16ull << 20)
#define SERVICE_MAX_ALLOC_BYTES  (32ull << 20)
#define SERVICE_MAX_SUM_BYTES    (512ull << 20)

/* Takes `more` for this user of this store (0: of no store). 0, -EDQUOT, the errno of the bound,
 * -ENOMEM */
int service_take(struct service *s, enum service_bound bound, uint64_t store, uint32_t uid,
                 uint64_t more);
/* The same, but never of the room that is for administrators' looks alone. */
int service_take_beside_looks(struct service *s, enum service_bound bound, uint32_t uid,
                              uint64_t more);
void service_give(struct service *s, enum service_bound bound, uint32_t uid, uint64_t less);
/* Takes or gives the difference, so that the user has taken `bytes` in place of *charged_bytes,
 * which changes unless that fails. 0, or errors as service_take */
int service_charge(struct service *s, enum service_bound bound, uint32_t uid,
                   uint64_t *charged_bytes, uint64_t bytes);
/* Takes as much of `wanted` as this user may have now: all of it, or less as its share runs out,
 * but at least `least`. -ENOMEM: no memory to note it */
int service_take_some(struct service *s, enum service_bound bound, uint64_t store, uint32_t uid,
                      uint64_t wanted, uint64_t least, uint64_t *taken);
/* Notes that a user met a bound that is kept elsewhere. */
void service_note_bound(struct service *s, const char *name, uint64_t store, uint32_t uid,
                        int error);

#endif
