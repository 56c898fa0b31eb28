/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foreign - closes descriptors that clients have sent
 *
 * For the worker's loop. close(2) asks the file's own file system, which may be a process of that
 * client that never answers: so each close runs in a thread of its own. A few closes that do not
 * return cost their user the right to send more descriptors, and never cost another user time.
 * Single-threaded except for those threads.
 */
#ifndef GMSFS_DAEMON_FOREIGN_H
#define GMSFS_DAEMON_FOREIGN_H

#include <stdbool.h>
#include <stdint.h>

#define FOREIGN_MAX_CLOSING 32u
#define FOREIGN_MAX_OF_USER 4u

/* Both ignore `context`. Returns true if few of this user's descriptors are still being closed and
 * there is room to close one more. */
bool foreign_may_take(void *context, uint32_t uid);
/* Call it only after foreign_may_take returned true. */
void foreign_close(void *context, uint32_t uid, int fd);

#endif
