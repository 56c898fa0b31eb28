/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service - the front door of the stores: what front ends call
 *
 * Turns requests into records for the core, and does what records cannot: memory is created, grown,
 * sealed, freed, read and written by jobs on helper threads, and requests that have to wait are
 * answered later. Knows nothing of FUSE, sockets or the event loop: what it needs of them comes in
 * `struct service_host`.
 *
 * Threads: everything here runs on the loop's thread, callbacks included, except what a job runs on
 * a helper thread. No call blocks.
 *
 * Answers: a call that may have to wait takes a `struct service_request` embedded in the front
 * end's request. It returns 0 when the answer came or will come by request->done(request, error,
 * answer) — exactly once, perhaps before the call returns. Calls without a request answer by their
 * return.
 */
#ifndef GMSFS_SERVICE_SERVICE_H
#define GMSFS_SERVICE_SERVICE_H

#include "base/job.h"
#include "core/core.h"
#include "vmm/vmm.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SERVICE_MAX_ANCESTORS     32u
#define SERVICE_MAX_ALLOC_THREADS 16u
#define SERVICE_GRACE_MS                                                     \
    5u /* a RELEASE that follows a FLUSH is this late at most (measured 0.1) \
        */
/* Of a bulk document between two looks at other requests: entries, and bytes of keys and values
 * after which no further entry is taken. Some 100 microseconds. */
#define SERVICE_APPLY_SLICE       1024u
#define SERVICE_APPLY_SLICE_BYTES (256u << 10)
#define SERVICE_MAX_BULK_BYTES    (1ull << 30)

/* The caller of a request, resolved while it is blocked in it. */
struct service_caller {
    struct core_process processes[SERVICE_MAX_ANCESTORS]; /* [0] itself, then its ancestors */
    size_t process_count;                                 /* 0: its pid is not visible */
    uint32_t uid, gid;
    char comm[CORE_COMM_BYTES];
};

enum service_pool {
    SERVICE_POOL_MEMORY = 0,   /* creating, growing, freeing: few threads */
    SERVICE_POOL_TRANSFER = 1, /* bytes of clients: may be slow, many at once */
};

/* A piece of memory for the keeper. */
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
    /* -ENOMEM when no thread can be had */
    int (*submit)(void *context, enum service_pool pool, struct job *job);
    /* Calls service_on_timer once at or after this time (UINT64_MAX: never); replaces the last one.
     */
    void (*set_timer)(void *context, uint64_t at_ms);
    /* Calls service_on_idle soon, after other requests that are ready have been served. */
    void (*set_idle)(void *context);
    /* Watches a process until it exits: calls service_on_exit(session). -ESRCH: gone already */
    int (*watch_process)(void *context, struct core_process process, uint64_t session);
    void (*unwatch_process)(void *context, uint64_t session);
    /* On helper threads. -ENOSPC: this new descriptor is one of those that memory must leave over,
     * close it. */
    int (*admit_descriptor)(void *context, int fd);
    /* On helper threads; a round trip for many costs hardly more than for one. The keeper holds
     * duplicates of all the descriptors before this returns 0; after a failure it may hold some.
     * After drop it holds none of these; it need not have held them. */
    int (*keep)(void *context, const struct service_memory *memories, size_t count);
    void (*drop)(void *context, const uint64_t *memories, size_t count);
    /* Front ends, on the loop's thread. */
    void (*on_state)(void *context,
                     uint64_t store); /* `state` of the store changed: wake its polls */
    void (*on_event)(void *context);  /* events grew */
};

struct service_options {
    uint64_t patience_ms;      /* writer_patience */
    uint64_t alloc_timeout_ms; /* alloc_timeout */
    uint64_t spool_max_bytes;  /* EFBIG beyond */
    uint64_t parking_max_ms;   /* the kernel's bound on parked opens; UINT64_MAX: none */
    unsigned alloc_threads;    /* of the pool, at most so many work for one ALLOC */
    uint32_t uid, gid;         /* owner of `weights` */
};

struct service; /* opaque */

struct service_answer {
    uint64_t session, file;
    enum lock_mode mode;
    /* ALLOC */
    uint64_t slot, rank, aligned_bytes;
    char name[256];
    /* set_aside */
    uint64_t reserved_bytes, reserved_before_bytes;
    /* COMMIT, ABORT, APPLY */
    uint64_t generation, applied, culprit;
    bool rolled_back;
    uint8_t hash[16];
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
    /* The service's: what the request waits in, so that it can be interrupted; NULL: not there. */
    struct parked *parked;
    struct alloc_op *alloc;
};

