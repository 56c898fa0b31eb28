/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headroom - memory that the machine and this process's memory cgroups can still give
 *
 * Memory that is charged beyond a cgroup's limit, or beyond the machine's memory, is answered by
 * the OOM killer and not by an errno. So code that commits memory asks here first. It reads /proc
 * and the cgroup trees (v1 and v2, from the process's own group up to the root) and counts file
 * cache as free, because the kernel drops that by itself. For src/vmm, for the daemon, which warns
 * of swap, and for the commands, which ask how much the page cache can hold.
 *
 * It never writes anything, never allocates memory to measure it, and never counts swap as memory:
 * a device's memory is meant to be resident. The part of it that may be swapped out nevertheless is
 * reported separately.
 */
#ifndef GMSFS_VMM_HEADROOM_H
#define GMSFS_VMM_HEADROOM_H

#include <stdint.h>

struct headroom;

struct headroom_info {
    uint64_t machine_bytes;   /* MemTotal */
    uint64_t limit_bytes;     /* MemTotal or the tightest cgroup limit above this process */
    uint64_t available_bytes; /* bytes that may still be committed, without the reserve */
    uint64_t free_bytes;      /* the same with the reserve: beyond it the kernel kills */
    uint64_t reserve_bytes;   /* of the machine or the cgroup with the least free memory */
};

struct headroom_pool {
    uint64_t total_bytes; /* huge pages that exist or may be made on demand */
    uint64_t free_bytes;
};

/* `root` stands before every path: "" for this machine, a fake tree in tests. */
int headroom_open(const char *root, struct headroom **headroom);
void headroom_close(struct headroom *headroom);

/* Any thread. A cgroup file that is absent or malformed sets no limit; a /proc/meminfo without its
 * numbers is -EIO; a lack of descriptors or memory is an error, never "no limit". */
int headroom_read(const struct headroom *headroom, struct headroom_info *info);

/* Sets how many of the available bytes this process needs for itself: they count as available no
 * more. One number for the process; any thread. */
void headroom_set_aside(uint64_t bytes);

/* Returns an upper bound of this process's memory that may be swapped out: the machine's swap, as
 * far as the cgroups allow; 0: none. Errors as headroom_read. */
int headroom_read_swap(const struct headroom *headroom, uint64_t *bytes);

/* Counts the processes that the kernel has killed because memory ran out: in this process's own
 * cgroup, else in the nearest one above that has a count, else in the machine. Only an increase has
 * a meaning. Errors as headroom_read. */
int headroom_read_kills(const struct headroom *headroom, uint64_t *kills);

/* Measures the pool of huge pages of that size; -EOPNOTSUPP if the machine has no such pages. */
int headroom_read_pool(const struct headroom *headroom, uint64_t hugepage_bytes,
                       struct headroom_pool *pool);

/* Returns the part of `total` bytes that stays untouched: 1 %, at least 64 MiB and at most 1 GiB,
 * and never more than an eighth, so that a small cgroup can be used at all. */
uint64_t headroom_reserve(uint64_t total_bytes);

#endif
