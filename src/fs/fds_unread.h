/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds_unread - descriptors and answers that were sent and that clients have not read
 *
 * The kernel counts them for the daemon's user, over all of its processes, against RLIMIT_NOFILE
 * (unless a process has CAP_SYS_RESOURCE): a client that does not read could keep all mounts from
 * sending any. So each user has a share of them, and all users together have less than the whole
 * limit.
 *
 * They stay in flight when the worker ends, because they are at the client's end. So before the
 * first of them is sent, the connection is given to the keeper, and the next worker counts its
 * unread descriptors.
 *
 * The kernel charges unread bytes to the daemon's control group. So a connection has one answer in
 * flight at a time, a long answer counts among its user's frames until the client has read it, and
 * a connection that is over keeps its place until then.
 */
#ifndef GMSFS_FS_FDS_UNREAD_H
#define GMSFS_FS_FDS_UNREAD_H

#include "fs/fds_connection.h"

/* Returns whether this many more descriptors may be sent now; sets awaits_share if not. The only
 * connection of a user with unread descriptors always may, unless another one has waited long. */
bool fds_may_send(struct connection *connection, uint32_t count);
void fds_note_sent(struct connection *connection, uint32_t count);
/* Returns true if the client has unread bytes. */
bool fds_has_unread(int fd);
/* Counts unread bytes, and a message of this many bytes more, as frames of the connection's user.
 * 0, -EDQUOT, -ENOMEM */
int fds_charge(struct connection *connection, uint64_t more_bytes);
/* Closes the connection's socket and gives its place back, once the client has read all or has
 * closed it. */
void fds_close_when_read(struct connection *connection);
/* Corrects the counts by the messages that clients have read. True: connections that are over have
 * unread descriptors, or bytes still count as frames. */
bool fds_count_unread(struct fs *fs);
/* Closes all of them, at the mount's end. */
void fds_close_unread(struct fs *fs);

#endif
