/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host - the daemon's side of the service: its functions for the service, and its calls
 *
 * For src/daemon, and for tests, which stand in for it.
 */
#ifndef GMSFS_SERVICE_HOST_H
#define GMSFS_SERVICE_HOST_H

#include "base/job.h"
#include "service/service.h"
#include "vmm/room.h"

#define SERVICE_MAX_ALLOC_THREADS 16u

/* Marks the number of a piece's read-only descriptor, which lives as long as the piece. */
#define SERVICE_MEMORY_READONLY (UINT64_C(1) << 61)
/* Marks the number of a descriptor that is not memory of the device: an object of a region's
 * client, a connection. */
#define SERVICE_REGION_MEMORY (UINT64_C(1) << 62)
#define SERVICE_CONNECTION    (UINT64_C(1) << 63)

enum service_pool {
    SERVICE_POOL_MEMORY,   /* makes and grows memory: few threads */
    SERVICE_POOL_TRANSFER, /* moves bytes of clients: may be slow, many at once */
    SERVICE_POOL_COMPUTE,  /* decodes, encodes: needs a processor, and leaves it to the loop */
    SERVICE_POOL_MOVE,     /* copies between memories: each job copies a part */
    SERVICE_POOL_DISK, /* the same from or to a disk, so that other moves need not wait for it */
    SERVICE_POOL_FREE, /* frees memory: as SERVICE_POOL_MEMORY, but less urgent */
    SERVICE_POOL_COUNT
};

/* A descriptor of memory for the keeper. */
struct service_memory {
    uint64_t id;
    uint64_t bytes; /* its size; 0: it changes, and its file tells */
    int fd;
};

/* The functions of the daemon. `context` is its own. */
struct service_host {
    void *context;
    uint64_t (*now_ms)(void *context);  /* monotonic */
    uint64_t (*wall_ms)(void *context); /* since 1970 */
    int (*get_random)(void *context, void *bytes, size_t size);
    /* Writes a record that is about to be applied to the journal, as a part of the transaction,
     * unless unrecord takes it back because it failed. Returns 0 and a mark, or -ENOMEM: the record
     * cannot be written, so it must not be applied. */
    int (*record)(void *context, const struct record *record, size_t *mark);
    void (*unrecord)(void *context, size_t mark);
    /* Publishes the records so far in the middle of a step: before the loop itself frees memory,
     * for want of a thread. */
    void (*publish)(void *context);
    /* Has a job run once the records before it are published. -ENOMEM: no thread */
    int (*submit)(void *context, enum service_pool pool, struct job *job);
    /* Sets the request that the loop and submitted jobs work on from now on: a number of the
     * host's, 0: none in particular. Returns the former one. May be NULL. */
    uint64_t (*work_for)(void *context, uint64_t request);
    /* Has service_on_timer called once at or after this time (UINT64_MAX: never); replaces the last
     * time. */
    void (*set_timer)(void *context, uint64_t at_ms);
    /* Returns true if clients' requests wait unread or unserved, as after a time in which this
     * process did not run. */
    bool (*has_unread)(void *context);
    /* Has service_on_idle called soon, after other requests that are ready. */
    void (*set_idle)(void *context);
    /* Watches a process until it exits: then calls service_on_exit(process). Each process is
     * watched once. -ESRCH: it has exited */
    int (*watch_process)(void *context, struct core_process process);
    void (*unwatch_process)(void *context, struct core_process process);
    /* Called on helper threads. -ENOSPC: memory must leave this new descriptor free; close it. */
    int (*admit_descriptor)(void *context, int fd);
    /* Called on helper threads; a round trip for many costs hardly more than for one. The keeper
     * holds duplicates of all the descriptors before `keep` returns 0; after a failure it may hold
     * some. A number that is kept again replaces the former one, with both descriptors of the
     * memory. After `drop` the keeper holds none of these, and neither descriptor of the memory; it
     * need not have held them. */
    int (*keep)(void *context, const struct service_memory *memories, size_t count);
    void (*drop)(void *context, const uint64_t *memories, size_t count);
    /* Called on helper threads. Registers this memory's file with the kernel, which then reads and
     * maps it for openers that are answered with *number. -EPERM: it cannot be, ever; another
     * negative errno: not now. `number` NULL: ends the registration, as `drop` does. NULL: none
     * can. */
    int (*back)(void *context, uint64_t memory, uint32_t *number);
    struct room *room;             /* limit on the growth of the daemon's own memory; NULL: none */
    struct service_counts *counts; /* counted on from where they are; NULL: from 0 */
};

