/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step - the work for the end of a step of the loop: its queue, which settle.c empties
 *
 * For the files of src/service. A task is a job with a function for its end: when the job has run,
 * the task's end is an item of the queue.
 */
#ifndef GMSFS_SERVICE_STEP_H
#define GMSFS_SERVICE_STEP_H

#include "base/job.h"
#include "service/host.h"

struct task {
    struct job job; /* first */
    struct service *service;
    void (*end)(struct service *s, struct task *task);
    struct task *next; /* of step.done */
};

struct step {
    struct task *done; /* tasks after their jobs */
    bool is_unsettled; /* the end of the step has work */
    bool sets_timer;   /* a deadline was set or cleared */
    bool has_memory;   /* memory is free again: its waiters are tried */
    bool has_changed;  /* a record may have changed which stores can leave the device */
    bool has_moves;    /* moves that wait for memory are looked at again */
    bool has_endings;  /* the last use of a session is over, and an ending waits for that */
    bool has_notes;    /* bounds that were met have to be recorded */
};

/* requests.c */
/* Has task->job.run run. -ENOMEM: there is no thread, and the caller decides about the work. */
int service_submit(struct service *s, enum service_pool pool, struct task *task);
/* The same for work that frees memory: without a thread it publishes the records so far, then runs
 * and ends the job at once. */
void service_submit_or_run(struct service *s, enum service_pool pool, struct task *task);
/* The end of a task that only has to be freed. */
void service_free_task(struct service *s, struct task *task);
/* Has the task end at the end of the step, as if its job had run. */
void service_end_task(struct service *s, struct task *task);

#endif
