/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the journal share: its head, as it lies in its file. Nobody else includes it.
 */
#ifndef GMSFS_JOURNAL_JOURNAL_INTERNAL_H
#define GMSFS_JOURNAL_JOURNAL_INTERNAL_H

#include "journal/journal.h"

#include <stdatomic.h>

#define HEAD_MAGIC UINT64_C(0x6c6e6a7366736d67) /* "gmsfsjnl" */
#define HEAD_BYTES 4096u

/*
 * The generation of a file of transactions is counted from 0; it is in file generation % 2.
 * Snapshot g, in file g % 2 as well, stands for all transactions before offset from[g % 2] of
 * generation g.
 */
struct head {
    uint64_t magic;
    uint32_t version, pad;
    _Atomic uint64_t base;    /* the generation that reading begins with; 0: without a snapshot */
    _Atomic uint64_t writing; /* that transactions go to: base, or base + 1 */
    _Atomic uint64_t tails[2], delivered[2];
    uint64_t from[2], snapshot_bytes[2], snapshot_hash[2];
};
_Static_assert(sizeof(struct head) + JOURNAL_OWN_BYTES <= HEAD_BYTES, "its file is one page");

#endif
