/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptors - how the worker's descriptors are divided
 *
 * Memory, connections and watched processes each cost some, and whichever grows must leave the
 * others theirs, and the worker its own, without which no caller could be looked up in /proc. Pure.
 */
#ifndef GMSFS_DAEMON_DESCRIPTORS_H
#define GMSFS_DAEMON_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

struct descriptors {
    uint64_t limit; /* RLIMIT_NOFILE */
    uint64_t own;   /* for what comes and goes within a request, and what is there from start */
    uint64_t connections; /* at most */
    uint64_t watches;     /* at most */
    uint64_t regions;     /* at most: of what memory may have */
};

struct descriptors descriptors_divide(uint64_t limit);
/* May memory have this descriptor, while so many are watched by the loop (connections, processes,
 * and a few of the worker's own)? New ones take the lowest free number, so it tells how many there
 * are. */
bool descriptors_admit(const struct descriptors *descriptors, int fd, uint64_t watched);

#endif
