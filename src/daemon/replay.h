/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay - the state that a journal tells of
 *
 * The snapshot decoded, or a fresh core, and all records applied that came after it.
 */
#ifndef GMSFS_DAEMON_REPLAY_H
#define GMSFS_DAEMON_REPLAY_H

#include "core/core.h"
#include "journal/journal.h"

/* `options` are those of a fresh core. -EPROTO, -EPROTONOSUPPORT: the journal is damaged or of
 * another version; -ENOMEM. */
int replay_journal(const struct journal *journal, const struct core_options *options,
                   struct core **core, struct failure *failure);

#endif
