/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay - rebuilds the state from a journal
 *
 * Decodes the snapshot, or the state that the journal begins with, and applies all later records.
 * Nothing else affects the result: not this build's bounds, nor this process's limits or options.
 */
#ifndef GMSFS_DAEMON_REPLAY_H
#define GMSFS_DAEMON_REPLAY_H

#include "core/core.h"
#include "daemon/transaction.h"
#include "journal/journal.h"

/* Notes a fresh core with these options as the start of the journal. -ENOMEM */
int replay_begin(struct transaction *transaction, const struct core_options *options);
/* -EPROTO: the journal is damaged; -EPROTONOSUPPORT: it is of another version; -ENOMEM. */
int replay_journal(const struct journal *journal, struct core **core, struct failure *failure);

/* Applies the records one by one and checks the state by core_check() before the first and after
 * each. records: number that passed. -EINVAL: the state after the next one is wrong, as `failure`
 * says; else as replay_journal. */
int replay_check_each(const struct journal *journal, uint64_t *records, struct failure *failure);

/* Aborts if replaying the journal does not give the state of this core (tests/hooks.c). */
#ifdef GMSFS_TEST_HOOKS
void replay_check(const struct core *core, const struct journal_files *files);
#else
#define replay_check(core, files) ((void)0)
#endif

#endif
