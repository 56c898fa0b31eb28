/* SPDX-License-Identifier: Apache-2.0 */
/*
 * at_work - which requests a worker serves at this moment, in memory that its keeper reads
 *
 * So the keeper can name a request that kills worker after worker, also where it does so on a
 * helper thread or in the `done` of its job (struct fs_ledger). The loop notes the request that it
 * serves, each job carries that number (struct job), and the helper that runs the job notes it. Any
 * thread may call these, except where a comment says otherwise.
 */
#ifndef GMSFS_DAEMON_AT_WORK_H
#define GMSFS_DAEMON_AT_WORK_H

#include "base/log.h"
#include "fs/fs.h"

/* Clears the notes of the last worker. */
void at_work_clear(struct fs_ledger *ledger);
/* Notes that the loop serves this request from now on (0: none in particular). Returns the former
 * note. */
uint64_t at_work_set(struct fs_ledger *ledger, uint64_t work);
uint64_t at_work_get(const struct fs_ledger *ledger); /* the loop's note */
/* Notes that a helper serves this request. Returns the place for at_work_leave; 0 if there is no
 * place to note it. */
unsigned at_work_enter(struct fs_ledger *ledger, uint64_t work);
void at_work_leave(struct fs_ledger *ledger, unsigned place);
/* Writes how the log names a request: "r" and the kernel's number; "f", the process on `.fds`, and
 * the operation; "g", the GMS connection, and the frame. */
void at_work_name(uint64_t work, char name[LOG_REQUEST_BYTES]);

#endif
