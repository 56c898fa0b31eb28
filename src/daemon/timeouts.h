/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timeouts - how long the kernel lets a FUSE request go unanswered
 *
 * If an administrator has set a bound, the kernel ends the whole mount when one request stays
 * unanswered that long, and an open that waits for a lock is such a request.
 */
#ifndef GMSFS_DAEMON_TIMEOUTS_H
#define GMSFS_DAEMON_TIMEOUTS_H

#include <stdint.h>

/* Returns how long a request may be parked; UINT64_MAX means for ever. The arguments are in
 * seconds, 0 if there is no bound. Pure. */
uint64_t timeouts_get_parking_ms(uint64_t default_s, uint64_t max_s);

/* Reads the bounds from /proc/sys/fs/fuse (older kernels do not have these files) and warns if
 * there is one. */
uint64_t timeouts_read_parking_ms(void);

#endif
