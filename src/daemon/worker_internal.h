/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the worker; no other file includes it. */
#ifndef GMSFS_DAEMON_WORKER_INTERNAL_H
#define GMSFS_DAEMON_WORKER_INTERNAL_H

#include "base/timeline.h"
#include "daemon/audit.h"
#include "daemon/descriptors.h"
#include "daemon/exits.h"
#include "daemon/gms.h"
#include "daemon/helpers.h"
#include "daemon/keep.h"
#include "daemon/loop.h"
#include "daemon/snapshot.h"
#include "daemon/transaction.h"
#include "daemon/wire.h"
#include "daemon/worker.h"
#include "fs/fs.h"
#include "vmm/headroom.h"
#include "vmm/room.h"

#include <stdatomic.h>

/* Lies beside the journal's transactions, all zeros at first. One build keeps it for another: only
 * append fields. */
struct worker_own {
    struct audit_position audit;
    _Atomic uint32_t has_device; /* 1 when `device` is complete */
    _Atomic uint32_t log_level;  /* set by `gmsfs log`, 1: error; 0: as the options say */
    struct vmm_description device;
    uint64_t former_kills; /* unused: earlier builds kept a count of OOM kills here */
};

/* Numbers that count on over a worker's end, in the journal's bytes for them, all zeros at first.
 * One build keeps them for another: each part has a room of its own, and only appends fields. */
struct worker_counts {
    union {
        struct service_counts service;
        uint8_t service_room[1024];
    };
    union {
        struct audit_numbers audit;
        uint8_t audit_room[64];
    };
    union {
        struct timeline_numbers trace;
        uint8_t trace_room[64];
    };
    union {
        struct fs_counts fs;
        uint8_t fs_room[1280];
    };
};

_Static_assert(sizeof(struct service_counts) <= 1024 && sizeof(struct audit_numbers) <= 64 &&
                   sizeof(struct timeline_numbers) <= 64 && sizeof(struct fs_counts) <= 1280,
               "a part that outgrows its room moves the parts behind it");
_Static_assert(CORE_PLACE_COUNT == 4, "another place moves the counts behind service_counts.moves");

struct worker_random {
    size_t left; /* number of bytes, from the start, that were not given out yet */
    uint8_t bytes[512];
};

struct worker {
    const struct worker_setup *setup;
    struct descriptors descriptors;
    struct loop *loop;
    struct helpers *helpers;
    struct exits exits;
    struct keep keep;
    struct journal *journal;
    bool keeper_backs;                /* the keeper registers files of memory with the kernel */
    bool resumes;                     /* another worker served before */
    struct service_kept *kept;        /* the keeper's descriptors, until all is restored */
    size_t kept_count, kept_memories; /* of these, memory comes first; connections follow */
    uint64_t began_us;
    int lifeline_fd; /* to be sent to the keeper; negative if there is none */
    struct transaction transaction;
    struct worker_random random;
    struct snapshot snapshot;
    struct vmm *vmm;
    struct headroom *headroom; /* NULL if the free memory cannot be read */
    struct room room;
    uint64_t trimmed_ms; /* when malloc_trim(3) last ran */
    struct service *service;
    struct fs *fs;
    struct gms *gms;     /* NULL if GMS clients are not served */
    struct audit *audit; /* NULL if there is no audit */
    struct event_watch control;
    struct event_timeout timeout; /* the service's */
    struct job measurement;       /* posted when a measurement has ended */
    atomic_bool measurement_posted;
    struct job health; /* posted when there is news; not posted again before it is done */
    int status;
};

/* ---- worker_host.c: the daemon's functions that the service and the file system call -------- */

struct service_host worker_service_host(struct worker *worker);
struct fs_host worker_fs_host(struct worker *worker);
/* Settles the service, then publishes the step's records. */
void worker_end_step(struct worker *worker);
/* Sends the message, with `fd` unless it is negative. If the keeper does not answer, it has ended,
 * and this process will end in a moment too. */
void worker_tell_keeper(struct worker *worker, const struct wire_message *message, int fd);

/* ---- worker_trace.c ------------------------------------------------------------------------- */

/* Starts the trace with this file, or goes on in it; takes the descriptor. */
int worker_take_trace(struct worker *worker, int fd);

/* ---- worker_room.c: the memory that this process may still take ----------------------------- */

/* Call it before all else. */
void worker_bound_heap(void);
/* Needs the journal, which says whether a worker was killed for lack of memory. */
void worker_open_room(struct worker *worker);
void worker_close_room(struct worker *worker);

/* ---- worker_resume.c: a worker that continues where another one ended ----------------------- */

/* Opens the device; without waiting for its driver if an earlier worker had opened it. On failure
 * `text` is the reason. */
int worker_open_device(struct worker *worker, char *text, size_t text_bytes);
int worker_restore_service(struct worker *worker, const struct service_options *options,
                           const struct service_host *host);
/* Restores the connections of GMS clients. Call it before the kernel sends its requests again, so
 * that waiting clients are back in time. */
void worker_resume_connections(struct worker *worker);
int worker_resume_fuse(struct worker *worker);

#endif
