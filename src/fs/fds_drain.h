/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_drain - drains of the mount and of stores, requested on the ticket socket
 *
 * For fds.c alone. A connection's end ends its drain, unless the worker ended: then its process
 * connects again.
 */
#ifndef GMSFS_FS_FDS_DRAIN_H
#define GMSFS_FS_FDS_DRAIN_H

#include "fs/fds_connection.h"

/* Serves one of the DRAIN and SERVE ops for the process `sender`. Returns as fds_answer_send. */
int fds_drain_answer(struct connection *connection, const struct gmsfs_fds_request *request,
                     int sender);
/* Makes the mount serve again. */
int fds_drain_serve(struct connection *connection);
/* Ends the drains of processes that have gone, or have had time to come again. True: some may still
 * come. */
bool fds_drain_await(struct fs *fs);

#endif
