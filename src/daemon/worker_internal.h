/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the worker share; nobody else includes it. */
#ifndef GMSFS_DAEMON_WORKER_INTERNAL_H
#define GMSFS_DAEMON_WORKER_INTERNAL_H

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
#include "vmm/headroom.h"
#include "vmm/room.h"

#include <stdatomic.h>

/* Beside the journal's transactions, zeros at first. It is kept by one build for another: append
 * only. */
struct worker_own {
    struct audit_position audit;
    _Atomic uint32_t has_device; /* the next is whole */
    uint32_t reserved;
    struct vmm_description device;
    uint64_t former_kills; /* unused: earlier builds kept a count of OOM kills here */
};

struct worker_random {
    size_t left; /* the first so many bytes were not given yet */
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
    bool resumes;                     /* another worker served before */
    struct service_kept *kept;        /* what the keeper has held, until all is restored */
    size_t kept_count, kept_memories; /* these come first, and connections behind */
    uint64_t began_us;
    int lifeline_fd; /* on its way to the keeper; negative: none */
    struct transaction transaction;
    struct worker_random random;
    struct snapshot snapshot;
    struct vmm *vmm;
    struct headroom *headroom; /* NULL: it cannot be told how much memory there is */
    struct room room;
    uint64_t trimmed_ms; /* when the heap last gave back all that it can */
    struct service *service;
    struct fs *fs;
    struct gms *gms;     /* NULL: no GMS clients were asked for */
    struct audit *audit; /* NULL: none was asked for */
    struct event_watch control;
    struct event_timeout timeout; /* the service's */
    struct job measurement;       /* posted when one is over */
    atomic_bool measurement_posted;
    struct job health; /* posted when there is news, and not again before it is done */
    int status;
};

/* ---- worker_host.c: what the service and the file system ask of the daemon ---------------------
 */

struct service_host worker_service_host(struct worker *worker);
struct fs_host worker_fs_host(struct worker *worker);
/* Settles the service, then publishes the step's records. */
void worker_end_step(struct worker *worker);
/* Sends the message, and `fd` unless it is negative. A keeper that does not answer is gone, and
 * then so is this process in a moment. */
void worker_tell_keeper(struct worker *worker, const struct wire_message *message, int fd);

/* ---- worker_room.c: what this process itself may grow by --------------------------------------
 */

/* First of all. */
void worker_bound_heap(void);
/* With the journal, which tells of a worker that was killed for want of memory. */
void worker_open_room(struct worker *worker);
void worker_close_room(struct worker *worker);

/* ---- worker_resume.c: a worker that goes on where another has ended ----------------------------
 */

/* Where another worker had it before, its driver is not waited for. `text`: why not */
int worker_open_device(struct worker *worker, char *text, size_t text_bytes);
int worker_restore_service(struct worker *worker, const struct service_options *options,
                           const struct service_host *host);
/* Those of GMS clients. Before the kernel sends its requests again: who waits comes back in time.
 */
void worker_resume_connections(struct worker *worker);
int worker_resume_fuse(struct worker *worker);

#endif
