/* SPDX-License-Identifier: Apache-2.0 */
/*
 * notify - tells systemd the state of the service (sd_notify(3), written by hand: one datagram)
 *
 * Does nothing if $NOTIFY_SOCKET is not set, never fails visibly, and never waits for a busy
 * manager: a state that the manager does not take is sent again later.
 */
#ifndef GMSFS_DAEMON_NOTIFY_H
#define GMSFS_DAEMON_NOTIFY_H

void notify_send(const char *state); /* such as "READY=1" */
/* Sends the state again that the manager did not take, if there is one. */
void notify_resend(void);
/* Returns the time until notify_resend is to be called; -1 if nothing is to be sent again. */
int notify_next_ms(void);

/* Returns a connected socket that does not block and is closed on exec, for longer conversations.
 * -ENOENT: there is no manager; or another negative errno. */
int notify_connect(void);
/* Sends a state with a descriptor; -1: without. Returns 0 or a negative errno. */
int notify_send_to(int fd, const char *state, int passed_fd);

#endif
