/* SPDX-License-Identifier: Apache-2.0 */
/*
 * log - messages of the daemon for its administrator
 *
 * One line per message on stderr, written with one write(2): "gmsfs: text", or "<N>text" with
 * syslog's number when systemd's journal reads it (JOURNAL_STREAM). Any module that is not pure may
 * call it, from any thread. It reports no failure, allocates nothing, and never ends the process.
 */
#ifndef GMSFS_BASE_LOG_H
#define GMSFS_BASE_LOG_H

enum log_level {
    LOG_LEVEL_ERROR = 0,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_INFO, /* the default */
    LOG_LEVEL_DEBUG,
};

void log_set_level(enum log_level level);
/* "error", "warning", "info", "debug". 0 or -EINVAL */
int log_parse_level(const char *text, enum log_level *level);

/* Keeps errno. Cuts a message after a kilobyte, and makes it harmless (clean.h). */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)   log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

#endif
