/* SPDX-License-Identifier: Apache-2.0 */
/*
 * descriptors - how the worker's descriptors are divided
 *
 * Memory, connections and watched processes need descriptors. Growth of one kind must leave the
 * shares of the others, and the worker's own: without it no caller could be looked up in /proc.
 * Pure.
 */
#ifndef GMSFS_DAEMON_DESCRIPTORS_H
#define GMSFS_DAEMON_DESCRIPTORS_H

#include <stdbool.h>
#include <stdint.h>

struct descriptors {
    uint64_t limit;       /* RLIMIT_NOFILE */
    uint64_t own;         /* for use within a request, and for those open from the start */
    uint64_t connections; /* most */
    uint64_t watches;     /* most */
    uint64_t regions;     /* most; part of the share of memory */
};

struct descriptors descriptors_divide(uint64_t limit);
/* Returns true if memory may have this descriptor while the loop watches this many (connections,
 * processes, and a few of the worker's own). A new descriptor has the lowest free number, so `fd`
 * is about the number of open descriptors. */
bool descriptors_admit(const struct descriptors *descriptors, int fd, uint64_t watched);

#endif
