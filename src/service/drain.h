/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drain - drains one store: it admits no session, and its holders are asked to leave
 *
 * For front ends. A drain belongs to the client that asked for it, which keeps a struct
 * service_drain and gives it back when it goes, for any reason; no bytes are ever discarded. A
 * store is held as long as it has a session.
 */
#ifndef GMSFS_SERVICE_DRAIN_H
#define GMSFS_SERVICE_DRAIN_H

#include "service/service.h"

struct service_drain {
    uint64_t store; /* 0: none */
    uint64_t id;
};

/* Drains the store with this uuid; in_ms: time within which holders should leave, 0: none. Again:
 * sets another deadline. -EBUSY: another client drains it, or `own` is for another store; -EPERM,
 * -ENOENT, -ENOMEM */
int service_drain_store(struct service *s, const struct service_peer *peer, const uint8_t uuid[16],
                        uint64_t in_ms, struct service_drain *own);
/* Counts the sessions that hold the store. 0: none; -EBUSY: *left sessions, which with `revoke` end
 * as soon as they can; -ECANCELED: the store serves again; -ENOENT: it was removed */
int service_count_holders(struct service *s, const struct service_peer *peer,
                          const struct service_drain *own, bool revoke, uint64_t *left);
/* Has the store serve again, also if another client drains it. -EPERM, -ENOENT */
int service_serve_store(struct service *s, const struct service_peer *peer, const uint8_t uuid[16]);
/* Resumes the drain of a client that lost its connection with the last worker, by its token.
 * is_mount: the drain is the mount's, and *own is not set. -ECANCELED: it is over; -EPERM: another
 * process's */
int service_resume_drain(struct service *s, const struct service_peer *peer,
                         const uint8_t token[16], struct service_drain *own, bool *is_mount);
/* Returns true if this process drains. It may not know yet, if the last worker ended before its
 * answer. False for a process that is not visible. */
bool service_is_drainer(const struct core_drainer *drainer, const struct service_peer *peer);
/* Ends the drains that no client has resumed; is_claimed is asked for each store, and with NULL for
 * the mount's drain, which ends only if it waits for sessions. */
void service_end_unclaimed_drains(struct service *s,
                                  bool (*is_claimed)(void *context, const struct core_store *store),
                                  void *context);
/* Ends the drain of a client that has gone. */
void service_end_drain(struct service *s, struct service_drain *own);

#endif
