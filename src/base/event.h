/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event - what an event loop offers to those who are served by it
 *
 * For front ends and for the daemon, whose loop it is (daemon/loop.c): so that none of them knows
 * the loop itself. One thread: the loop's. Nothing here does I/O.
 */
#ifndef GMSFS_BASE_EVENT_H
#define GMSFS_BASE_EVENT_H

#include <stdint.h>

#define EVENT_READ  (1u << 0)
#define EVENT_WRITE (1u << 1)
#define EVENT_HUP   (1u << 2) /* of a socket: its peer sends nothing any more; not by itself */
/* Waited for with EVENT_WRITE: once now, and then each time that the peer has read a message. */
#define EVENT_TAKEN (1u << 3)

/* A descriptor that the loop watches; embedded in whoever owns the descriptor. */
struct event_watch {
    int fd;
    void (*ready)(struct event_watch *watch, uint32_t events); /* EVENT_*; errors count as READ */
    void *loop;                                                /* the loop's; NULL: not watched */
    uint32_t events;                                           /* the loop's: what it waits for */
    uint64_t whose; /* event_of_user: users are served in turns; 0: nobody's, served first */
};

static inline uint64_t event_of_user(uint32_t uid)
{
    return (uint64_t)uid + 1;
}

/* A moment that the loop waits for; embedded in whoever waits. */
struct event_timeout {
    void (*expired)(struct event_timeout *timeout); /* once; it may be set again inside */
    uint64_t at_ms;                                 /* the loop's, as the next two */
    struct event_timeout *next, **link;             /* link NULL: not set */
};

/* Somebody who goes on when what this step has recorded counts; embedded in whoever waits. */
struct event_held {
    void (*released)(struct event_held *held); /* once; it may be held again inside */
    struct event_held *next, **link;           /* the loop's; link NULL: not held */
};

struct event_loop {
    void *context;
    /* Adds, or changes what it waits for (0: errors alone). 0 or a negative errno */
    int (*watch)(void *context, struct event_watch *watch, uint32_t events);
    /* Also inside `ready`; after it the watch may be freed. Harmless where it is not watched. */
    void (*unwatch)(void *context, struct event_watch *watch);
    /* At or soon after this monotonic time; replaces an earlier one of the same timeout. */
    void (*set_timeout)(void *context, struct event_timeout *timeout, uint64_t at_ms);
    void (*clear_timeout)(void *context, struct event_timeout *timeout);
};

#endif
