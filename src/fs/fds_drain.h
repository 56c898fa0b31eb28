/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_drain - drains of the mount and of stores, asked for on the ticket socket
 *
 * For fds.c alone. What a connection drains its end ends, but for the end of the worker: then its
 * process comes again.
 */
#ifndef GMSFS_FS_FDS_DRAIN_H
#define GMSFS_FS_FDS_DRAIN_H

#include "fs/fds_connection.h"

/* One of the DRAIN and SERVE ops, of this process. As fds_answer_send. */
int fds_drain_answer(struct connection *connection, const struct gmsfs_fds_request *request,
                     int sender);
/* The mount serves again. */
int fds_drain_serve(struct connection *connection);
/* Drainers have come again by now, or have gone. True: they may still come. */
bool fds_drain_await(struct fs *fs);

#endif