int service_new(struct vmm *vmm, const struct service_options *options,
                const struct service_host *host, struct service **service);
void service_free(struct service *service); /* ends: drops everything, joins nothing */

const struct core *service_get_core(const struct service *service);
struct vmm *service_get_vmm(const struct service *service);

/* From the loop. */
void service_on_timer(struct service *service);
void service_on_idle(struct service *service);
void service_on_exit(struct service *service, uint64_t session);

/* ---- stores: answer at once -------------------------------------------------------------- */
int service_store_create(struct service *s, const char *name, const struct service_caller *caller,
                         uint32_t mode, uint64_t *id);
int service_store_remove(struct service *s, uint64_t store);
int service_store_rename(struct service *s, uint64_t store, const char *name, uint32_t flags);
int service_store_set_attr(struct service *s, uint64_t store, uint32_t which, uint32_t uid,
                           uint32_t gid, uint32_t mode);

/* ---- opening and closing ----------------------------------------------------------------- */

struct service_open {
    uint64_t store; /* 0: a file at the top */
    enum core_kind kind;
    uint64_t serial; /* allocation, entry */
    bool read, write, nonblock, truncate;
};

/* Opens anything. lock, auto: joins or waits. Allocations: join, or take an implicit session at
 * once or EAGAIN; with `truncate` gives memory back. Others: at once. answer: file, session, mode.
 */
int service_open(struct service *s, const struct service_open *open,
                 const struct service_caller *caller, struct service_request *request);
/* Creates an allocation (open(O_CREAT)) and opens it; -EEXIST if there. answer: file, slot. */
int service_create(struct service *s, uint64_t store, const char *name,
                   const struct service_open *open, const struct service_caller *caller,
                   struct service_request *request);
/* The grant could not be delivered (the client was interrupted): undo it. */
void service_undo_open(struct service *s, uint64_t file);
/* INTERRUPT: the waiter is answered EINTR and keeps its place; a waiting ALLOC is forgotten, EINTR,
 * and one whose memory is being made ends between two pieces, with nothing. */
void service_interrupt(struct service *s, struct service_request *request);
/* How many processes of the caller service_flush looks at: 1 or 0. */
size_t service_flush_asks(const struct service *s, uint64_t file);
/* close(2) of one duplicate by `caller`: -ECANCELED for the implicit writer's last file; ends
 * spools' doubts (the memory of what was written is there). */
int service_flush(struct service *s, uint64_t file, const struct service_caller *caller);
/* The last one is closed: never fails. */
void service_close(struct service *s, uint64_t file);

/* ---- handles ----------------------------------------------------------------------------- */

struct service_acquire {
    enum lock_wish wish;
    uint64_t timeout_ms;
    uint64_t reserve_bytes; /* set aside with RW; 0: nothing */
    bool again;             /* the caller is back soon after the timeout: CORE_OPEN_AGAIN */
};

int service_acquire(struct service *s, uint64_t file, const struct service_acquire *acquire,
                    const struct service_caller *caller, struct service_request *request);
int service_join(struct service *s, uint64_t file, const uint8_t token[16], uint64_t *session);
int service_release(struct service *s, uint64_t file, struct service_request *request);
int service_commit(struct service *s, uint64_t session, uint32_t flags, const uint8_t group[16],
                   struct service_request *request);
int service_abort(struct service *s, uint64_t session, struct service_request *request);
/* Revokes a session or a waiter by its number as `sessions` shows it (a waiter's number with a
 * leading w). */
int service_revoke(struct service *s, uint64_t store, uint64_t number, bool waiter);

/* Draining the mount: 0, -ENOMEM. No session is granted from now on; whoever waits is told. */
int service_drain(struct service *s, bool on);
/* Revokes every session. */
void service_revoke_all(struct service *s);
/* Drops all that is committed. -EBUSY: there are sessions; -EAGAIN: memory is on its way back;
 * -ECANCELED: the mount serves again; 0: nothing is held. left: how many sessions, or bytes. */
int service_drain_end(struct service *s, uint64_t *left);

/* Device news (vmm_on_health): they become records, and sessions on a lost device end. */
void service_on_health(struct service *s);
/* What the store (0: all) holds is as it should be, somebody says. -ENOENT, -ENODEV: the device is
 * lost. */
int service_trust(struct service *s, uint64_t store);

/* Is there a session of `store` that a process could belong to by its ancestors? */
bool service_has_joinable(const struct service *s, uint64_t store);
/* The RW session through which this caller may change `store` by path. 0, -ENOLCK */
int service_find_writer(struct service *s, uint64_t store, const struct service_caller *caller,
                        uint64_t *session);
