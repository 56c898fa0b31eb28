/* SPDX-License-Identifier: Apache-2.0 */
/*
 * monitor - what a management library says of a GPU, asked for on a thread of its own
 *
 * Such a library's calls may hang behind a kernel module's lock for as long as somebody else's
 * large operation takes, so nobody but the thread here makes them, opening the library included. It
 * sleeps until it is asked. Errors of the device are waited for by a thread of the library's own.
 *
 * Threads: monitor_measure from any thread; it never waits. the others that
 * wait are for helper threads, monitor_new, unless late, for the first answer.
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
    MONITOR_GONE, /* the GPU is lost, it says */
};

/* A management library (nvml_source.c). All calls but `start` and `stop` may take their time. */
struct monitor_source {
    const char *name; /* for messages */
    /* The library, and the device in it. -ENODEV and others: `why` says what is missing. */
    int (*open)(const uint8_t uuid[16], void **state, char *why, size_t why_bytes);
    void (*close)(void *state);
    /* *free_bytes, that nobody holds, where it is THERE. */
    enum monitor_word (*ask)(void *state, uint64_t *free_bytes);
    /* Gets ready to wait for errors of the device. A failure is told, and all else works. */
    int (*listen)(void *state, void **events, char *why, size_t why_bytes);
    /* From then on bad news go to `health`, from another thread. */
    int (*start)(void *events, struct health *health);
    /* Whether it was started or not. Nothing is reported any more once it returns, and nothing of
     * `state` is needed. */
    void (*stop)(void *events);
};

/* `driver` is for messages, as in "device cuda", and lives as long. A library that has not answered
 * after MONITOR_OPEN_MS is said in the log, and is opened in the background; with `is_late` it is
 * from the start, and only a failure is said. What `source` says of opening it otherwise; `why`
 * then tells the cause, and all else works. */
int monitor_new(const struct monitor_source *source, const char *driver, const uint8_t uuid[16],
                struct health *health, struct measurement *measurement, bool is_late,
                struct monitor **monitor, char *why, size_t why_bytes);
/* Asks for the bytes of the device that nobody holds: the answer goes to `measurement`, as does any
 * other that the library gives, the first one at its opening. What opening it failed with in the
 * background: nobody is asked. */
int monitor_measure(struct monitor *monitor);
/* The same, and waits for an answer to a question from now, MONITOR_REFRESH_MS at most. */
void monitor_refresh(struct monitor *monitor);
/* Does the library answer, and well? What it says is no older than MONITOR_LOOK_MS. */
enum monitor_word monitor_look(struct monitor *monitor);
/* Nothing is told any more once it returns. What hangs in the library is left to the process's end.
 * NULL is fine. */
void monitor_free(struct monitor *monitor);

#endif
