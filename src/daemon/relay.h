/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relay - passes on the messages of a daemon in the background
 *
 * Standard error of keeper and worker becomes a pipe. The keeper empties it: to the terminal of the
 * mounting user until the mount answers, then to syslog. So messages of libraries arrive too, and a
 * worker that floods the pipe loses lines instead of waiting. Lines of level debug, which may be
 * thousands in a second, are dropped and counted where syslog does not take them at once. Keeper
 * only.
 */
#ifndef GMSFS_DAEMON_RELAY_H
#define GMSFS_DAEMON_RELAY_H

#include <stddef.h>

struct relay {
    int fd;          /* poll this for reading; -1 in the foreground */
    int terminal_fd; /* -1 if messages go to syslog */
    int trace_fd;    /* socket to syslog for lines of level debug; -1 until there is one */
    unsigned lost;   /* number of these lines that syslog did not take */
    char line[1100];
    size_t bytes;
};

int relay_open(struct relay *relay);
/* Passes on the lines in the pipe. Only syslog may let it wait, for a line above level debug. */
void relay_drain(struct relay *relay);
/* For a process that only writes. */
void relay_close(struct relay *relay);
/* Sends later messages to syslog. */
void relay_leave_terminal(struct relay *relay);

#endif
