/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exits - tells the loop when a process that owns sessions exits
 *
 * One pidfd for each watched process. For the loop's thread.
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
/* Call it once for each process. -ESRCH: the process has gone, or its number belongs to another. */
int exits_watch(struct exits *exits, struct core_process process);
void exits_unwatch(struct exits *exits,
                   struct core_process process); /* no effect if it is not watched */

#endif
