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

/* `options` are those of a fresh core. What answers the kernel may not have got is given to
 * on_answer, in their order (NULL: nobody wants them). -EPROTO, -EPROTONOSUPPORT: the journal is
 * damaged or of another version; -ENOMEM. */
struct replay {
    const struct core_options *options;
    void (*on_answer)(void *context, const void *bytes, size_t size);
    void *context;
};
int replay_journal(const struct journal *journal, const struct replay *replay, struct core **core,
                   struct failure *failure);

#endif
