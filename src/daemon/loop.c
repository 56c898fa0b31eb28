/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/loop.h"

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LOOP_EVENTS_PER_TURN 512
#define LOOP_TURN_US         300u /* for all users together, beyond one event of each */
#define LOOP_TICK_MS         1000u

/* The events of one user, as indexes into the turn's events; -1 at the end. */
struct line {
    uint64_t user;
    int first, last;
};

struct loop {
    struct loop_calls calls;
    int epoll_fd, event_fd;
    bool stopping, idle_wanted;
    uint64_t tick_ms;
    struct event_timeout *timeouts; /* the next to expire first */
    /* The events of this turn; the entry of a descriptor that is unwatched meanwhile becomes
     * NULL. */
    struct epoll_event events[LOOP_EVENTS_PER_TURN];
    int event_count;
    int next[LOOP_EVENTS_PER_TURN];          /* next event of the same line, for each event */
    struct line lines[LOOP_EVENTS_PER_TURN]; /* one for each user that has events */
    int line_count;
    /* Index that the turn starts at. It moves on by the number of events served, so that an event
     * left over in the last turn is among the first now. */
    unsigned first_event;
    struct event_watch posted; /* event_fd */
    atomic_uint_fast64_t watches;
    pthread_mutex_t mutex;
    struct job *done, **done_end; /* guarded by the mutex */
};

uint64_t loop_now_ms(void)
{
    return clock_now_ms();
}

static void end_step(struct loop *loop)
{
    if (loop->calls.on_step)
        loop->calls.on_step(loop->calls.context);
}

static struct job *take_done(struct loop *loop)
{
    pthread_mutex_lock(&loop->mutex);
    struct job *done = loop->done;
    loop->done = NULL;
    loop->done_end = &loop->done;
    pthread_mutex_unlock(&loop->mutex);
    return done;
}

static void on_posted(struct event_watch *watch, uint32_t events)
{
    struct loop *loop = watch->loop;
    uint64_t count;
    ssize_t got = read(loop->event_fd, &count, sizeof count);

    (void)got; /* the counter only wakes the loop; the jobs are in the list */
    (void)events;
    for (struct job *next, *job = take_done(loop); job; job = next) {
        next = job->next;
        if (loop->calls.on_job)
            loop->calls.on_job(loop->calls.context, job->request);
        job->done(job);
        end_step(loop);
    }
}

int loop_new(const struct loop_calls *calls, struct loop **loop)
{
    struct loop *new = calloc(1, sizeof *new);
    int error = 0;

    if (!new)
        return -ENOMEM;
    new->calls = *calls;
    new->tick_ms = UINT64_MAX;
    new->done_end = &new->done;
    pthread_mutex_init(&new->mutex, NULL);
    new->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    new->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (new->epoll_fd < 0 || new->event_fd < 0) {
        error = -errno;
        goto out;
    }
    new->posted = (struct event_watch){.fd = new->event_fd, .ready = on_posted};
    error = loop_watch(new, &new->posted, EVENT_READ);
out:
    if (error) {
        loop_free(new);
        return error;
    }
    *loop = new;
    return 0;
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    if (loop->event_fd >= 0)
        close(loop->event_fd);
    pthread_mutex_destroy(&loop->mutex);
    free(loop);
}

static int control(struct loop *loop, int operation, struct event_watch *watch, uint32_t events)
{
    struct epoll_event event = {.data.ptr = watch};

    if (events & EVENT_READ)
        event.events |= EPOLLIN;
    if (events & EVENT_WRITE)
        event.events |= EPOLLOUT;
    if (events & EVENT_HUP)
        event.events |= EPOLLRDHUP;
    if (events & EVENT_TAKEN)
        event.events |= EPOLLET;
    return epoll_ctl(loop->epoll_fd, operation, watch->fd, &event) == 0 ? 0 : -errno;
}

int loop_watch(struct loop *loop, struct event_watch *watch, uint32_t events)
{
    if (watch->loop && watch->events == events)
        return 0;
    int error = control(loop, watch->loop ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, watch, events);
    if (error)
        return error;
    if (!watch->loop)
        atomic_fetch_add(&loop->watches, 1);
    watch->loop = loop;
    watch->events = events;
    return 0;
}

