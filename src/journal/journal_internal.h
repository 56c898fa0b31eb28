/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of the head file; only journal*.c include it. */
#ifndef GMSFS_JOURNAL_JOURNAL_INTERNAL_H
#define GMSFS_JOURNAL_JOURNAL_INTERNAL_H

#include "journal/journal.h"

#include <stdatomic.h>

#define HEAD_MAGIC UINT64_C(0x6c6e6a7366736d67) /* "gmsfsjnl" */
#define HEAD_BYTES 4096u

/* Of the files, in the order of struct journal_files: `gmsfs journal` finds them by these. */
#define JOURNAL_FILE_NAMES                                                               \
    "journal", "journal-transactions-0", "journal-transactions-1", "journal-snapshot-0", \
        "journal-snapshot-1"

/*
 * Generations of transactions count from 0; generation g is in file g % 2. Snapshot g, also in file
 * g % 2, replaces all transactions before offset from[g % 2] of generation g.
 */
struct head {
    uint64_t magic;
    uint32_t version, pad;
    _Atomic uint64_t base;    /* generation with which reading begins; 0: without a snapshot */
    _Atomic uint64_t writing; /* generation that is written: base, or base + 1 */
    _Atomic uint64_t tails[2], delivered[2];
    uint64_t from[2], snapshot_bytes[2], snapshot_hash[2];
};
_Static_assert(sizeof(struct head) + JOURNAL_COUNTS_BYTES + JOURNAL_OWN_BYTES <= HEAD_BYTES,
               "its file is one page");

#endif
