/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host - what the daemon gives the service, and how it runs it
 *
 * For src/daemon, and for tests, which stand in for it.
 */
#ifndef GMSFS_SERVICE_HOST_H
#define GMSFS_SERVICE_HOST_H

#include "base/job.h"
#include "service/service.h"
#include "vmm/room.h"

#define SERVICE_MAX_ALLOC_THREADS 16u

/* In the number of a piece's weaker descriptor, for readers: it goes with the piece. */
#define SERVICE_MEMORY_READONLY (UINT64_C(1) << 61)
/* In the number of what is no memory of the device: a descriptor that a region's client gave, a
 * connection. */
#define SERVICE_REGION_MEMORY (UINT64_C(1) << 62)
#define SERVICE_CONNECTION    (UINT64_C(1) << 63)

enum service_pool {
    SERVICE_POOL_MEMORY,   /* creating, growing: few threads */
    SERVICE_POOL_TRANSFER, /* bytes of clients: may be slow, many at once */
    SERVICE_POOL_COMPUTE,  /* decoding, encoding: needs a processor, and leaves it to the loop */
    SERVICE_POOL_MOVE,     /* bytes between memories: a part of them for each job */
    SERVICE_POOL_DISK,     /* the same from or to a disk, for which no other move has to wait */
    SERVICE_POOL_FREE,     /* giving memory back: as that, and less urgent */
    SERVICE_POOL_COUNT
};

/* A descriptor of memory for the keeper. */
struct service_memory {
    uint64_t id;
    uint64_t bytes; /* what it costs; 0: that changes, and its file tells */
    int fd;
};

/* What the daemon gives. `context` is its own. */
struct service_host {
    void *context;
    uint64_t (*now_ms)(void *context);  /* monotonic */
    uint64_t (*wall_ms)(void *context); /* since 1970 */
    int (*get_random)(void *context, void *bytes, size_t size);
    /* A record is about to be applied: it is in the journal with the transaction, unless it is
     * taken back because it failed. 0, and a mark; -ENOMEM: it cannot be recorded, so it is not to
     * be applied.
     */
    int (*record)(void *context, const struct record *record, size_t *mark);
    void (*unrecord)(void *context, size_t mark);
    /* What was recorded so far counts from here on, in the middle of a step: before memory is freed
     * by the loop itself, for want of a thread. */
    void (*publish)(void *context);
    /* -ENOMEM when no thread can be had. Runs when what was recorded before counts. */
    int (*submit)(void *context, enum service_pool pool, struct job *job);
    /* For whom the loop works from here on, and jobs that are submitted: a number of the host's, 0:
     * nobody in particular. Returns for whom it did. NULL: nobody wants to know. */
    uint64_t (*work_for)(void *context, uint64_t whom);
    /* Calls service_on_timer once at or after this time (UINT64_MAX: never); replaces the last one.
     */
    void (*set_timer)(void *context, uint64_t at_ms);
    /* Calls service_on_idle soon, after other requests that are ready have been served. */
    void (*set_idle)(void *context);
    /* Watches a process until it exits: calls service_on_exit(process). Each process is watched
     * once. -ESRCH: gone already */
    int (*watch_process)(void *context, struct core_process process);
    void (*unwatch_process)(void *context, struct core_process process);
    /* On helper threads. -ENOSPC: this new descriptor is one of those that memory must leave over,
     * close it. */
    int (*admit_descriptor)(void *context, int fd);
    /* On helper threads; a round trip for many costs hardly more than for one. The keeper holds
     * duplicates of all the descriptors before this returns 0; after a failure it may hold some.
     * After drop it holds none of these, of memory neither of its two; it need not have held them.
     * What is kept under a number again takes the place of what was, of memory both. */
    int (*keep)(void *context, const struct service_memory *memories, size_t count);
    void (*drop)(void *context, const uint64_t *memories, size_t count);
    struct room *room; /* what the daemon itself may grow by; NULL: there is no bound */
};

struct service_options {
    uint64_t patience_ms;      /* writer_patience */
    uint64_t alloc_timeout_ms; /* alloc_timeout */
    uint64_t spool_max_bytes;  /* EFBIG beyond */
    unsigned alloc_threads;    /* of the pool, at most so many work for one ALLOC */
    uint32_t uid, gid;         /* owner of the stores that are there from the start */
    bool has_kv_cache;         /* not `weights` alone, `kv_cache` as well */
    uint32_t admin_uid;        /* who mounted: may administer, as root may */
    uint64_t max_connections;  /* bounds that follow the limit of descriptors (bounds.h) */
    uint64_t max_watches;
    bool drops_copies;     /* what was promoted leaves no spare behind */
    bool evicts;           /* stores that nobody uses leave the device for others */
    uint64_t min_stay_ms;  /* not before they were there so long */
    uint64_t max_regions;  /* 0: as many as there can be */
    uint64_t max_requests; /* of the kernel, that wait; 0: as many as there can be */
};

int service_new(struct vmm *vmm, const struct service_options *options,
                const struct service_host *host, struct service **service);
/* The options of the state that service_new begins with. */
void service_get_core_options(const struct vmm *vmm, const struct service_options *options,
                              struct core_options *core_options);
/* A descriptor that the keeper holds, as it came to this process. */
struct service_kept {
    uint64_t id;
    int fd; /* -1 when it has become the service's */
};
/* Goes on with the state of a process that has ended, which is taken, on failure too. `kept` is all
 * that the keeper holds but connections, in the order of its numbers; what no record knows of is
 * dropped there. Waiters keep their places for a moment, within which the kernel has sent their
 * requests again. */
int service_restore(struct vmm *vmm, const struct service_options *options,
                    const struct service_host *host, struct core *core, struct service_kept *kept,
                    size_t count, struct service **service);
/* Closes the files of connections (service_open.connection) that nobody goes on with. */
void service_close_connections(struct service *service,
                               bool (*is_claimed)(void *context, uint64_t file), void *context);
/* All that waited has asked again, so many microseconds after the last process ended, for this
 * cause, which `events` tell ("": they do not). */
void service_end_restore(struct service *service, const char *cause, uint64_t took_us);
/* No move begins any more, and those under way end with the step that they are at: before the end,
 * while helpers still finish what they have. */
void service_end_moves(struct service *service);
/* From here on no job is submitted: for while helpers end and before front ends are freed. */
void service_stop(struct service *service);
/* What a replay and a snapshot of the present state take. */
uint64_t service_count_aside(const struct service *service);
void service_free(struct service *service); /* ends: drops everything, joins nothing */

/* Call once at the end of each step of the loop, before the step's records are published. Nothing
 * in the service calls it. */
void service_end_step(struct service *service);
/* Records were made, or something ended, since the last end of a step. */
bool service_is_unsettled(const struct service *service);

/* From the loop. */
void service_on_timer(struct service *service);
void service_on_idle(struct service *service);
/* Slices of a document are ready: service_on_idle applies one. */
bool service_has_slices(const struct service *service);
void service_on_exit(struct service *service, struct core_process process);
/* A measurement is over (vmm_on_measurement). */
void service_on_measurement(struct service *service);
/* Device news (vmm_on_health): they become records, and sessions on a lost device end. */
void service_on_health(struct service *service);

#endif
