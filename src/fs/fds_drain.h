/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_drain - the drain of a store, asked for on the ticket socket
 *
 * For fds.c alone. `own` is the connection's: what it drains, which its end ends.
 */
#ifndef GMSFS_FS_FDS_DRAIN_H
#define GMSFS_FS_FDS_DRAIN_H

#include "fs/fs_internal.h"
#include "service/drain.h"

/* One of the STORE ops: what to answer. */
int fds_drain_ask(struct fs *fs, const struct service_peer *peer,
                  const struct gmsfs_fds_request *request, struct service_drain *own,
                  uint64_t *remaining);

#endif
