/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clean.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LOG_LINE_BYTES 1024u

static const struct {
    const char *name;
    int syslog_number;
} LEVELS[] = {
    [LOG_LEVEL_ERROR] = {"error", 3},
    [LOG_LEVEL_WARNING] = {"warning", 4},
    [LOG_LEVEL_INFO] = {"info", 6},
    [LOG_LEVEL_DEBUG] = {"debug", 7},
};

_Atomic int log_level_now = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
    atomic_store(&log_level_now, (int)level);
}

enum log_level log_get_level(void)
{
    return (enum log_level)atomic_load(&log_level_now);
}

const char *log_level_name(enum log_level level)
{
    return LEVELS[level].name;
}

int log_parse_level(const char *text, enum log_level *level)
{
    for (size_t i = 0; i < sizeof LEVELS / sizeof LEVELS[0]; i++) {
        if (strcmp(text, LEVELS[i].name) == 0) {
            *level = (enum log_level)i;
            return 0;
        }
    }
    return -EINVAL;
}

/* Returns true if the whole line was written. */
__attribute__((format(printf, 3, 0))) static bool write_line(int fd, enum log_level level,
                                                             const char *format, va_list arguments)
{
    char line[LOG_LINE_BYTES];
    int head;
    if (getenv("JOURNAL_STREAM"))
        head = snprintf(line, sizeof line, "<%d>", LEVELS[level].syslog_number);
    else
        head = snprintf(line, sizeof line, "gmsfs: ");
    int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, arguments);
    size_t size = (size_t)head + (body > 0 ? (size_t)body : 0);
    if (size > sizeof line - 2)
        size = sizeof line - 2;
    clean_bytes(line + head, size - (size_t)head, "");
    line[size++] = '\n';
    return write(fd, line, size) == (ssize_t)size;
}

void log_write(enum log_level level, const char *format, ...)
{
    if (level > log_get_level())
        return;
    int saved = errno;
    va_list arguments;
    va_start(arguments, format);
    bool written = write_line(STDERR_FILENO, level, format, arguments);
    va_end(arguments);
    (void)written; /* there is no other place to report it */
    errno = saved;
}

/* ---- the trace ----------------------------------------------------------------------------- */

static void (*name_request)(uint64_t request, char text[LOG_REQUEST_BYTES]);

uint64_t log_read_clock_us(void)
{
    return clock_now_us();
}

void log_name_requests(void (*name)(uint64_t request, char text[LOG_REQUEST_BYTES]))
{
    name_request = name;
}

/* Returns true if standard error, which is no terminal, takes a line at once. Half of a pipe is
 * left to the messages, whose writer waits for room, and another quarter to the steps. */
static bool has_room(bool is_step)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    int room = fcntl(STDERR_FILENO, F_GETPIPE_SZ), unread = 0;
    if (room > 0 && ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 &&
        unread > room / (is_step ? 2 : 4))
        return false;
    return poll(&out, 1, 0) > 0 && out.revents & POLLOUT;
}

/* Returns a descriptor that takes a line without waiting; -1 if there is none. poll(2) reports a
 * terminal writable for one free byte, so a terminal gets an open file of its own that never waits.
 */
static int open_room(bool is_step)
{
    if (isatty(STDERR_FILENO))
        return open("/proc/self/fd/2", O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    return has_room(is_step) ? STDERR_FILENO : -1;
}

/* Writes a line of the trace, or returns false if it would have to wait. */
__attribute__((format(printf, 2, 3))) static bool write_at_once(bool is_step, const char *format,
                                                                ...)
{
    int fd = open_room(is_step);
    if (fd < 0)
        return false;
    va_list arguments;
    va_start(arguments, format);
    bool written = write_line(fd, LOG_LEVEL_DEBUG, format, arguments);
    va_end(arguments);
    if (fd != STDERR_FILENO)
        close(fd);
    return written;
}

static _Atomic unsigned lines_left_out;

/* Returns true if one more line may be written in this second. Two threads may let a line too many
 * through. */
static bool may_trace(bool is_step)
{
    static _Atomic uint64_t second;
    static _Atomic unsigned lines, requests;
    uint64_t now = log_read_clock_us() / 1000000;
    if (atomic_exchange(&second, now) != now) {
        atomic_store(&lines, 0);
        atomic_store(&requests, 0);
        unsigned count = atomic_exchange(&lines_left_out, 0);
        if (count > 0 && !write_at_once(true, "%u lines of the trace were left out", count))
            atomic_fetch_add(&lines_left_out, count);
    }
    if (!is_step && atomic_fetch_add(&requests, 1) >= LOG_TRACE_REQUESTS_PER_SECOND)
        return false;
    return atomic_fetch_add(&lines, 1) < LOG_TRACE_LINES_PER_SECOND;
}

__attribute__((format(printf, 3, 0))) static void trace(bool is_step, uint64_t request,
                                                        const char *format, va_list arguments)
{
    char name[LOG_REQUEST_BYTES] = "-", text[LOG_LINE_BYTES];
    int saved = errno;
    if (!log_is_debug())
        return;
    bool may = may_trace(is_step);
    if (may) {
        vsnprintf(text, sizeof text, format, arguments);
        if (request && name_request)
            name_request(request, name);
    }
    if (!may || !write_at_once(is_step, "[%s] %s", name, text))
        atomic_fetch_add(&lines_left_out, 1);
    errno = saved;
}

void log_trace(uint64_t request, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    trace(true, request, format, arguments);
    va_end(arguments);
}

void log_trace_request(uint64_t request, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    trace(false, request, format, arguments);
    va_end(arguments);
}
