/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event - what happens in a mount, by its kind, and what each store remembers of its writers
 *
 * Included by core.h, for all who include that. The mount's ring of events is for people, and
 * whoever comes and goes pushes out what was before; a store's history is its own, and goes with
 * it through every rename.
 */
#ifndef GMSFS_CORE_EVENT_H
#define GMSFS_CORE_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CORE_COMM_BYTES     16u
#define CORE_BOUND_BYTES    16u
#define CORE_BUDGET_BYTES   64u
#define CORE_HISTORY_EVENTS 256u /* newer ones are put in the place of the oldest */

enum core_event_type {
    CORE_EVENT_STORE_CREATED,
    CORE_EVENT_STORE_REMOVED,
    CORE_EVENT_STORE_RENAMED,
    CORE_EVENT_RW_CONNECTED,
    CORE_EVENT_RO_CONNECTED,
    CORE_EVENT_RO_DISCONNECTED,
    CORE_EVENT_COMMITTED,
    CORE_EVENT_ROLLED_BACK, /* an abort that kept the committed layout */
    CORE_EVENT_ABORTED, /* an abort that led to EMPTY: allocations, bytes are what was dropped */
    CORE_EVENT_REVOKED,
    CORE_EVENT_OUT_OF_MEMORY,
    CORE_EVENT_DRAINING, /* these two: of the mount, no store */
    CORE_EVENT_SERVING,
    CORE_EVENT_DROPPED, /* a drain, or the loss of the device, dropped what was committed */
    CORE_EVENT_SUSPECT, /* what a store holds may be damaged */
    CORE_EVENT_TRUSTED, /* somebody said that it is not */
    CORE_EVENT_HEALTHY, /* these two: of the mount; no store is suspect any more */
    CORE_EVENT_LOST,
    CORE_EVENT_BOUND, /* a user met a bound, or its share of it */
    CORE_EVENT_SEALED,
    CORE_EVENT_RW_DATA_CONNECTED,
    CORE_EVENT_RW_DATA_DISCONNECTED,
    CORE_EVENT_CLEARED, /* a writer began with nothing: what was committed was dropped */
    CORE_EVENT_FENCED,  /* these two: of each store of a fence */
    CORE_EVENT_UNFENCED,
    CORE_EVENT_REGION_REGISTERED,
    CORE_EVENT_REGION_UNREGISTERED,
    CORE_EVENT_REGION_ENDED,   /* its lock ended before it was unregistered */
    CORE_EVENT_STORE_DRAINING, /* these two: nobody is let into this store, and again */
    CORE_EVENT_STORE_SERVING,
    CORE_EVENT_PINNED,
    CORE_EVENT_UNPINNED,
    CORE_EVENT_OVER_QUOTA, /* what somebody wanted for the store is beyond its pool's budget */
    CORE_EVENT_PROMOTED,   /* these three: bytes, how long it took, and where they are now */
    CORE_EVENT_DEMOTED,
    CORE_EVENT_COPIED,       /* a spare was made */
    CORE_EVENT_COPY_DROPPED, /* a spare was given up */
    CORE_EVENT_MOVE_FAILED,  /* and why: the source is as it was */
    CORE_EVENT_HEALED,       /* suspect memory was dropped, for another copy is sound */
    CORE_EVENT_EVICTED,      /* it has left the device for another store */
    CORE_EVENT_RESUMED,      /* of the mount: another worker goes on where one died */
    CORE_EVENT_RECOVERED, /* and serves all that was under way: why it had to, how long it took */
    CORE_EVENT_TYPE_COUNT,
};

struct core_process {
    uint64_t pid;   /* thread group id; 0: not visible to the daemon */
    uint64_t start; /* start time in clock ticks, tells recycled pids apart */
};

struct core_event {
    uint64_t seq; /* 1.. */
    uint64_t at;  /* where its line begins among the bytes of all lines that there ever were */
    uint64_t text_bytes; /* of its texts in core_encode; 0 until its line is measured */
    enum core_event_type type;
    uint64_t wall_ms;
    char store[256];
    uint64_t session, waiter; /* 0: it is about none */
    struct core_process process;
    uint32_t uid;
    char comm[CORE_COMM_BYTES];
    uint64_t allocations, bytes, generation;
    struct core_process by; /* REVOKED: who asked for it */
    uint32_t by_uid;
    char bound[CORE_BOUND_BYTES]; /* its name; "": of no bound */
    bool is_share;                /* it was the user's share, not the whole */
    char pool[CORE_BUDGET_BYTES]; /* OVER_QUOTA: whose budget; else "" */
    uint32_t resolved_by;         /* UNFENCED: CORE_FENCE_ABORT or _COMPLETE */
    uint64_t deadline_ms;         /* STORE_DRAINING: by the wall clock; 0: none was said */
    char for_store[256];          /* EVICTED: who wanted its room; "": it is gone */
    uint32_t tier;                /* of a move or a copy: where to (enum core_place); else 0 */
    uint32_t error; /* MOVE_FAILED: errno; COPY_DROPPED: why it could not be read, or 0 */
    union {
        uint64_t took_ms; /* of a move that copied */
        uint64_t took_us; /* RECOVERED: since the worker's end */
    };
    union {
        char region[256]; /* its name, for its owner (uid) and root; "": of none */
        char cause[256];  /* RECOVERED: how the worker ended */
    };
    uint64_t resumes; /* RESUMED, RECOVERED: how often that was by now */
};

struct core_past {
    enum core_event_type type;
    uint32_t allocations;
};

struct core_history {
    struct core_past events[CORE_HISTORY_EVENTS]; /* a ring */
    size_t first, count;
};

/* Is it one that a history has: of writers, and of what they make of a store? */
bool core_is_history(enum core_event_type type);
void core_history_add(struct core_history *history, struct core_past past);
/* The oldest is 0; `index` is below the count. */
const struct core_past *core_history_get(const struct core_history *history, size_t index);

#endif
