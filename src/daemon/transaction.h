/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transaction - what one step of the worker records, and what leaves the process because of it
 *
 * Records go to the journal as they are applied. Answers to the kernel, jobs that follow from them
 * and what is sent by sockets are held until the step is over; then the transaction is published,
 * and they leave. So whoever has an answer, or sees memory gone, can rely on a next worker to know
 * of it. Where nothing was recorded nothing is held: who only looks costs no more than before. One
 * thread: the loop's.
 */
#ifndef GMSFS_DAEMON_TRANSACTION_H
#define GMSFS_DAEMON_TRANSACTION_H

#include "base/event.h"
#include "core/record.h"
#include "daemon/helpers.h"
#include "journal/journal.h"
#include "vmm/room.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* Of what the entries are, those of fs_note (gather_note.c) and rpc_note too. */
#define TRANSACTION_VERSION 2u

/* Types of entries in the journal. They are kept by one build for another: append only. */
enum transaction_entry {
    TRANSACTION_RECORD = 1,     /* record_pack's bytes */
    TRANSACTION_ANSWER = 2,     /* to the kernel: struct fuse_out_header and what follows */
    TRANSACTION_NOTE = 3,       /* the file system's own: fs_note */
    TRANSACTION_CONNECTION = 4, /* of a GMS client: rpc_note */
    TRANSACTION_STATE = 5,      /* core_encode's bytes: what the records begin with */
};

struct transaction_answer;

struct transaction {
    struct journal *journal;
    struct helpers *helpers;
    struct transaction_answer *answers; /* held */
    size_t answer_count, answer_room;
    struct job *jobs[SERVICE_POOL_COUNT], **last_job[SERVICE_POOL_COUNT]; /* held */
    bool has_jobs;                                                        /* some are */
    struct event_held *held, **last_held; /* who have something to send */
    bool told_refusal;
    struct room *room; /* what the journal may grow by; NULL: there is no bound */
    /* The kernel does not want an answer any more (ENOENT): who asked has gone. */
    void (*on_unwanted)(void *context, uint64_t tag);
    void *context;
};

void transaction_init(struct transaction *transaction, struct journal *journal,
                      struct helpers *helpers);
void transaction_free(struct transaction *transaction);

/* As struct service_host has them. */
int transaction_record(struct transaction *transaction, const struct record *record, size_t *mark);
void transaction_unrecord(struct transaction *transaction, size_t mark);
int transaction_submit(struct transaction *transaction, enum service_pool pool, struct job *job);

/* For a next worker, with the records of this step. -ENOMEM */
int transaction_note(struct transaction *transaction, enum transaction_entry type,
                     const struct iovec *parts, int count);

/* An answer for the kernel, to `fd`, as writev(2) would have it, and what writev(2) returns, or a
 * negative errno. `tag`: on_unwanted's; 0: nobody's. */
ssize_t transaction_answer(struct transaction *transaction, int fd, const struct iovec *parts,
                           int count, uint64_t tag);

/* Has the step recorded anything? Then it is released when that counts, in the order in which they
 * came, after the answers to the kernel. False: nothing has to wait. Once more before it is
 * released is fine. */
bool transaction_hold(struct transaction *transaction, struct event_held *held);
/* It is not released any more. Harmless where it is not held. */
void transaction_unhold(struct transaction *transaction, struct event_held *held);

/* Publishes the transaction, and lets out what was held. */
void transaction_end(struct transaction *transaction);

#endif
