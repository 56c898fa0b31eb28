/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turns - transfers of bytes take turns, by user
 *
 * For the parts of the service that move bytes. A few run at a time, of one user at most half of
 * what the others leave free; whoever has more waits, first come first served among its own, and
 * users take turns. So what one has in the queue keeps nobody else waiting, and what runs has an
 * end in memory: a read's bytes are there only while it runs.
 */
#ifndef GMSFS_SERVICE_TURNS_H
#define GMSFS_SERVICE_TURNS_H

#include "service/service_internal.h"
#include "service/steps.h"

struct turn {
    struct task task; /* first: what runs when it is its turn */
    uint64_t store;
    uint32_t uid;
    int error;             /* it was its turn, and no thread could be had: the job did not run */
    enum turn_state state; /* these are turns.c's */
    uint64_t works_for;
    struct turn *next;
};

void turns_init(struct service *s);
void turns_free(struct service *s);
/* The task runs now or when it is its turn; then task->end has to call turn_end first. 0; -EDQUOT,
 * -ENOMEM: too many of this user, or altogether, wait already. `must`: it ends something, and is
 * never refused for that. */
int turn_begin(struct service *s, struct turn *turn, bool must);
void turn_end(struct service *s, struct turn *turn);

#endif