struct service_options {
    uint64_t patience_ms;      /* writer_patience */
    uint64_t alloc_timeout_ms; /* alloc_timeout */
    uint64_t spool_max_bytes;  /* EFBIG beyond */
    unsigned alloc_threads;    /* of the pool; the most that work for one ALLOC */
    uint32_t uid, gid;         /* owner of the first stores */
    bool has_kv_cache;         /* makes `kv_cache` as well as `weights` */
    uint32_t admin_uid;        /* the user that mounted: may administer, as root may */
    uint64_t max_connections;  /* bounds by the limit of descriptors (bounds.h) */
    uint64_t max_watches;
    bool drops_copies;     /* a promotion leaves no spare behind */
    bool evicts;           /* idle stores leave the device for others */
    uint64_t min_stay_ms;  /* time that a promoted store stays at least */
    uint64_t max_regions;  /* 0: no limit of its own */
    uint64_t max_requests; /* waiting requests of the kernel; 0: no limit of its own */
};

int service_new(struct vmm *vmm, const struct service_options *options,
                const struct service_host *host, struct service **service);
/* Fills in the options of the state that service_new begins with. */
void service_get_core_options(const struct vmm *vmm, const struct service_options *options,
                              struct core_options *core_options);
/* A descriptor of the keeper's, as it came to this process. */
struct service_kept {
    uint64_t id;
    int fd; /* -1 once the service owns it */
};
/* Makes a service with the state of a process that has ended, and takes that state over, on failure
 * too. `kept` has all of the keeper's descriptors but connections, in order of number; those of
 * which no record knows are dropped there. Waiters keep their places for a moment, within which the
 * kernel has sent their requests again. */
int service_restore(struct vmm *vmm, const struct service_options *options,
                    const struct service_host *host, struct core *core, struct service_kept *kept,
                    size_t count, struct service **service);
/* Closes the files of connections (service_open.connection) that no front end claims. */
void service_close_connections(struct service *service,
                               bool (*is_claimed)(void *context, uint64_t file), void *context);
/* Ends the restore: every waiter has asked again, `took_us` after the last process ended, for this
 * cause, which `events` tell ("": they do not). */
void service_end_restore(struct service *service, const char *cause, uint64_t took_us);
/* Lets no move begin any more, and ends those under way with their current step: before the end,
 * while helpers still finish their jobs. */
void service_end_moves(struct service *service);
/* Submits no jobs from now on: called while helpers end and before front ends are freed. */
void service_stop(struct service *service);
/* Returns the bytes that a replay and a snapshot of the present state take. */
uint64_t service_count_aside(const struct service *service);
void service_free(struct service *service); /* drops everything, joins nothing */

/* Call once at the end of each step of the loop, before its records are published. The service
 * itself never calls it. */
void service_end_step(struct service *service);
/* Returns true if records were made, or something ended, since the last end of a step. */
bool service_is_unsettled(const struct service *service);

/* Called by the loop. */
void service_on_timer(struct service *service);
void service_on_idle(struct service *service);
/* Returns true if slices of a document are ready: service_on_idle applies one. */
bool service_has_slices(const struct service *service);
void service_on_exit(struct service *service, struct core_process process);
/* Called when a measurement is over (vmm_on_measurement). */
void service_on_measurement(struct service *service);
/* Records news of the device (vmm_on_health); sessions on a lost device end. */
void service_on_health(struct service *service);

#endif
