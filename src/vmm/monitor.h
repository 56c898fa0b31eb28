/* SPDX-License-Identifier: Apache-2.0 */
/*
 * monitor - asks a management library about a GPU, on a thread of its own
 *
 * Calls of such a library may hang behind a kernel module's lock during another process's large
 * operation, so only this thread makes them, including the opening of the library. It sleeps until
 * it is asked. A thread of the library's own waits for errors of the device.
 *
 * Threads: monitor_measure from any thread; it never waits. The other functions that wait are for
 * helper threads; monitor_new, unless late, waits for the first answer.
 */
#ifndef GMSFS_VMM_MONITOR_H
#define GMSFS_VMM_MONITOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MONITOR_REFRESH_MS 50
#define MONITOR_LOOK_MS    1000
#define MONITOR_OPEN_MS    3000

struct health;
struct measurement;
struct monitor;

enum monitor_word {
    MONITOR_SILENT, /* it hangs, or fails in another way */
    MONITOR_THERE,
    MONITOR_GONE, /* the library reports the GPU as lost */
};

/* A management library (nvml_source.c). All calls except `start` and `stop` may be slow. */
struct monitor_source {
    const char *name; /* for messages */
    /* Opens the library and finds the device in it. -ENODEV and others: `why` explains the
     * failure. */
    int (*open)(const uint8_t uuid[16], void **state, char *why, size_t why_bytes);
    void (*close)(void *state);
    /* Sets *free_bytes, held by no process, if the result is THERE. */
    enum monitor_word (*ask)(void *state, uint64_t *free_bytes);
    /* Prepares to wait for errors of the device. A failure is logged, and all else works. */
    int (*listen)(void *state, void **events, char *why, size_t why_bytes);
    /* Reports failures to `health` from then on, from another thread. */
    int (*start)(void *events, struct health *health);
    /* Ends the reports, whether started or not. When it returns nothing is reported any more, and
     * `state` is unused. */
    void (*stop)(void *events);
};

/* `driver` is for messages, as in "device cuda", and lives as long. A library that has not answered
 * after MONITOR_OPEN_MS is logged, and opened in the background; with `is_late` it is from the
 * start, and only a failure is logged. Returns the error of `source` otherwise; `why` then explains
 * it, and all else works. */
int monitor_new(const struct monitor_source *source, const char *driver, const uint8_t uuid[16],
                struct health *health, struct measurement *measurement, bool is_late,
                struct monitor **monitor, char *why, size_t why_bytes);
/* Asks for the bytes of the device that no process holds: the answer goes to `measurement`, as do
 * all other answers, the first one at the opening. Returns the error of a failed opening: then
 * nothing is asked. */
int monitor_measure(struct monitor *monitor);
/* The same, and waits for an answer to a question from now, MONITOR_REFRESH_MS at most. */
void monitor_refresh(struct monitor *monitor);
/* Returns the library's judgement, no older than MONITOR_LOOK_MS. */
enum monitor_word monitor_look(struct monitor *monitor);
/* Ends all reports. A thread that hangs in the library is left until the process ends. NULL is
 * fine. */
void monitor_free(struct monitor *monitor);

#endif
