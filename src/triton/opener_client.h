/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opener_client - the opener as the server asks it: requests go out, answers come by the loop
 *
 * On the loop's thread. Nothing here waits; what cannot be sent yet is sent later.
 */
#ifndef GMSFS_TRITON_OPENER_CLIENT_H
#define GMSFS_TRITON_OPENER_CLIENT_H

#include "base/event.h"
#include "triton/opener_message.h"

#include <stdbool.h>

#define OPENER_TIMEOUT_MS 30000u

/* Whose turn a request takes: a user's, by his uid, or this one. Each in turn has one request
 * sent, so that nobody waits for all that somebody else has asked. */
#define OPENER_AT_ONCE UINT64_MAX /* what is quick, and what others wait for */

struct opener_client;

/* A request, embedded in whoever asks; it is his until `done` or opener_cancel. */
struct opener_call {
    uint64_t id; /* first for idvec; the client's, 0: it is not under way */
    struct opener_client *client;
    /* Once; for each message while `more` is set. `fds` are its own then. NULL: the answer came
     * too late, or never will: `error` says why. */
    void (*done)(struct opener_call *call, const struct opener_reply *reply, const int *fds,
                 size_t fd_count, int error);
    struct opener_request *request; /* until it is sent */
    int passed_fd;                  /* goes with it; -1: none */
    uint64_t owner;                 /* whose turn it takes; OPENER_AT_ONCE by opener_prepare */
    uint64_t end_ms;                /* it is too late then */
    struct opener_turn *turn;       /* NULL: it is sent */
    struct opener_call *next, **link;
};

struct opener_events {
    void *context;
    void (*on_stop)(void *context);                   /* the server is to end */
    void (*on_ended)(void *context, uint64_t region); /* it may be used no longer */
    void (*on_lost)(void *context, int error);        /* the opener is gone */
};

/* The socket is the client's then. */
int opener_client_new(const struct event_loop *loop, int socket, const struct opener_events *events,
                      struct opener_client **client);
/* Whoever still asks is told that it is lost. NULL is fine */
void opener_client_free(struct opener_client *client);

/* Sets what the request has in common with all others. The caller fills in the rest, and gives
 * `done`, `owner` and `passed_fd` (duplicated here). NULL: no memory */
struct opener_request *opener_prepare(struct opener_client *client, struct opener_call *call,
                                      enum opener_op op);
/* 0: `done` will be called, from the loop; a negative errno: it will not. */
int opener_ask(struct opener_call *call);
/* Nobody wants the answer any more; what has not been sent is not asked, and then it
 * returns true. Harmless where it is not under way. */
bool opener_cancel(struct opener_call *call);
/* The connection is gone. Not told where memory lacks. */
void opener_forget(struct opener_client *client, uint64_t connection);

#endif
