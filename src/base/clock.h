/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock - the time, in milliseconds and microseconds
 *
 * For parts that may read the clock. The monotonic clock, which stops while the machine sleeps,
 * measures durations; the wall clock is for users. From any thread.
 */
#ifndef GMSFS_BASE_CLOCK_H
#define GMSFS_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Monotonic. */
uint64_t clock_now_ms(void);
uint64_t clock_now_us(void);
/* Since 1970. */
uint64_t clock_wall_ms(void);
uint64_t clock_wall_us(void);
#define CLOCK_TEXT_BYTES 32u

/* Writes "2026-01-31T23:59:59Z", or "-", and returns the text. */
const char *clock_format_utc(uint64_t since_1970_s, char text[CLOCK_TEXT_BYTES]);
/* Returns the time `ms` milliseconds from now, for a wait by this clock. */
struct timespec clock_after_ms(clockid_t clock, unsigned ms);
/* Sleeps; a handled signal ends it early. */
void clock_pause_ms(unsigned ms);

#endif
