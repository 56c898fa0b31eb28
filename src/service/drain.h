/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drain - of one store: nobody is let in, and whoever holds it is asked to leave
 *
 * For front ends. A drain belongs to whoever asked for it, who keeps a struct service_drain and
 * gives it back when he goes, whatever for; nothing is ever discarded. What is held is what has a
 * session.
 */
#ifndef GMSFS_SERVICE_DRAIN_H
#define GMSFS_SERVICE_DRAIN_H

#include "service/service.h"

struct service_drain {
    uint64_t store; /* 0: none */
    uint64_t id;
};

/* Drains the store of this uuid; in_ms: when holders are to have left, 0: not said. Again: another
 * deadline. -EBUSY: somebody else drains it, or `own` is another's; -EPERM, -ENOENT, -ENOMEM */
int service_drain_store(struct service *s, const struct service_peer *peer, const uint8_t uuid[16],
                        uint64_t in_ms, struct service_drain *own);
/* 0: nobody holds it; -EBUSY: *left sessions do, which with `revoke` end as soon as they can;
 * -ECANCELED: it serves again; -ENOENT: it is gone */
int service_count_holders(struct service *s, const struct service_peer *peer,
                          const struct service_drain *own, bool revoke, uint64_t *left);
/* Whoever drains it: it serves again. -EPERM, -ENOENT */
int service_serve_store(struct service *s, const struct service_peer *peer, const uint8_t uuid[16]);
/* Whose connection broke with the last worker shows his token: he goes on. is_mount: the drain is
 * the mount's, and not *own. -ECANCELED: it is over; -EPERM: another process's */
int service_resume_drain(struct service *s, const struct service_peer *peer,
                         const uint8_t token[16], struct service_drain *own, bool *is_mount);
/* Does this process drain? It may not know yet, where the last worker ended before it had answered.
 * Of one that cannot be seen nobody knows. */
bool service_is_drainer(const struct core_drainer *drainer, const struct service_peer *peer);
/* The drains whose owners did not come again, of all there are: NULL is the mount's, which ends
 * only if it waits for sessions. */
void service_end_unclaimed_drains(struct service *s,
                                  bool (*is_claimed)(void *context, const struct core_store *store),
                                  void *context);
/* Whoever drained has gone. */
void service_end_drain(struct service *s, struct service_drain *own);

#endif
