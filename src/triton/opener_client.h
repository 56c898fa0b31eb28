/* SPDX-License-Identifier: Apache-2.0 */
/*
 * opener_client - how the server asks the opener: sends requests, gives answers to the loop
 *
 * Runs on the loop's thread and never waits: requests that cannot be sent yet are queued.
 */
#ifndef GMSFS_TRITON_OPENER_CLIENT_H
#define GMSFS_TRITON_OPENER_CLIENT_H

#include "base/event.h"
#include "triton/opener_message.h"

#include <stdbool.h>

#define OPENER_TIMEOUT_MS 30000u

/* The turn that a request takes: a user's, by uid, or this one. Each turn sends one request in
 * rotation, so that no user waits for all the requests of another. */
#define OPENER_AT_ONCE UINT64_MAX /* for quick requests that others wait for */

struct opener_client;

/* A request, embedded in the caller's struct and left alone until `done` or opener_cancel. */
struct opener_call {
    uint64_t id; /* first for idvec; set by opener_ask, 0: not in flight */
    struct opener_client *client;
    /* NULL: ignore the answer. Called once; with `more` set, once for each message. The call owns
     * `fds` then. reply NULL: no answer came in time, or none will; `error` says why. */
    void (*done)(struct opener_call *call, const struct opener_reply *reply, const int *fds,
                 size_t fd_count, int error);
    struct opener_request *request; /* until it is sent */
    int passed_fd;                  /* sent with the request; -1: none */
    uint64_t owner;                 /* turn to take; opener_prepare sets OPENER_AT_ONCE */
    uint64_t end_ms;                /* deadline of the answer */
    struct opener_turn *turn;       /* NULL: the request is sent */
    struct opener_call *next, **link;
};

struct opener_events {
    void *context;
    void (*on_stop)(void *context);                   /* the server must end */
    void (*on_ended)(void *context, uint64_t region); /* requests must stop using the region */
    void (*on_lost)(void *context, int error);        /* the opener is gone */
};

/* Takes over the socket. */
int opener_client_new(const struct event_loop *loop, int socket, const struct opener_events *events,
                      struct opener_client **client);
/* Calls `done` of each request in flight with an error. NULL is fine */
void opener_client_free(struct opener_client *client);

/* Sets the fields that all requests share. The caller fills in the rest, and sets `done`, `owner`
 * and `passed_fd` (duplicated by opener_ask). NULL: no memory */
struct opener_request *opener_prepare(struct opener_client *client, struct opener_call *call,
                                      enum opener_op op);
/* 0: `done` will be called, from the loop; a negative errno: it will not. */
int opener_ask(struct opener_call *call);
/* Drops the answer. Returns true if the request was not sent, and never will be. Does nothing if
 * the request is not in flight. */
bool opener_cancel(struct opener_call *call);
/* Tells the opener that the connection is gone; without memory, the opener is not told. */
void opener_forget(struct opener_client *client, uint64_t connection);

#endif
