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

/* The types of events, as CORE_EVENT_ and the first word, with their names in lines. */
#define CORE_EVENT_LIST(F)                                                                         \
    F(STORE_CREATED, "store_created")                                                              \
    F(STORE_REMOVED, "store_removed")                                                              \
    F(STORE_RENAMED, "store_renamed")                                                              \
    F(RW_CONNECTED, "rw_connected")                                                                \
    F(RO_CONNECTED, "ro_connected")                                                                \
    F(RO_DISCONNECTED, "ro_disconnected")                                                          \
    F(COMMITTED, "committed")                                                                      \
    F(ROLLED_BACK, "rolled_back") /* an abort that kept the committed layout */                    \
    /* an abort that led to EMPTY: allocations and bytes count the dropped layout */               \
    F(ABORTED, "aborted")                                                                          \
    F(REVOKED, "revoked")                                                                          \
    F(OUT_OF_MEMORY, "out_of_memory")                                                              \
    F(DRAINING, "draining") /* these two: of the mount, without a store */                         \
    F(SERVING, "serving")                                                                          \
    F(DROPPED, "dropped") /* a drain or the loss of the device dropped the committed layout */     \
    F(SUSPECT, "suspect") /* the bytes of a store may be damaged */                                \
    F(TRUSTED, "trusted") /* a user declared them sound */                                         \
    F(HEALTHY, "healthy") /* these two: of the mount. No store is suspect any more */              \
    F(LOST, "lost")                                                                                \
    F(BOUND, "bound") /* a user met a bound, or the user's share of it */                          \
    F(SEALED, "layout_committed")                                                                  \
    F(RW_DATA_CONNECTED, "rw_data_connected")                                                      \
    F(RW_DATA_DISCONNECTED, "rw_data_disconnected")                                                \
    F(CLEARED, "cleared") /* a writer dropped the committed layout to begin with an empty one */   \
    F(FENCED, "fenced")   /* these two: of each store of a fence */                                \
    F(UNFENCED, "unfenced")                                                                        \
    F(REGION_REGISTERED, "region_registered")                                                      \
    F(REGION_UNREGISTERED, "region_unregistered")                                                  \
    F(REGION_ENDED, "region_ended") /* the region's lock ended before it was unregistered */       \
    /* these two: the store stops admitting sessions, and admits them again */                     \
    F(STORE_DRAINING, "store_draining")                                                            \
    F(STORE_SERVING, "store_serving")                                                              \
    F(PINNED, "pinned")                                                                            \
    F(UNPINNED, "unpinned")                                                                        \
    F(OVER_QUOTA, "over_quota") /* a request for the store is beyond its pool's budget */          \
    F(PROMOTED, "promoted")     /* these three: with bytes, duration and tier */                   \
    F(DEMOTED, "demoted")                                                                          \
    F(COPIED, "copied")             /* a spare was made */                                         \
    F(COPY_DROPPED, "copy_dropped") /* a spare was dropped */                                      \
    F(MOVE_FAILED, "move_failed")   /* with the error: the source is unchanged */                  \
    F(HEALED, "healed")             /* suspect memory was dropped because another copy is sound */ \
    F(EVICTED, "evicted")           /* the store left the device to make room for another */       \
    F(RESUMED, "worker_resumed")    /* of the mount: a new worker replaces one that died */        \
    /* the new worker serves all clients again: with cause and duration */                         \
    F(RECOVERED, "recovered")

#define CORE_EVENT_MEMBER(type, name) CORE_EVENT_##type,

enum core_event_type {
    CORE_EVENT_LIST(CORE_EVENT_MEMBER) CORE_EVENT_TYPE_COUNT
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
