/* SPDX-License-Identifier: Apache-2.0 */
/*
 * privileges - the capabilities of root that the keeper and its workers keep
 *
 * The keeper keeps the capabilities that mounting needs, and most of them take effect in a few
 * calls only, between privileges_raise and privileges_rest. A worker, which decodes bytes of
 * clients, keeps almost none, and neither the worker nor a program that it starts can gain any
 * (no_new_privs). doc/takeover.md lists the capabilities of each process with the reasons. Where
 * the kernel refuses, and for an ordinary user, capabilities stay as they are. Call these before a
 * process has threads: capabilities belong to a thread.
 */
#ifndef GMSFS_DAEMON_PRIVILEGES_H
#define GMSFS_DAEMON_PRIVILEGES_H

#include <stdbool.h>

/* Limits this process, and every process that it starts, to the keeper's capabilities. */
void privileges_begin_keeper(void);
/* For the keeper, or a child of it that has just been forked. */
void privileges_raise(void);
void privileges_rest(void);
/* Returns true if the keeper may register files with the kernel (CAP_SYS_ADMIN). */
bool privileges_may_register(void);
/* For a child of the keeper; it cannot be undone. `writes_anywhere`: the worker writes in
 * directories of other users too. */
void privileges_become_worker(bool writes_anywhere);

#endif
