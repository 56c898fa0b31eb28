/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service - what front ends call: requests become records, jobs, answers
 *
 * Turns requests into records for the core, and does what records cannot: memory is created, grown,
 * sealed, freed, read and written by jobs on helper threads, and requests that have to wait are
 * answered later. Decides every right, by who asked (rights.h), and keeps the users' shares of
 * every bound (bounds.h). Knows nothing of FUSE, sockets or the event loop: what it needs of them
 * comes in `struct service_host` (host.h).
 *
 * What there is to call: sessions.h (opening, the lock, how sessions end), stores.h, allocations.h
 * (memory and its bytes), metadata.h, views.h (looking), tickets.h (descriptors), admin.h. This
 * header has what they share.
 *
 * Threads: everything runs on the loop's thread, callbacks included, except what a job runs on a
 * helper thread. No call blocks.
 *
 * Answers: a call that may have to wait takes a `struct service_request` embedded in the front
 * end's request. It returns 0 when the answer came or will come by request->done(request, error,
 * answer) — exactly once, perhaps before the call returns. Calls without a request answer by their
 * return.
 */
#ifndef GMSFS_SERVICE_SERVICE_H
#define GMSFS_SERVICE_SERVICE_H

#include "core/core.h"
#include "vmm/vmm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERVICE_MAX_ANCESTORS 32u
#define SERVICE_WAIT_FOREVER  UINT64_MAX

struct service; /* opaque */

/* The caller of a request, resolved while it is blocked in it. */
struct service_caller {
    struct core_process processes[SERVICE_MAX_ANCESTORS]; /* [0] itself, then its ancestors */
    size_t process_count;                                 /* 0: its pid is not visible */
    uint32_t uid, gid;
    char comm[CORE_COMM_BYTES];
    /* Is this one of its further groups: 1, 0, or a negative errno where they are not to be seen.
     * Asked only where it decides. NULL: it has none. */
    int (*has_group)(const struct service_caller *caller, uint32_t gid);
    const void *context; /* has_group's */
};

/* By what somebody acts on a store: an open file, whose direction and user were fixed when it was
 * opened, or (file 0) a path, by what the caller is a member of. */
struct service_actor {
    uint64_t file;
    uint64_t store;                      /* where file is 0 */
    const struct service_caller *caller; /* where file is 0, or it may have joined no session */
};

struct service_peer { /* who asks, by a connection */
    uint32_t uid;
    struct core_process process; /* pid 0: not visible */
};

struct service_answer {
    uint64_t session, file;
    enum lock_mode mode;
    /* ALLOC */
    uint64_t slot, rank, aligned_bytes;
    const uint64_t *slots; /* of those that differ; valid only inside done() */
    char name[256];
    /* set_aside */
    uint64_t reserved_bytes, reserved_before_bytes;
    /* COMMIT, ABORT, APPLY */
    uint64_t generation, applied, culprit;
    bool rolled_back;
    uint8_t hash[16]; /* zeros where the handle may not read */
    /* READ: `data` is valid only inside done(); WRITE: bytes */
    const void *data;
    size_t bytes;
    const void *rest; /* READ: what follows, elsewhere in memory */
    size_t rest_bytes;
};

struct parked;
struct alloc_op;

struct service_request {
    void (*done)(struct service_request *request, int error, const struct service_answer *answer);
    /* How long it may go unanswered: FUSE's requests have a bound of the kernel's. 0 is for ever.
     */
    uint64_t wait_max_ms;
    /* When it was asked for, as service_host.now_ms has it: of the worker before, where this one
     * was asked again. 0: now. */
    uint64_t since_ms;
    /* The service's: what the request waits in, so that it can be interrupted; NULL: not there. */
    struct parked *parked;
    struct alloc_op *alloc;
};

/* Who wants to hear of changes: front ends. On the loop's thread. */
struct service_observer {
    void *context;
    void (*on_state)(void *context, uint64_t store); /* what `state` shows has changed */
    void (*on_event)(void *context);                 /* there is one more event */
    void (*on_place)(void *context, uint64_t store); /* what `residency` shows has changed */
    struct service_observer *next;                   /* the service's */
};

/* The observer stays the caller's, until service_unobserve. */
void service_observe(struct service *s, struct service_observer *observer);
void service_unobserve(struct service *s, struct service_observer *observer);

/* Looking. What it shows of a store is for those who may read that store: views.h asks. */
const struct core *service_get_core(const struct service *s);

struct service_waits {
    uint64_t count, ms; /* how many waits, and how long they were together */
};

struct service_numbers {
    uint64_t transfers_in_flight, transfers_total, read_bytes, written_bytes;
    uint64_t jobs_in_flight, allocs_waiting, exports, tickets_redeemed;
    uint64_t freeing_bytes;                             /* being given back */
    uint64_t moves[CORE_PLACE_COUNT][CORE_PLACE_COUNT]; /* from, to */
    uint64_t move_bytes, move_ms;                       /* of those that copied */
    struct service_waits promote_waits;                 /* for a lock, until a promotion's end */
};

void service_get_numbers(const struct service *s, struct service_numbers *numbers);
/* By others: those of the locks that regions hold do not count. */
uint64_t service_count_open_files(const struct service *s);
/* The device, as of the last measurement (views.h). */
void service_get_device(const struct service *s, struct vmm_info *info);

#endif
