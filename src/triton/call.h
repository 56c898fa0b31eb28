/* SPDX-License-Identifier: Apache-2.0 */
/*
 * call - one request of a client, from what it asks to what it is answered
 *
 * For the two protocols: each decodes into `request`, begins the call, and encodes `answer` when it
 * is over. On the loop's thread, which waits for nothing: bytes of regions are moved by workers.
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
    struct call **waiting; /* calls in their delay, with all that they hold */
};

/* Embedded in whoever serves the client. `request` and what it points into must stay as they are
 * until the call is over or cancelled. */
struct call {
    const struct call_host *host;
    struct wire_request request;
    struct wire_answer answer;
    void (*done)(struct call *call);     /* once, from the loop, if call_begin returned false */
    void (*released)(struct call *call); /* instead, where call_end had to leave it to a thread */
    bool is_over;
    struct opener_call opener;
    uint64_t owner;
    struct job job;  /* of an inference: what may wait */
    bool is_working; /* a thread has it, and all that it points into */
    bool is_left;    /* nobody waits for it any more */
    struct registry_reference *references[OPENER_MAX_NAMES];
    uint64_t regions[OPENER_MAX_NAMES]; /* of the references, by number */
    unsigned reference_count;
    struct event_timeout delay;
    struct call *next_waiting, **waiting_link; /* NULL: it is in no delay */
};

/* For a call that is zeroed or was ended. */
void call_init(struct call *call, const struct call_host *host, void (*done)(struct call *call),
               void (*released)(struct call *call));
/* It waits for something that has a time of its own. */
bool call_is_under_way(const struct call *call);
/* connection: whose request it is; owner: whose turn it takes (opener_client.h). True: it is over
 * already, and `done` is not called. */
bool call_begin(struct call *call, uint64_t connection, uint64_t owner);
/* Ends it, whether it is over or not; references go, nobody is told. Harmless on a zeroed one.
 * False: a thread works for it; nothing of it may be freed until `released`, and then it is to be
 * ended once more. */
bool call_end(struct call *call);
/* A region may be used no longer: calls that only hold it are told that there is none. */
void call_end_region(const struct call_host *host, uint64_t region);

#endif
