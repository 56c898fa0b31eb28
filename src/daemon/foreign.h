/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign - closes descriptors that clients have sent
 *
 * For the worker's loop. close(2) asks the file's own file system, which may be a process of that
 * client that never answers: so each close is made by a thread of its own. One that does not come
 * back costs its user the right to send more, and never anybody else's time. Single-threaded but
 * for those threads.
 */
#ifndef GMSFS_DAEMON_FOREIGN_H
#define GMSFS_DAEMON_FOREIGN_H

#include <stdbool.h>
#include <stdint.h>

#define FOREIGN_MAX_CLOSING 8u /* users, each with one */

/* Both have no context. Nothing of this user is still being closed, and one more could be. */
bool foreign_may_take(void *context, uint32_t uid);
/* After foreign_may_take has said so. */
void foreign_close(void *context, uint32_t uid, int fd);

#endif
