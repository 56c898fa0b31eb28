/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headroom - what the machine and this process's memory cgroups can still give
 *
 * Memory that is charged beyond a cgroup's limit, or beyond what the machine has, is answered by
 * the OOM killer and not by an errno. Whoever commits memory asks here first. It reads /proc and
 * the cgroup trees (v1 and v2, from the process's own group up to the root) and counts file cache
 * as free, for the kernel drops that by itself. For src/vmm, for the daemon, which warns of swap,
 * and for the commands, which ask what the page cache can hold.
 *
 * It never writes anything, never allocates what it measures, and never counts swap as memory: a
 * device's is meant to be resident. How much of it may be swapped out all the same is told apart.
 */
#ifndef GMSFS_VMM_HEADROOM_H
#define GMSFS_VMM_HEADROOM_H

#include <stdint.h>

struct headroom;

struct headroom_info {
    uint64_t machine_bytes;   /* MemTotal */
    uint64_t limit_bytes;     /* MemTotal or the tightest cgroup limit above this process */
    uint64_t available_bytes; /* what may still be committed; a reserve is kept back already */
    uint64_t free_bytes;      /* the same with the reserve: beyond that the kernel kills */
    uint64_t reserve_bytes;   /* of the machine or the cgroup that has the least free */
};

struct headroom_pool {
    uint64_t total_bytes; /* huge pages that exist or may be made on demand */
    uint64_t free_bytes;
};

/* `root` stands before every path that is read: "" for this machine, a fake tree in tests. */
int headroom_open(const char *root, struct headroom **headroom);
void headroom_close(struct headroom *headroom);

/* Any thread. A cgroup file that is absent or malformed sets no limit; a /proc/meminfo without
 * its numbers is -EIO; lack of descriptors or memory is told as such, never as "no limit". */
int headroom_read(const struct headroom *headroom, struct headroom_info *info);

/* So much of what is available this process will need for itself: it counts as available no more.
 * One number for the process; any thread. */
void headroom_set_aside(uint64_t bytes);

/* How much of this process's memory may be swapped out at most: what the machine has of swap, and
 * the cgroups allow; 0: none of it. Errors as of headroom_read. */
int headroom_read_swap(const struct headroom *headroom, uint64_t *bytes);

/* Counts the processes that the kernel has killed for want of memory: those of this process's own
 * cgroup, else of the nearest above it that tells, and where no cgroup does, of the machine. Only a
 * rise of it means something. Errors as of headroom_read. */
int headroom_read_kills(const struct headroom *headroom, uint64_t *kills);

/* The pool of huge pages of that size; -EOPNOTSUPP if the machine has no such pages. */
int headroom_read_pool(const struct headroom *headroom, uint64_t hugepage_bytes,
                       struct headroom_pool *pool);

/* What is left untouched of `total` bytes: 1 %, at least 64 MiB and at most 1 GiB, and never more
 * than an eighth, so that a small cgroup can be used at all. */
uint64_t headroom_reserve(uint64_t total_bytes);

#endif
