/* SPDX-License-Identifier: Apache-2.0 */
/*
 * at_work - which requests a worker is at, where its keeper sees it
 *
 * So one that kills worker after worker is known, also where it does so on a helper thread or when
 * its job is done (struct fs_ledger). The loop says what it serves, jobs carry that along (struct
 * job), and who works at one says so. Any thread, where it does not say otherwise.
 */
#ifndef GMSFS_DAEMON_AT_WORK_H
#define GMSFS_DAEMON_AT_WORK_H

#include "fs/fs.h"

/* The next worker begins. */
void at_work_clear(struct fs_ledger *ledger);
/* The loop is at this from now on, 0: at nothing in particular; returns what it was at. */
uint64_t at_work_set(struct fs_ledger *ledger, uint64_t what);
uint64_t at_work_get(const struct fs_ledger *ledger); /* of the loop */
/* A helper begins with it; the place for at_work_leave, 0: nothing is to be seen. */
unsigned at_work_enter(struct fs_ledger *ledger, uint64_t what);
void at_work_leave(struct fs_ledger *ledger, unsigned place);

#endif
