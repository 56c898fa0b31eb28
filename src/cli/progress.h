/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress - shows the progress of a long copy on stderr
 *
 * For the commands that touch every byte of a store. On a terminal a bar with rate and time left,
 * drawn over itself; elsewhere a plain line every few seconds, so that a log stays readable. For
 * one thread.
 */
#ifndef GMSFS_CLI_PROGRESS_H
#define GMSFS_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROGRESS_LINE_MS    5000u /* between plain lines */
#define PROGRESS_TEXT_BYTES 512u

struct progress {
    const char *verb; /* "copying" */
    uint64_t whole_bytes;
    uint64_t start_ms;
    uint64_t line_ms; /* of the last plain line */
    unsigned width;   /* of the terminal; 0: none */
    bool quiet;
    bool drawn; /* a bar stands on the line */
};

void progress_begin(struct progress *progress, const char *verb, uint64_t whole_bytes, bool quiet);
void progress_show(struct progress *progress, uint64_t done_bytes);
/* Wipes the bar, so that other text can follow. Milliseconds since progress_begin. */
uint64_t progress_end(struct progress *progress);

/* As progress_show, for several lines that are drawn together: one for each device. */
void progress_show_lines(struct progress *lines, const uint64_t *done_bytes, size_t count);
/* Milliseconds since the first one began. */
uint64_t progress_end_lines(struct progress *lines, size_t count);

/* Formats one line for a terminal of `width` columns, or for a log if width is 0; pure. */
void progress_format(char text[PROGRESS_TEXT_BYTES], const char *verb, uint64_t done_bytes,
                     uint64_t whole_bytes, uint64_t passed_ms, unsigned width);

#define PROGRESS_TOTAL_BYTES 128u

/* Returns "N bytes (SIZE) in S s, R GB/s": the time since start_ms, and the rate of the copying
 * alone. Decimal gigabytes, as disks and links are sold. */
const char *progress_format_total(char text[PROGRESS_TOTAL_BYTES], uint64_t bytes,
                                  uint64_t start_ms, uint64_t copied_ms);

#endif
