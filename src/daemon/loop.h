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
    /* Called before the `done` of each job, with the request that the job serves (struct job). NULL
     * if unused, as on_step. */
    void (*on_job)(void *context, uint64_t request);
    /* Called after each served event: a descriptor, a job, a timeout, on_idle. */
    void (*on_step)(void *context);
    /* Called a second or so after an event, then each second while it returns true; never at
     * rest. */
    bool (*on_tick)(void *context, uint64_t now_ms);
};

int loop_new(const struct loop_calls *calls, struct loop **loop);
void loop_free(struct loop *loop);

/* Runs until loop_stop. Returns 0, or a negative errno of epoll. */
int loop_run(struct loop *loop);
/* Runs one turn that sleeps at most timeout_ms. */
int loop_turn(struct loop *loop, uint64_t timeout_ms);
void loop_stop(struct loop *loop);

/* Returns these functions as base/event.h declares them, for modules that do not know this loop. */
struct event_loop loop_get_calls(struct loop *loop);
int loop_watch(struct loop *loop, struct event_watch *watch, uint32_t events);
void loop_unwatch(struct loop *loop, struct event_watch *watch);
/* Returns the number of watched descriptors. Any thread may call it. */
uint64_t loop_count_watches(const struct loop *loop);
/* UINT64_MAX means never. */
void loop_set_timeout(struct loop *loop, struct event_timeout *timeout, uint64_t at_ms);
void loop_clear_timeout(struct loop *loop, struct event_timeout *timeout);

void loop_set_idle(struct loop *loop);

/* Has job->done called on the loop's thread. Any thread may call it. */
void loop_post(struct loop *loop, struct job *job);

uint64_t loop_now_ms(void); /* monotonic */

#endif
