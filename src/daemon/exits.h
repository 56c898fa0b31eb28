/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exits - tells the loop when a process that owns a session exits
 *
 * One pidfd for each watched session. Loop's thread.
 */
#ifndef GMSFS_DAEMON_EXITS_H
#define GMSFS_DAEMON_EXITS_H

#include "base/idvec.h"
#include "core/core.h"
#include "daemon/loop.h"

struct exits {
    struct loop *loop;
    void (*on_exit)(void *context, uint64_t session);
    void *context;
    struct idvec watches; /* by session */
};

void exits_init(struct exits *exits, struct loop *loop,
                void (*on_exit)(void *context, uint64_t session), void *context);
void exits_free(struct exits *exits);
/* -ESRCH: it is gone already, or its number belongs to another process by now. */
int exits_watch(struct exits *exits, struct core_process process, uint64_t session);
void exits_unwatch(struct exits *exits, uint64_t session); /* fine if there is none */

#endif
