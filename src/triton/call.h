/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call - one request of a client, from its decoded form to its answer
 *
 * For the two protocols: each decodes into `request`, begins the call, and encodes `answer` when
 * the call is over. Runs on the loop's thread, which never waits: worker threads move the bytes of
 * regions.
 */
#ifndef GMSFS_TRITON_CALL_H
#define GMSFS_TRITON_CALL_H

#include "triton/opener_client.h"
#include "triton/registry.h"
#include "triton/wire_request.h"
#include "triton/workers.h"

struct call_host {
    struct event_loop loop;
    struct opener_client *opener;
    struct workers *workers;
    bool has_test_models, has_cuda;
    uint64_t delay_ms;     /* of the test models */
    struct call **waiting; /* calls in their delay, and the references they hold */
};

/* Embedded in the protocol's struct. `request`, and the bytes that it points into, must not change
 * until the call is over or cancelled. */
struct call {
    const struct call_host *host;
    struct wire_request request;
    struct wire_answer answer;
    void (*done)(struct call *call);     /* once, from the loop, if call_begin returned false */
    void (*released)(struct call *call); /* in place of `done`, if call_end returned false: the
                                            thread is finished */
    bool is_over;
    struct opener_call opener;
    uint64_t owner;
    struct job job;  /* the blocking part of an inference */
    bool is_working; /* a thread uses the call and the bytes that it points into */
    bool is_left;    /* call_end was called while a thread was working */
    struct registry_reference *references[OPENER_MAX_NAMES];
    uint64_t regions[OPENER_MAX_NAMES]; /* numbers of the regions of `references` */
    unsigned reference_count;
    struct event_timeout delay;
    struct call *next_waiting, **waiting_link; /* NULL: no delay is running */
};

/* The call must be zeroed or ended. */
void call_init(struct call *call, const struct call_host *host, void (*done)(struct call *call),
               void (*released)(struct call *call));
/* Returns true while the call waits for the opener, for its delay or for a thread; each has a
 * deadline of its own. */
bool call_is_under_way(const struct call *call);
/* Starts the call. connection: number of the client's connection; owner: user whose turn the call
 * takes (opener_client.h). Returns true if the call is over already; `done` is not called then. */
bool call_begin(struct call *call, uint64_t connection, uint64_t owner);
/* Ends the call, over or not: drops its references and calls nothing. Does nothing to a zeroed
 * call. Returns false while a thread works for the call: then free nothing of it until `released`,
 * and call call_end again there. */
bool call_end(struct call *call);
/* Fails the delayed calls that use this region, because its drain time is over: the answer says
 * that there is no such region. */
void call_end_region(const struct call_host *host, uint64_t region);

#endif
