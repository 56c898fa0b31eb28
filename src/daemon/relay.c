/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/relay.h"

#include "base/file_io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define RELAY_LINES_PER_TURN 1000

int relay_open(struct relay *relay)
{
    int fds[2] = {-1, -1};
    int error = 0;

    *relay = (struct relay){.fd = -1, .terminal_fd = -1, .trace_fd = -1};
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

/* ---- the trace ------------------------------------------------------------------------------ */

static int open_syslog(void)
{
    static const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = _PATH_LOG};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        file_close_fd(&fd);
    return fd;
}

/* Sends a line as syslog(3) does, which would wait while syslog is busy. The socket closes where
 * syslog has gone. */
static bool send_trace(struct relay *relay, const char *text)
{
    char line[sizeof relay->line + 64], stamp[32] = "";
    time_t now = time(NULL);
    struct tm parts;

    if (relay->trace_fd < 0)
        relay->trace_fd = open_syslog();
    if (relay->trace_fd < 0)
        return false;
    if (localtime_r(&now, &parts))
        strftime(stamp, sizeof stamp, "%h %e %T", &parts);
    int bytes = snprintf(line, sizeof line, "<%d>%s gmsfs[%d]: %s", LOG_DAEMON | LOG_DEBUG, stamp,
                         (int)getpid(), text);
    if (send(relay->trace_fd, line, (size_t)bytes, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return true;
    if (errno != EAGAIN && errno != ENOBUFS)
        file_close_fd(&relay->trace_fd);
    return false;
}

static void pass_trace(struct relay *relay, const char *text)
{
    char lost[64];

    snprintf(lost, sizeof lost, "%u lines of the trace were left out", relay->lost);
    if (relay->lost > 0 && send_trace(relay, lost))
        relay->lost = 0;
    if (!send_trace(relay, text))
        relay->lost++;
}

/* ---- lines ---------------------------------------------------------------------------------- */

static void show_line(struct relay *relay)
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
    else if (level == LOG_DEBUG)
        pass_trace(relay, text);
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
    file_close_fd(&relay->trace_fd);
}
