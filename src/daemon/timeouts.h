/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeouts - how long the kernel lets a request of FUSE go unanswered
 *
 * Where an administrator set a bound, the kernel ends the whole mount when one request stays
 * unanswered that long, and an open that waits for a lock is such a request.
 */
#ifndef GMSFS_DAEMON_TIMEOUTS_H
#define GMSFS_DAEMON_TIMEOUTS_H

#include <stdint.h>

/* How long a request may be parked, UINT64_MAX: for ever. The two arguments in seconds, 0 where
 * there is no bound. Pure. */
uint64_t timeouts_get_parking_ms(uint64_t default_s, uint64_t max_s);

/* The same from /proc/sys/fs/fuse, whose files older kernels lack; warns if there is a bound. */
uint64_t timeouts_read_parking_ms(void);

#endif
