/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin - requests of administrators to a mount: draining, trust, the unmount
 *
 * For front ends. `peer` has the user that made the connection. -EPERM
 */
#ifndef GMSFS_SERVICE_ADMIN_H
#define GMSFS_SERVICE_ADMIN_H

#include "service/service.h"

/* Grants no session from now on, and refuses the waiters. revoke: ends every session. -EBUSY: a
 * checkpoint has fenced stores (fence.h); -ENOMEM */
int service_drain(struct service *s, const struct service_peer *peer, bool revoke);
/* Grants sessions again. */
int service_serve(struct service *s, const struct service_peer *peer);
/* Drops every committed layout. -EBUSY: there are sessions; -EAGAIN: memory is on its way back;
 * -ECANCELED: the mount serves again; 0: no memory is held. left: the number of sessions, or of
 * bytes. */
int service_drain_end(struct service *s, const struct service_peer *peer, uint64_t *left);
/* Trusts the memory of this store (zeros: of every store) again, on the word of an administrator or
 * the store's owner. -ENOENT, -ENODEV: the device is lost */
int service_trust(struct service *s, const struct service_peer *peer, const uint8_t uuid[16]);
/* Checks whether the mount may end now. -EBUSY: files are open */
int service_may_unmount(const struct service *s, const struct service_peer *peer);

#endif
