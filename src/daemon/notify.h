/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify - tells systemd how the service is (sd_notify(3), written by hand: one datagram)
 *
 * Does nothing where $NOTIFY_SOCKET is not set, never fails visibly, and never waits for a manager
 * that is busy: what that does not take is said again later.
 */
#ifndef GMSFS_DAEMON_NOTIFY_H
#define GMSFS_DAEMON_NOTIFY_H

void notify_send(const char *state); /* such as "READY=1" */
/* Once more, what was not taken yet, if it was. */
void notify_go_on(void);
/* When to call that, from now; -1: nothing is due. */
int notify_next_ms(void);

/* For who says more: a connected socket that does not block, closed on exec. -ENOENT: nobody
 * listens; or why not */
int notify_connect(void);
/* With a descriptor, or without: -1. 0 or a negative errno */
int notify_send_to(int fd, const char *state, int passed_fd);

#endif
