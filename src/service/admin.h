/* SPDX-License-Identifier: Apache-2.0 */
/*
 * admin - what administrators ask of a mount: draining, trust, the unmount
 *
 * For front ends. `uid` is the one that a connection was made by. -EPERM
 */
#ifndef GMSFS_SERVICE_ADMIN_H
#define GMSFS_SERVICE_ADMIN_H

#include "service/service.h"

/* No session is granted from now on; whoever waits is told. revoke: and every session ends. -EBUSY:
 * a checkpoint has fenced stores (fence.h); -ENOMEM */
int service_drain(struct service *s, const struct service_peer *peer, bool revoke);
/* The mount grants sessions again. */
int service_serve(struct service *s, const struct service_peer *peer);
/* Drops all that is committed. -EBUSY: there are sessions; -EAGAIN: memory is on its way back;
 * -ECANCELED: the mount serves again; 0: nothing is held. left: how many sessions, or bytes. */
int service_drain_end(struct service *s, const struct service_peer *peer, uint64_t *left);
/* What this store (zeros: every store) holds is as it should be, somebody says: an administrator,
 * or the store's owner. -ENOENT, -ENODEV: the device is lost */
int service_trust(struct service *s, const struct service_peer *peer, const uint8_t uuid[16]);
/* May the mount be taken away now? -EBUSY: files are open */
int service_may_unmount(const struct service *s, const struct service_peer *peer);

#endif
