/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeline - spans of time in a file that chrome://tracing and ui.perfetto.dev open
 *
 * For the daemon (`-o trace=`) and `gmsfs load --trace`. From any thread: a span is copied into a
 * bounded ring, and a thread of its own writes it, so that a slow or full disk delays nothing else.
 * Spans that do not fit, or cannot be written, are dropped and counted. The file is a JSON array,
 * an object for each line. While it is written, and after its process was killed, it has no closing
 * bracket, which the format allows: it can be opened at any time. One timeline in a process.
 */
#ifndef GMSFS_BASE_TIMELINE_H
#define GMSFS_BASE_TIMELINE_H

#include "base/failure.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define TIMELINE_MAX_BYTES    (UINT64_C(64) << 20) /* of a file */
#define TIMELINE_NAME_BYTES   32u
#define TIMELINE_DETAIL_BYTES 64u

extern atomic_bool timeline_on;

/* In memory that another build continues: only append fields. */
struct timeline_numbers {
    uint64_t written, dropped;
};

struct timeline_options {
    const char *process; /* its name in the timeline */
    int fd;              /* from timeline_open; becomes the timeline's */
    uint64_t max_bytes;
    /* Called by the writing thread when the file has max_bytes: timeline_reopen brings another one.
     * Returns 0; else the file grows, and the next write calls it again. NULL: there is none, and
     * all later spans are dropped. */
    int (*full)(void *context);
    void *context;
    struct timeline_numbers *numbers; /* the caller's, counted on; NULL: from 0 */
};

/* Opens a file for a timeline, of mode 0600. An earlier one there becomes PATH.1, and
 * replaces an earlier PATH.1. Follows no link in the last part of the path, and takes nothing but a
 * regular file of the caller's user. Returns a descriptor, or a negative errno with the reason in
 * `failure`. */
int timeline_open(const char *path, struct failure *failure);
/* Continues where another process ended. 0, -ENOMEM, -EAGAIN; takes the descriptor in any case. */
int timeline_start(const struct timeline_options *options);
/* Writes to this file from now on. Takes the descriptor. */
void timeline_reopen(int fd);
/* Writes the remaining spans and the closing bracket, in at most a second. Returns 0, or the first
 * error of the file. */
int timeline_stop(void);
/* Returns false if there is no timeline. */
bool timeline_get_numbers(struct timeline_numbers *numbers);

static inline bool timeline_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&timeline_on, memory_order_relaxed), 0);
}

/* Monotonic. 0: there is no timeline, and the end of the span needs no call. */
uint64_t timeline_begin(void);
/* Adds a span of the calling thread from began_us until now. Spans of a thread lie within or after
 * each other. detail: NULL or a text; `category` lives as long as the process. */
void timeline_end(const char *category, const char *name, uint64_t began_us, const char *detail);
/* Adds a span that may overlap others: `id` is unique among those of its category. */
void timeline_add(const char *category, const char *name, uint64_t id, uint64_t began_us,
                  const char *detail);

#endif
