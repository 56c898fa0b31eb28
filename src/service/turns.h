/* SPDX-License-Identifier: Apache-2.0 */
/*
 * turns - transfers of bytes take turns, by user
 *
 * For the parts of the service that move bytes. A few run at a time, of one user at most half of
 * the slots that the others leave free; its further transfers wait in order, and users take turns.
 * So the queue of one user keeps no other waiting, and the memory for running transfers is limited:
 * a read's bytes are there only while it runs.
 */
#ifndef GMSFS_SERVICE_TURNS_H
#define GMSFS_SERVICE_TURNS_H

#include "service/service_internal.h"
#include "service/steps.h"

struct turn {
    struct task task; /* first: runs when it is its turn */
    uint64_t store;
    uint32_t uid;
    int error;             /* there was no thread when its turn came: the job did not run */
    enum turn_state state; /* from here on owned by turns.c */
    uint64_t works_for;
    struct turn *next;
};

void turns_init(struct service *s);
void turns_free(struct service *s);
/* Runs the task now or when it is its turn; then task->end has to call turn_end first. 0; -EDQUOT,
 * -ENOMEM: too many of this user, or of all, wait already. `must`: never refused for that, because
 * it ends something. */
int turn_begin(struct service *s, struct turn *turn, bool must);
void turn_end(struct service *s, struct turn *turn);

#endif
