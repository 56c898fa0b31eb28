/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/clean.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static _Atomic int current_level = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
    atomic_store(&current_level, (int)level);
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
    if ((int)level > atomic_load(&current_level))
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
