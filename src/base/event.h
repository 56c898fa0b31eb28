/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event - the interface of an event loop to the parts that it serves
 *
 * For front ends and the daemon, which has the loop (daemon/loop.c): no other part knows the loop
 * itself. One thread: the loop's. Nothing here does I/O.
 */
#ifndef GMSFS_BASE_EVENT_H
#define GMSFS_BASE_EVENT_H

#include <stdint.h>

#define EVENT_READ  (1u << 0)
#define EVENT_WRITE (1u << 1)
#define EVENT_HUP   (1u << 2) /* of a socket: its peer has stopped sending; never reported alone */
/* With EVENT_WRITE: reported once now, and then whenever the peer has read a message. */
#define EVENT_TAKEN (1u << 3)

/* A descriptor that the loop watches; embedded in the owner of the descriptor. */
struct event_watch {
    int fd;
    void (*ready)(struct event_watch *watch, uint32_t events); /* EVENT_*; errors count as READ */
    void *loop;      /* for the loop; NULL if not watched */
    uint32_t events; /* for the loop: the EVENT_* that it waits for */
    uint64_t whose;  /* event_of_user: users are served in turns; 0: of no user, served first */
};

static inline uint64_t event_of_user(uint32_t uid)
{
    return (uint64_t)uid + 1;
}

/* A time that the loop waits for; embedded in the object that waits. */
struct event_timeout {
    void (*expired)(struct event_timeout *timeout); /* once; it may be set again inside */
    uint64_t at_ms;                                 /* for the loop, as the next two */
    struct event_timeout *next, **link;             /* link is NULL if not set */
};

/* A callback for when this step's records are published; embedded in the object that waits. */
struct event_held {
    void (*released)(struct event_held *held); /* once; it may be held again inside */
    struct event_held *next, **link;           /* for the loop; link is NULL if not held */
};

struct loop; /* the daemon's */

struct event_loop {
    struct loop *context;
    /* Adds a watch, or changes its events (0: only errors). 0 or a negative errno */
    int (*watch)(struct loop *context, struct event_watch *watch, uint32_t events);
    /* Removes a watch, also inside `ready`; it may be freed afterwards. Does nothing if it is not
     * watched. */
    void (*unwatch)(struct loop *context, struct event_watch *watch);
    /* Calls `expired` at or soon after this monotonic time; replaces an earlier time. */
    void (*set_timeout)(struct loop *context, struct event_timeout *timeout, uint64_t at_ms);
    void (*clear_timeout)(struct loop *context, struct event_timeout *timeout);
};

#endif