uint64_t loop_count_watches(const struct loop *loop)
{
    return atomic_load(&loop->watches);
}

void loop_unwatch(struct loop *loop, struct event_watch *watch)
{
    if (!watch->loop)
        return;
    epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    watch->loop = NULL;
    atomic_fetch_sub(&loop->watches, 1);
    for (int i = 0; i < loop->event_count; i++) {
        if (loop->events[i].data.ptr == watch)
            loop->events[i].data.ptr = NULL;
    }
}

void loop_clear_timeout(struct loop *loop, struct event_timeout *timeout)
{
    (void)loop;
    if (!timeout->link)
        return;
    *timeout->link = timeout->next;
    if (timeout->next)
        timeout->next->link = timeout->link;
    timeout->link = NULL;
}

void loop_set_timeout(struct loop *loop, struct event_timeout *timeout, uint64_t at_ms)
{
    struct event_timeout **link = &loop->timeouts;

    loop_clear_timeout(loop, timeout);
    timeout->at_ms = at_ms;
    if (at_ms == UINT64_MAX)
        return;
    while (*link && (*link)->at_ms <= at_ms)
        link = &(*link)->next;
    timeout->next = *link;
    timeout->link = link;
    if (timeout->next)
        timeout->next->link = &timeout->next;
    *link = timeout;
}

struct event_loop loop_get_calls(struct loop *loop)
{
    return (struct event_loop){.context = loop,
                               .watch = loop_watch,
                               .unwatch = loop_unwatch,
                               .set_timeout = loop_set_timeout,
                               .clear_timeout = loop_clear_timeout};
}

void loop_set_idle(struct loop *loop)
{
    loop->idle_wanted = true;
}

void loop_stop(struct loop *loop)
{
    loop->stopping = true;
}

void loop_post(struct loop *loop, struct job *job)
{
    uint64_t one = 1;

    job->next = NULL;
    pthread_mutex_lock(&loop->mutex);
    *loop->done_end = job;
    loop->done_end = &job->next;
    pthread_mutex_unlock(&loop->mutex);
    ssize_t put = write(loop->event_fd, &one, sizeof one);
    (void)put; /* the counter has room for 2^64 - 2 */
}

/* Returns the time to sleep, in milliseconds as epoll_wait takes them. */
static int choose_timeout_ms(const struct loop *loop, uint64_t timeout_ms, uint64_t now_ms)
{
    uint64_t until_ms = timeout_ms == UINT64_MAX ? UINT64_MAX : now_ms + timeout_ms;

    if (loop->idle_wanted)
        return 0;
    if (loop->timeouts && loop->timeouts->at_ms < until_ms)
        until_ms = loop->timeouts->at_ms;
    if (loop->tick_ms < until_ms)
        until_ms = loop->tick_ms;
    if (until_ms == UINT64_MAX)
        return -1;
    uint64_t rest_ms = until_ms > now_ms ? until_ms - now_ms : 0;
    return rest_ms > INT_MAX ? INT_MAX : (int)rest_ms;
}

/* Serves one event, unless an earlier one of this turn changed the events that the watch waits
 * for. */
static void serve_event(struct loop *loop, const struct epoll_event *event)
{
    struct event_watch *watch = event->data.ptr;
    uint32_t events = 0;

    if (!watch)
        return;
    if (event->events & EPOLLIN)
        events |= EVENT_READ;
    if (event->events & EPOLLRDHUP)
        events |= EVENT_HUP;
    if (event->events & EPOLLOUT)
        events |= EVENT_WRITE;
    events &= watch->events;
    if (event->events & (EPOLLERR | EPOLLHUP))
        events |= EVENT_READ;
    if (events == 0)
        return;
    watch->ready(watch, events);
    end_step(loop);
}

static struct line *find_line(struct loop *loop, uint64_t user)
{
    int i = 0;

    while (i < loop->line_count && loop->lines[i].user != user)
        i++;
    if (i == loop->line_count)
        loop->lines[loop->line_count++] = (struct line){.user = user, .first = -1, .last = -1};
    return &loop->lines[i];
}

static void line_up(struct loop *loop, int event, uint64_t user)
{
    struct line *line = find_line(loop, user);

    loop->next[event] = -1;
    if (line->last >= 0)
        loop->next[line->last] = event;
    else
        line->first = event;
    line->last = event;
}

