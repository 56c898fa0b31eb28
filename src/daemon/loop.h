/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop - the worker's event loop
 *
 * Watches descriptors, timeouts, an idle callback, and completions that helper threads post. One
 * thread runs it; loop_post alone may be called from others. Sleeps without a wakeup when there is
 * nothing to do.
 */
#ifndef GMSFS_DAEMON_LOOP_H
#define GMSFS_DAEMON_LOOP_H

#include "base/event.h"
#include "base/job.h"

#include <stdbool.h>
#include <stdint.h>

struct loop;

struct loop_calls {
    void *context;
    void (*on_idle)(void *context);
    /* Before each job that is done: for which request (struct job). NULL, as the next. */
    void (*on_job)(void *context, uint64_t request);
    /* After each thing that was served: a descriptor, a job, a timeout, on_idle. NULL: nobody
     * wants to know. */
    void (*on_step)(void *context);
    /* A second or so after something happened, and on as long as it returns true; not at rest. */
    bool (*on_tick)(void *context, uint64_t now_ms);
};

int loop_new(const struct loop_calls *calls, struct loop **loop);
void loop_free(struct loop *loop);

/* Until loop_stop; 0 or a negative errno of epoll. */
int loop_run(struct loop *loop);
/* One turn that sleeps at most timeout_ms. */
int loop_turn(struct loop *loop, uint64_t timeout_ms);
void loop_stop(struct loop *loop);

/* As base/event.h has them; that table of them is for those who do not know this loop. */
struct event_loop loop_get_calls(struct loop *loop);
int loop_watch(struct loop *loop, struct event_watch *watch, uint32_t events);
void loop_unwatch(struct loop *loop, struct event_watch *watch);
/* How many descriptors are watched. Any thread. */
uint64_t loop_count_watches(const struct loop *loop);
/* UINT64_MAX: never. */
void loop_set_timeout(struct loop *loop, struct event_timeout *timeout, uint64_t at_ms);
void loop_clear_timeout(struct event_timeout *timeout);

void loop_set_idle(struct loop *loop);

/* Any thread: job->done runs on the loop's thread. */
void loop_post(struct loop *loop, struct job *job);

uint64_t loop_now_ms(void); /* monotonic */

#endif
