/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/relay.h"

#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#define RELAY_LINES_PER_TURN 1000

int relay_open(struct relay *relay)
{
    int fds[2] = {-1, -1};
    int error = 0;

    *relay = (struct relay){.fd = -1, .terminal_fd = -1};
    relay->terminal_fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3); /* -1 if none was open */
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0 || dup2(fds[1], STDERR_FILENO) < 0)
        error = -errno;
    if (fds[1] > STDERR_FILENO)
        close(fds[1]);
    if (error) {
        if (fds[0] >= 0)
            close(fds[0]);
        return error;
    }
    relay->fd = fds[0];
    /* Makes the log put each line's level in front, as for the journal; show_line removes it. */
    setenv("JOURNAL_STREAM", "pipe", 1);
    openlog("gmsfs", LOG_PID, LOG_DAEMON);
    return 0;
}

static void show_line(const struct relay *relay)
{
    const char *text = relay->line;
    int level = LOG_WARNING; /* for messages of libraries */

    if (text[0] == '<' && text[1] >= '0' && text[1] <= '7' && text[2] == '>') {
        level = text[1] - '0';
        text += 3;
    }
    /* The mounting user sees warnings and errors only. */
    if (relay->terminal_fd >= 0 && level <= LOG_WARNING)
        dprintf(relay->terminal_fd, "gmsfs: %s\n", text);
    else
        syslog(level, "%s", text);
}

void relay_drain(struct relay *relay)
{
    char c;

    for (int lines = 0; relay->fd >= 0 && lines < RELAY_LINES_PER_TURN;) {
        char chunk[1024];
        ssize_t got = read(relay->fd, chunk, sizeof chunk);
        if (got <= 0)
            return;
        for (ssize_t i = 0; i < got; i++) {
            c = chunk[i];
            if (c != '\n')
                relay->line[relay->bytes++] = c;
            if (c != '\n' && relay->bytes < sizeof relay->line - 1)
                continue;
            relay->line[relay->bytes] = '\0';
            show_line(relay);
            relay->bytes = 0;
            lines++;
        }
    }
}

void relay_leave_terminal(struct relay *relay)
{
    relay_drain(relay);
    file_close_fd(&relay->terminal_fd);
}

void relay_close(struct relay *relay)
{
    file_close_fd(&relay->fd);
    file_close_fd(&relay->terminal_fd);
    relay->fd = relay->terminal_fd = -1;
}