/* The RW session of a handle that is open for writing. 0, -EBADF, -ENOLCK, -ESTALE */
int service_file_writer(struct service *s, uint64_t file, uint64_t *session);

/* ---- allocations ------------------------------------------------------------------------- */

struct service_alloc {
    uint64_t size_bytes;
    uint32_t count;
    const char *name, *tag; /* name "": aNNNNNN */
    bool wait;
};

int service_alloc(struct service *s, uint64_t session, const struct service_alloc *alloc,
                  struct service_request *request);
struct service_set_aside {
    uint64_t bytes;  /* beside what is allocated; less than before gives back */
    bool at_least;   /* or more, if more is set aside already */
    bool wait;       /* for memory, as ALLOC */
    bool as_acquire; /* by the rules of ACQUIRE, which may not wait: -EAGAIN, -ENOMEM */
};

int service_set_aside(struct service *s, uint64_t session, const struct service_set_aside *wanted,
                      struct service_request *request);
/* ftruncate/fallocate: gives memory once (never waits for others: -ENOMEM), or 0 takes it away. */
int service_resize(struct service *s, uint64_t session, uint64_t serial, uint64_t size_bytes,
                   struct service_request *request);
int service_remove(struct service *s, uint64_t session, uint64_t serial);
int service_rename(struct service *s, uint64_t session, uint64_t serial, const char *name,
                   uint32_t flags);
int service_set_tag(struct service *s, uint64_t session, uint64_t serial, const char *tag);
int service_clear(struct service *s, uint64_t session);

/* Byte transfers through an open allocation. read: answer.data/bytes, then rest; short at the end,
 * and of more than a megabyte. write: `from` stays the caller's until done. */
int service_read(struct service *s, uint64_t file, size_t bytes, uint64_t offset,
                 struct service_request *request);
int service_write(struct service *s, uint64_t file, const void *from, size_t bytes, uint64_t offset,
                  struct service_request *request);
/* close(2) of one duplicate: what the spool becomes later can be made, and is. It stays a spool. */
int service_settle(struct service *s, uint64_t file, struct service_request *request);
/* fsync: a spool becomes memory. */
int service_sync(struct service *s, uint64_t file, struct service_request *request);

/* ---- metadata ---------------------------------------------------------------------------- */
int service_entry_put(struct service *s, uint64_t session, const void *key, size_t key_bytes,
                      uint64_t slot, uint64_t offset, const void *value, size_t value_bytes);
int service_entry_delete(struct service *s, uint64_t session, const void *key, size_t key_bytes);
int service_entry_rename(struct service *s, uint64_t session, uint64_t serial, const void *key,
                         size_t key_bytes);
/* Applies a bulk document (gmsfs(5)) in slices; takes `document` (malloc'ed). answer: applied,
 * culprit. */
int service_apply(struct service *s, uint64_t session, uint8_t *document, size_t bytes,
                  struct service_request *request);

/* ---- descriptors ------------------------------------------------------------------------- */

struct service_export {
    uint64_t first, count; /* ranks; count 0: all from first */
    bool writable;
    uint8_t ticket[16];   /* out */
    uint64_t total_bytes; /* out */
    uint64_t generation;  /* out */
};

/* A spool behind it is ended first. answer.bytes is not used; `export` is filled before done. */
int service_export(struct service *s, uint64_t file, uint32_t uid, struct service_export *export,
                   struct service_request *request);

struct service_redeemed { /* a ticket in use */
    uint64_t session;
    uint64_t first, count;
    uint64_t serial; /* one allocation, whatever its rank by now; 0: ranks */
    bool writable;
};

int service_redeem(struct service *s, const uint8_t ticket[16], uint32_t uid,
                   struct service_redeemed *out);

struct service_descriptor {
    uint64_t rank, slot, size_bytes, aligned_bytes;
    int fd; /* the service's: duplicate by sending, never close */
};

/* The descriptor of one rank of a ticket in use. -ESTALE when its session is over. */
int service_get_descriptor(struct service *s, const struct service_redeemed *ticket, uint64_t rank,
                           struct service_descriptor *descriptor);

/* ---- numbers ----------------------------------------------------------------------------- */

struct service_numbers {
    uint64_t transfers_in_flight, transfers_total, read_bytes, written_bytes;
    uint64_t jobs_in_flight, allocs_waiting, oldest_wait_ms, exports, tickets_redeemed;
    uint64_t freeing_bytes; /* being given back */
};

void service_get_numbers(const struct service *s, struct service_numbers *numbers);
uint64_t service_count_open_files(const struct service *s);

#endif
