/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clean.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
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

void log_write(enum log_level level, const char *format, ...)
{
    if (level > log_get_level())
        return;
    int saved = errno;
    char line[LOG_LINE_BYTES];
    int head;
    if (getenv("JOURNAL_STREAM"))
        head = snprintf(line, sizeof line, "<%d>", LEVELS[level].syslog_number);
    else
        head = snprintf(line, sizeof line, "gmsfs: ");
    va_list arguments;
    va_start(arguments, format);
    int body = vsnprintf(line + head, sizeof line - (size_t)head - 1, format, arguments);
    va_end(arguments);
    size_t size = (size_t)head + (body > 0 ? (size_t)body : 0);
    if (size > sizeof line - 2)
        size = sizeof line - 2;
    clean_bytes(line + head, size - (size_t)head, "");
    line[size++] = '\n';
    ssize_t written = write(STDERR_FILENO, line, size);
    (void)written; /* there is no other place to report it */
    errno = saved;
}

/* ---- the trace ----------------------------------------------------------------------------- */

static void (*name_request)(uint64_t request, char text[LOG_REQUEST_BYTES]);

uint64_t log_read_clock_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void log_name_requests(void (*name)(uint64_t request, char text[LOG_REQUEST_BYTES]))
{
    name_request = name;
}

/* Half of a pipe is left to the messages, whose writer waits for room. */
static bool has_room(void)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    int room = fcntl(STDERR_FILENO, F_GETPIPE_SZ), unread = 0;
    if (room > 0 && ioctl(STDERR_FILENO, FIONREAD, &unread) == 0 && unread > room / 2)
        return false;
    return poll(&out, 1, 0) > 0 && out.revents & POLLOUT;
}

/* Returns true if one more line may be written. Two threads may let a line too many through. */
static bool may_trace(void)
{
    static _Atomic uint64_t second;
    static _Atomic unsigned lines, left_out;
    uint64_t now = log_read_clock_us() / 1000000;
    if (atomic_exchange(&second, now) != now) {
        atomic_store(&lines, 0);
        unsigned count = atomic_exchange(&left_out, 0);
        if (count > 0)
            log_debug("%u lines of the trace were left out", count);
    }
    if (atomic_fetch_add(&lines, 1) < LOG_TRACE_LINES_PER_SECOND && has_room())
        return true;
    atomic_fetch_add(&left_out, 1);
    return false;
}

void log_trace(uint64_t request, const char *format, ...)
{
    char name[LOG_REQUEST_BYTES] = "-", text[LOG_LINE_BYTES];
    int saved = errno;
    if (log_is_debug() && may_trace()) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(text, sizeof text, format, arguments);
        va_end(arguments);
        if (request && name_request)
            name_request(request, name);
        log_write(LOG_LEVEL_DEBUG, "[%s] %s", name, text);
    }
    errno = saved;
}
