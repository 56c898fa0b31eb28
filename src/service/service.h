/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service - the calls of front ends: requests become records, jobs, answers
 *
 * Turns requests into records for the core, and does the work beside them: jobs on helper threads
 * make, grow, seal, free, read and write memory, and requests that have to wait are answered later.
 * Decides every right, by the user of the caller (rights.h), and keeps the users' shares of every
 * bound (bounds.h). Knows nothing of FUSE, sockets or the event loop, but through `struct
 * service_host` (host.h).
 *
 * The calls: sessions.h (opening, the lock, how sessions end), stores.h, allocations.h (memory and
 * its bytes), metadata.h, views.h (looking), tickets.h (descriptors), admin.h. They share this
 * header.
 *
 * Threads: everything runs on the loop's thread, callbacks included, except the part of a job that
 * runs on a helper thread. No call blocks.
 *
 * Answers: a call that may have to wait takes a `struct service_request` embedded in the front
 * end's request. It returns 0 when the answer came or will come by request->done(request, error,
 * answer) — exactly once, perhaps before the call returns. Calls without a request answer by their
 * return.
 */
#ifndef GMSFS_SERVICE_SERVICE_H
#define GMSFS_SERVICE_SERVICE_H

#include "base/histogram.h"
#include "core/core.h"
#include "vmm/vmm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERVICE_MAX_ANCESTORS 32u
#define SERVICE_WAIT_FOREVER  UINT64_MAX

struct service; /* opaque */

/* The caller of a request, resolved while the call blocks it. */
struct service_caller {
    struct core_process processes[SERVICE_MAX_ANCESTORS]; /* [0] itself, then its ancestors */
    size_t process_count;                                 /* 0: its pid is not visible */
    uint32_t uid, gid;
    char comm[CORE_COMM_BYTES];
    /* Returns 1 if this is one of the caller's further groups, 0 if not, or a negative errno if its
     * groups are not visible. Asked only where it decides. NULL: no further groups. */
    int (*has_group)(const struct service_caller *caller, uint32_t gid);
    const void *context; /* for has_group */
};

/* The right by which a caller acts on a store: an open file, with the direction and user of its
 * opening, or (file 0) a path, by the session that the caller belongs to. */
struct service_actor {
    uint64_t file;
    uint64_t store;                      /* if file is 0 */
    const struct service_caller *caller; /* if file is 0, or the file may have joined no session */
};

struct service_peer { /* the client of a connection */
    uint32_t uid;
    struct core_process process; /* pid 0: not visible */
};

struct service_answer {
    uint64_t session, file;
    enum lock_mode mode;
    /* ALLOC */
    uint64_t slot, rank, aligned_bytes;
    const uint64_t *slots; /* of allocations that differ; valid only inside done() */
    char name[256];
    /* set_aside */
    uint64_t reserved_bytes, reserved_before_bytes;
    /* COMMIT, ABORT, APPLY */
    uint64_t generation, applied, culprit;
    bool rolled_back;
    uint8_t hash[16]; /* zeros if the handle may not read */
    /* READ: `data` is valid only inside done(); WRITE: bytes */
    const void *data;
    size_t bytes;
    const void *rest; /* READ: the second part, elsewhere in memory */
    size_t rest_bytes;
    struct file_plan *made; /* service_make_file: the receiver's, to be freed */
};

struct parked;
struct alloc_op;
struct sums;

struct service_request {
    void (*done)(struct service_request *request, int error, const struct service_answer *answer);
    /* Time until it must be answered: the kernel limits that of FUSE's requests. 0: no limit */
    uint64_t wait_max_ms;
    /* When the client asked, by service_host.now_ms: the former worker's time if the request was
     * sent again. 0: now */
    uint64_t since_ms;
    /* Owned by the service: the waits that the request can be interrupted in; NULL: none. */
    struct parked *parked;
    struct alloc_op *alloc;
    struct sums *sums;
};

/* A front end that wants to hear of changes. Called on the loop's thread. */
struct service_observer {
    void *context;
    void (*on_state)(void *context, uint64_t store); /* the text of `state` has changed */
    void (*on_event)(void *context);                 /* there is one more event */
    void (*on_place)(void *context, uint64_t store); /* the text of `residency` has changed */
    struct service_observer *next;                   /* owned by the service */
};

/* The caller owns the observer, which must live until service_unobserve. */
void service_observe(struct service *s, struct service_observer *observer);
void service_unobserve(struct service *s, struct service_observer *observer);

/* Returns the state, for looking. Only readers of a store may see it: views.h checks that. */
const struct core *service_get_core(const struct service *s);

struct service_waits {
    uint64_t count, ms; /* how many waits, and their total time */
};

/* Numbers that only grow, from the mount's begin to its end: in memory that outlives the worker and
 * that another build continues. Only append fields. */
struct service_counts {
    uint64_t transfers, read_bytes, written_bytes;
    uint64_t exports, tickets_redeemed;
    uint64_t moves[CORE_PLACE_COUNT][CORE_PLACE_COUNT]; /* from, to */
    uint64_t move_bytes, move_ms;                       /* of moves that copied */
    struct service_waits promote_waits;       /* for a lock, until the end of a promotion */
    struct histogram write_waits, read_waits; /* for a lock, until its grant */
    struct histogram promotions;              /* that copied, from the move's begin to its end */
    struct histogram recoveries;              /* from a worker's end until all is served again */
};

struct service_numbers {
    uint64_t transfers_in_flight, jobs_in_flight, allocs_waiting;
    uint64_t freeing_bytes; /* being freed */
    uint64_t mapped_bytes;  /* of memory that no store has, and that processes still map */
    struct service_counts counts;
};

void service_get_numbers(const struct service *s, struct service_numbers *numbers);
/* Returns the number of clients' open files: without those of regions' locks. */
uint64_t service_count_open_files(const struct service *s);
/* Fills in the device, as of the last measurement (views.h). */
void service_get_device(const struct service *s, struct vmm_info *info);

#endif
