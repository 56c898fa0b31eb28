/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay - the state that a journal tells of
 *
 * The snapshot decoded, or the state that the journal begins with, and all records applied that
 * came after it. Nothing else decides it: not this build's bounds, this process's limits or
 * options.
 */
#ifndef GMSFS_DAEMON_REPLAY_H
#define GMSFS_DAEMON_REPLAY_H

#include "core/core.h"
#include "daemon/transaction.h"
#include "journal/journal.h"

/* A fresh core of these options, before any record: the journal begins with it. -ENOMEM */
int replay_begin(struct transaction *transaction, const struct core_options *options);
/* -EPROTO, -EPROTONOSUPPORT: the journal is damaged or of
 * another version; -ENOMEM. */
int replay_journal(const struct journal *journal, struct core **core, struct failure *failure);

/* Aborts if the journal does not tell of the state of this core: tests/hooks.c. */
#ifdef GMSFS_TEST_HOOKS
void replay_check(const struct core *core, const struct journal_files *files);
#else
#define replay_check(core, files) ((void)0)
#endif

#endif
