/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_unread - descriptors that clients were sent and have not read
 *
 * The kernel counts them for the daemon's user, over all of its processes, against RLIMIT_NOFILE
 * (but of a process with CAP_SYS_RESOURCE): who does not read could keep all mounts from passing
 * any. So each user has a share of them, and all users together have a part, which is less than a
 * whole.
 *
 * They stay under way when the worker ends, for it is the client's end that has them. So before the
 * first are sent the keeper has the connection, and the next worker counts what is unread there.
 */
#ifndef GMSFS_FS_FDS_UNREAD_H
#define GMSFS_FS_FDS_UNREAD_H

#include "fs/fds_connection.h"

/* Whether so many more may be sent to it now (awaits_share: they may not). A user's only one that
 * has any under way always may, but for one that has waited long. */
bool fds_may_send(struct connection *connection, uint32_t count);
void fds_note_sent(struct connection *connection, uint32_t count);
/* Closes its socket, and gives its place back: when all was read or the client has closed it, too.
 */
void fds_close_when_read(struct connection *connection);
/* What was read meanwhile counts no more. True: of connections that are over some are left. */
bool fds_count_unread(struct fs *fs);
/* At the mount's end. */
void fds_close_unread(struct fs *fs);

#endif
