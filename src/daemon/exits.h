/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exits - tells the loop when a process that owns sessions exits
 *
 * One pidfd for each watched process. Loop's thread.
 */
#ifndef GMSFS_DAEMON_EXITS_H
#define GMSFS_DAEMON_EXITS_H

#include "base/idvec.h"
#include "core/core.h"
#include "daemon/loop.h"

struct exits {
    struct loop *loop;
    void (*on_exit)(void *context, struct core_process process);
    void *context;
    struct idvec watches; /* by pid */
};

void exits_init(struct exits *exits, struct loop *loop,
                void (*on_exit)(void *context, struct core_process process), void *context);
void exits_free(struct exits *exits);
/* Once for each process. -ESRCH: it is gone already, or its number belongs to another by now. */
int exits_watch(struct exits *exits, struct core_process process);
void exits_unwatch(struct exits *exits,
                   struct core_process process); /* fine if it is not watched */

#endif
