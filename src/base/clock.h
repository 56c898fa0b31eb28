/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock - moments, in milliseconds and microseconds
 *
 * For parts that may look at the clock. The monotonic one, which does not run while the machine
 * sleeps, measures how long something takes; the wall clock tells users when something was. From
 * any thread.
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
/* So many milliseconds from now, for a wait by this clock. */
struct timespec clock_after_ms(clockid_t clock, unsigned ms);
/* Sleeps; a signal that is handled ends it early. */
void clock_pause_ms(unsigned ms);

#endif
