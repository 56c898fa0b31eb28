/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign - closes descriptors that clients have sent
 *
 * For the worker's loop. close(2) asks the file's own file system, which may be a process of that
 * client that never answers: so each close is made by a thread of its own. A few that do not come
 * back cost their user the right to send more, and never anybody else's time. Single-threaded but
 * for those threads.
 */
#ifndef GMSFS_DAEMON_FOREIGN_H
#define GMSFS_DAEMON_FOREIGN_H

#include <stdbool.h>
#include <stdint.h>

#define FOREIGN_MAX_CLOSING 32u
#define FOREIGN_MAX_OF_USER 4u

/* Both have no context. Few of this user are still being closed, and one more could be. */
bool foreign_may_take(void *context, uint32_t uid);
/* After foreign_may_take has said so. */
void foreign_close(void *context, uint32_t uid, int fd);

#endif