/* Makes the kernel report again each edge (EVENT_TAKEN) that this turn did not serve: it reports an
 * edge only once. It repeats all other events by itself. */
static void ask_for_edges_again(struct loop *loop)
{
    for (int i = 0; i < loop->line_count; i++) {
        for (int event = loop->lines[i].first; event >= 0; event = loop->next[event]) {
            struct event_watch *watch = loop->events[event].data.ptr;
            if (watch && watch->events & EVENT_TAKEN)
                control(loop, EPOLL_CTL_MOD, watch, watch->events);
        }
    }
}

/* Serves one event of each user, and repeats that as long as a turn lasts. */
static void serve_lines(struct loop *loop)
{
    uint64_t until_us = clock_now_us() + LOOP_TURN_US;
    unsigned served;

    do {
        served = 0;
        for (int i = 0; i < loop->line_count; i++) {
            int event = loop->lines[i].first;
            if (event < 0)
                continue;
            loop->lines[i].first = loop->next[event];
            serve_event(loop, &loop->events[event]);
            served++;
        }
        loop->first_event += served;
    } while (served > 0 && clock_now_us() < until_us);
    ask_for_edges_again(loop);
}

static void serve_events(struct loop *loop)
{
    unsigned count = (unsigned)loop->event_count;

    loop->line_count = 0;
    for (unsigned i = 0; i < count; i++) {
        int event = (int)((loop->first_event + i) % count);
        const struct event_watch *watch = loop->events[event].data.ptr;
        if (watch && watch->whose)
            line_up(loop, event, watch->whose);
        else
            serve_event(loop, &loop->events[event]);
    }
    if (loop->line_count > 0)
        serve_lines(loop);
    loop->event_count = 0;
}

/* Runs the first tick after a rest before the event, so that no interval that is measured starts
 * before the rest. */
static void note_events(struct loop *loop)
{
    if (loop->tick_ms == UINT64_MAX) {
        uint64_t now_ms = loop_now_ms();
        loop->tick_ms = now_ms + LOOP_TICK_MS;
        loop->calls.on_tick(loop->calls.context, now_ms);
        end_step(loop);
    }
}

/* Calls the expired timeouts. A timeout that is set again for now expires in the next turn, so that
 * other events are served in between. */
static void expire_timeouts(struct loop *loop, uint64_t now_ms)
{
    struct event_timeout *due = NULL, **end = &due;

    while (loop->timeouts && loop->timeouts->at_ms <= now_ms) {
        struct event_timeout *timeout = loop->timeouts;
        loop_clear_timeout(loop, timeout);
        timeout->next = NULL;
        timeout->link = end;
        *end = timeout;
        end = &timeout->next;
    }
    while (due) {
        struct event_timeout *timeout = due;
        loop_clear_timeout(loop, timeout);
        timeout->expired(timeout);
        end_step(loop);
    }
}

static void serve_times(struct loop *loop)
{
    uint64_t now_ms = loop_now_ms();

    expire_timeouts(loop, now_ms);
    if (loop->tick_ms <= now_ms) {
        /* Nothing wakes the loop at rest; the next event sets it again. */
        loop->tick_ms = UINT64_MAX;
        if (loop->calls.on_tick(loop->calls.context, now_ms))
            loop->tick_ms = now_ms + LOOP_TICK_MS;
        end_step(loop);
    }
}

int loop_turn(struct loop *loop, uint64_t timeout_ms)
{
    bool idle = loop->idle_wanted;
    int wait_ms = choose_timeout_ms(loop, timeout_ms, loop_now_ms());
    int count = epoll_wait(loop->epoll_fd, loop->events, LOOP_EVENTS_PER_TURN, wait_ms);

    if (count < 0)
        return errno == EINTR ? 0 : -errno;
    loop->event_count = count;
    if (count > 0)
        note_events(loop);
    serve_events(loop);
    serve_times(loop);
    if (idle) {
        loop->idle_wanted = false;
        loop->calls.on_idle(loop->calls.context);
        end_step(loop);
    }
    return 0;
}

int loop_run(struct loop *loop)
{
    int error = 0;

    while (!loop->stopping && !error)
        error = loop_turn(loop, UINT64_MAX);
    return error;
}
