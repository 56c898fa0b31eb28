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

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum log_level {
    LOG_LEVEL_ERROR = 0,
    LOG_LEVEL_WARNING,
    LOG_LEVEL_INFO, /* the default */
    LOG_LEVEL_DEBUG,
};

/* The level that is in force. Read it by log_is_debug() or log_get_level(). */
extern _Atomic int log_level_now;

void log_set_level(enum log_level level);
enum log_level log_get_level(void);
/* Returns "error", "warning", "info" or "debug". */
const char *log_level_name(enum log_level level);
/* "error", "warning", "info", "debug". 0 or -EINVAL */
int log_parse_level(const char *text, enum log_level *level);

/* Keeps errno. Cuts a message after a kilobyte, and makes it harmless (clean.h). */
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)   log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* ---- the trace: the steps of the daemon, at level debug ---------------------------------------
 */

/* Lines of the trace that are written in a second. Further lines are counted and left out, and so
 * is a line for which standard error has no room: the trace never waits for its reader. Requests
 * and their answers take a part of them, so that clients that ask in a loop hide no step. */
#define LOG_TRACE_LINES_PER_SECOND    5000u
#define LOG_TRACE_REQUESTS_PER_SECOND 4000u
#define LOG_REQUEST_BYTES             32u

/* Returns true if the trace is on. Ask this before log_trace(): off, it costs one load and one
 * branch, which is predicted. */
static inline bool log_is_debug(void)
{
    return __builtin_expect(
        atomic_load_explicit(&log_level_now, memory_order_relaxed) >= LOG_LEVEL_DEBUG, 0);
}

uint64_t log_read_clock_us(void); /* of a clock that only goes forward */
/* Returns the time for log_trace to measure from, or 0 if the trace is off. */
static inline uint64_t log_begin_trace(void)
{
    return log_is_debug() ? log_read_clock_us() : 0;
}

/* Sets the function that writes the name of a request, by which its lines are found. Before there
 * are threads. */
void log_name_requests(void (*name)(uint64_t request, char text[LOG_REQUEST_BYTES]));
/* Write "[request] text", of a step or of a request's arrival and answer; request 0: none. As
 * log_write otherwise. */
void log_trace(uint64_t request, const char *format, ...) __attribute__((format(printf, 2, 3)));
void log_trace_request(uint64_t request, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
