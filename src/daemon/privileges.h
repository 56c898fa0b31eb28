/* SPDX-License-Identifier: Apache-2.0 */
/*
 * privileges - what is left of root's capabilities to the keeper and to its workers
 *
 * The keeper keeps what it takes to mount, and of that uses most only in a few calls, between
 * privileges_raise and privileges_rest. A worker, which decodes what clients send, has hardly
 * anything, and neither it nor what it starts gets any again (no_new_privs). doc/takeover.md says
 * who has what and why. Where the kernel refuses, and for an ordinary user, it stays at what there
 * is. Before a process has threads: capabilities are a thread's.
 */
#ifndef GMSFS_DAEMON_PRIVILEGES_H
#define GMSFS_DAEMON_PRIVILEGES_H

#include <stdbool.h>

/* From here on no process that this one starts has more than this one. */
void privileges_begin_keeper(void);
/* In the keeper, or in a child of it that has just been forked. */
void privileges_raise(void);
void privileges_rest(void);
/* In a child of the keeper: for good. `writes_anywhere`: also into directories of others. */
void privileges_become_worker(bool writes_anywhere);

#endif
