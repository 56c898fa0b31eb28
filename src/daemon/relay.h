/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay - where the messages of a daemon in the background go
 *
 * Standard error of keeper and worker becomes a pipe, which the keeper empties: to the terminal of
 * whoever mounts until the mount answers, then to syslog. So messages of libraries arrive as well,
 * and a worker that floods loses lines instead of waiting. Keeper only.
 */
#ifndef GMSFS_DAEMON_RELAY_H
#define GMSFS_DAEMON_RELAY_H

#include <stddef.h>

struct relay {
    int fd;          /* to poll for reading; -1: not in the background */
    int terminal_fd; /* -1: syslog */
    char line[1100];
    size_t bytes;
};

int relay_open(struct relay *relay);
/* Passes on what there is; never waits. */
void relay_drain(struct relay *relay);
/* In a process that only writes. */
void relay_close(struct relay *relay);
/* From now on to syslog. */
void relay_leave_terminal(struct relay *relay);

#endif
