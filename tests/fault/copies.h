/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copies - moves that a copier does, to kill it at each of their steps
 *
 * Like deeds.h, for a mount of GPU memory with tiers besides it. The store has the allocation `f`,
 * of several parts of a lane, all of whose bytes are known; `before` is done first, without a kill.
 * For kills.c.
 */
#ifndef GMSFS_TESTS_FAULT_COPIES_H
#define GMSFS_TESTS_FAULT_COPIES_H

#include "deeds.h"

#define COPIES_BEGIN \
    "open W/lock rw clear open W/allocations/f rwc count 5000000 close use 0 commit close "

struct copy {
    struct deed deed;
    const char *before;
};

#define WHOLE "reader W open W/allocations/f r hash"

static const struct copy COPIES[] = {
    {{"copies", "demotion", "open W/residency rw write host rest", NULL, WHOLE}, NULL},
    {{"copies", "demotion-with-a-copy", "open W/residency rw write host rest", NULL, WHOLE},
     "open W/residency rw write +host rest"},
    {{"copies", "promotion", "open W/residency rw write device rest", NULL, WHOLE},
     "open W/residency rw write host rest"},
    {{"copies", "promotion-waited-for", "reader W open W/allocations/f r hash", NULL, WHOLE},
     "open W/residency rw write host rest"},
    {{"copies", "spare", "open W/residency rw write +host rest", NULL, WHOLE}, NULL},
    {{"copies", "spare-dropped", "open W/residency rw write -host rest", NULL, WHOLE},
     "open W/residency rw write +host rest"},
    {{"copies", "to-disk", "open W/residency rw write disk rest", NULL, WHOLE}, NULL},
    {{"copies", "from-disk", "open W/residency rw write device rest", NULL, WHOLE},
     "open W/residency rw write disk rest"},
    {{"copies", "read", "open W/allocations/f r hash", NULL, WHOLE}, NULL},
    {{"copies", "write", "open W/lock rw open W/allocations/f rw count 300000 use 0 commit", NULL,
      "open W/allocations/f r hash"},
     NULL},
};

#endif
