/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_unread - descriptors and answers that clients were sent and have not read
 *
 * The kernel counts them for the daemon's user, over all of its processes, against RLIMIT_NOFILE
 * (but of a process with CAP_SYS_RESOURCE): who does not read could keep all mounts from passing
 * any. So each user has a share of them, and all users together have a part, which is less than a
 * whole.
 *
 * They stay under way when the worker ends, for it is the client's end that has them. So before the
 * first are sent the keeper has the connection, and the next worker counts what is unread there.
 *
 * The kernel charges what is unread to the daemon's control group. So a connection has one answer
 * under way at a time, a long answer counts among its user's frames until the client has read it,
 * and a connection that is over keeps its place until then.
 */
#ifndef GMSFS_FS_FDS_UNREAD_H
#define GMSFS_FS_FDS_UNREAD_H

#include "fs/fds_connection.h"

/* Whether so many more may be sent to it now (awaits_share: they may not). A user's only one that
 * has any under way always may, but for one that has waited long. */
bool fds_may_send(struct connection *connection, uint32_t count);
void fds_note_sent(struct connection *connection, uint32_t count);
/* Returns true if the client has not read all that it was sent. */
bool fds_has_unread(int fd);
/* Counts what is unread, and a message of so many bytes more, as frames of the connection's user.
 * 0, -EDQUOT, -ENOMEM */
int fds_charge(struct connection *connection, uint64_t more_bytes);
/* Closes its socket, and gives its place back: when all was read or the client has closed it, too.
 */
void fds_close_when_read(struct connection *connection);
/* What was read meanwhile counts no more. True: some is left of connections that are over, or
 * counts as frames. */
bool fds_count_unread(struct fs *fs);
/* At the mount's end. */
void fds_close_unread(struct fs *fs);

#endif
