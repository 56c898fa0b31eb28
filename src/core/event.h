/* SPDX-License-Identifier: Apache-2.0 */
/*
 * event - the kinds of events in a mount, and each store's history of its writers
 *
 * core.h includes this. The mount's ring of events is for people, and every client's events push
 * out older ones; a history belongs to one store and survives renames.
 */
#ifndef GMSFS_CORE_EVENT_H
#define GMSFS_CORE_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CORE_COMM_BYTES     16u
#define CORE_BOUND_BYTES    16u
#define CORE_BUDGET_BYTES   64u
#define CORE_HISTORY_EVENTS 256u /* a new one overwrites the oldest */

enum core_event_type {
    CORE_EVENT_STORE_CREATED,
    CORE_EVENT_STORE_REMOVED,
    CORE_EVENT_STORE_RENAMED,
    CORE_EVENT_RW_CONNECTED,
    CORE_EVENT_RO_CONNECTED,
    CORE_EVENT_RO_DISCONNECTED,
    CORE_EVENT_COMMITTED,
    CORE_EVENT_ROLLED_BACK, /* an abort that kept the committed layout */
    /* an abort that led to EMPTY: allocations and bytes count the dropped layout */
    CORE_EVENT_ABORTED,
    CORE_EVENT_REVOKED,
    CORE_EVENT_OUT_OF_MEMORY,
    CORE_EVENT_DRAINING, /* these two: of the mount, without a store */
    CORE_EVENT_SERVING,
    CORE_EVENT_DROPPED, /* a drain or the loss of the device dropped the committed layout */
    CORE_EVENT_SUSPECT, /* the bytes of a store may be damaged */
    CORE_EVENT_TRUSTED, /* a user declared them sound */
    CORE_EVENT_HEALTHY, /* these two: of the mount. No store is suspect any more */
    CORE_EVENT_LOST,
    CORE_EVENT_BOUND, /* a user met a bound, or the user's share of it */
    CORE_EVENT_SEALED,
    CORE_EVENT_RW_DATA_CONNECTED,
    CORE_EVENT_RW_DATA_DISCONNECTED,
    CORE_EVENT_CLEARED, /* a writer dropped the committed layout to begin with an empty one */
    CORE_EVENT_FENCED,  /* these two: of each store of a fence */
    CORE_EVENT_UNFENCED,
    CORE_EVENT_REGION_REGISTERED,
    CORE_EVENT_REGION_UNREGISTERED,
    CORE_EVENT_REGION_ENDED, /* the region's lock ended before it was unregistered */
    /* these two: the store stops admitting sessions, and admits them again */
    CORE_EVENT_STORE_DRAINING,
    CORE_EVENT_STORE_SERVING,
    CORE_EVENT_PINNED,
    CORE_EVENT_UNPINNED,
    CORE_EVENT_OVER_QUOTA, /* a request for the store is beyond its pool's budget */
    CORE_EVENT_PROMOTED,   /* these three: with bytes, duration and tier */
    CORE_EVENT_DEMOTED,
    CORE_EVENT_COPIED,       /* a spare was made */
    CORE_EVENT_COPY_DROPPED, /* a spare was dropped */
    CORE_EVENT_MOVE_FAILED,  /* with the error: the source is unchanged */
    CORE_EVENT_HEALED,       /* suspect memory was dropped because another copy is sound */
    CORE_EVENT_EVICTED,      /* the store left the device to make room for another */
    CORE_EVENT_RESUMED,      /* of the mount: a new worker replaces one that died */
    CORE_EVENT_RECOVERED,    /* the new worker serves all clients again: with cause and duration */
    CORE_EVENT_TYPE_COUNT,
};

struct core_process {
    uint64_t pid;   /* thread group id; 0: not visible to the daemon */
    uint64_t start; /* start time in clock ticks, tells recycled pids apart */
};

struct core_event {
    uint64_t seq;        /* 1.. */
    uint64_t at;         /* offset of its line in the bytes of all lines since the first */
    uint64_t text_bytes; /* bytes of its texts in core_encode; 0 until its line is measured */
    enum core_event_type type;
    uint64_t wall_ms;
    char store[256];
    uint64_t session, waiter; /* 0 if none */
    struct core_process process;
    uint32_t uid;
    char comm[CORE_COMM_BYTES];
    uint64_t allocations, bytes, generation;
    struct core_process by; /* REVOKED: the process that asked for it */
    uint32_t by_uid;
    char bound[CORE_BOUND_BYTES]; /* BOUND: name of the bound; else "" */
    bool is_share;                /* BOUND: the user's share was met, not the whole bound */
    char pool[CORE_BUDGET_BYTES]; /* OVER_QUOTA: the pool with the budget; else "" */
    uint32_t resolved_by;         /* UNFENCED: CORE_FENCE_ABORT or _COMPLETE */
    uint64_t deadline_ms;         /* STORE_DRAINING: wall clock; 0 if none */
    char for_store[256];          /* EVICTED: the store that needed the room; "" if it is gone */
    uint32_t tier;                /* of a move or a copy: the target (enum core_place); else 0 */
    uint32_t error; /* errno. MOVE_FAILED: the cause; COPY_DROPPED: the failed read, or 0 */
    union {
        uint64_t took_ms; /* duration of a move that copied */
        uint64_t took_us; /* RECOVERED: time since the old worker's end */
    };
    union {
        char region[256]; /* name of the region, shown to its owner (uid) and root; "" if none */
        char cause[256];  /* RECOVERED: how the old worker ended */
    };
    uint64_t resumes; /* RESUMED, RECOVERED: number of replaced workers so far */
};

struct core_past {
    enum core_event_type type;
    uint32_t allocations;
};

struct core_history {
    struct core_past events[CORE_HISTORY_EVENTS]; /* a ring */
    size_t first, count;
};

/* True if histories record this type: events of writers and their results. */
bool core_is_history(enum core_event_type type);
void core_history_add(struct core_history *history, struct core_past past);
/* Returns an entry; index 0 is the oldest, and `index` is below the count. */
const struct core_past *core_history_get(const struct core_history *history, size_t index);

#endif
