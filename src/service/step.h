/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step - what the end of a step of the loop has to do: its queue, which settle.c takes
 *
 * For the files of src/service. A task is a job; when it has run its end is an item of the queue.
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
    struct task *done; /* their jobs have run */
    bool is_unsettled; /* there is anything to do */
    bool sets_timer;   /* a deadline was set or cleared */
    bool has_memory;   /* some is free again: what waits for it is tried */
    bool has_changed;  /* a record may have changed which stores can leave the device */
    bool has_moves;    /* moves that wait for memory are looked at again */
    bool has_endings;  /* a session's last use is over, and an ending waits for that */
    bool has_notes;    /* bounds that were met are told */
};

/* requests.c */
/* Has task->job.run run. -ENOMEM: no thread is there and none can be had; the caller decides what
 * becomes of the work. */
int service_submit(struct service *s, enum service_pool pool, struct task *task);
/* The same for work that frees memory: where there is no thread, it is published what was recorded
 * so far, and the job runs and ends at once. */
void service_submit_or_run(struct service *s, enum service_pool pool, struct task *task);
/* For the end of the step: the task ends, as if its job had run. */
void service_end_task(struct service *s, struct task *task);

#endif
