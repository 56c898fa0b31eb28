/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transaction - the records of one step of the worker, and the effects that wait for them
 *
 * Records go to the journal as they are applied. Answers to the kernel, jobs that follow from the
 * records and data sent on sockets wait until the step has ended; then the transaction is
 * published, and they are released. So a client that has an answer, or sees memory freed, can rely
 * on the next worker to know of it. A step without records holds nothing back: reading costs no
 * more than before. One thread: the loop's.
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

/* Version of the entries' contents, including those of fs_note (gather_note.c) and rpc_note. */
#define TRANSACTION_VERSION 2u

/* Types of entries in the journal. One build keeps them for another: only append. */
enum transaction_entry {
    TRANSACTION_RECORD = 1,     /* record_pack's bytes */
    TRANSACTION_ANSWER = 2,     /* to the kernel: struct fuse_out_header and its data */
    TRANSACTION_NOTE = 3,       /* the file system's: fs_note */
    TRANSACTION_CONNECTION = 4, /* a GMS client's: rpc_note */
    TRANSACTION_STATE = 5,      /* core_encode's bytes: the state before the first record */
};

struct transaction_answer;

struct transaction {
    struct journal *journal;
    struct helpers *helpers;
    struct transaction_answer *answers; /* held */
    size_t answer_count, answer_room;
    struct job *jobs[SERVICE_POOL_COUNT], **last_job[SERVICE_POOL_COUNT]; /* held */
    /* True if some are held. */
    bool has_jobs;
    struct event_held *held, **last_held; /* connections with data to send */
    bool told_refusal;
    struct room *room; /* the memory that the journal may take; NULL if it is not bounded */
    /* The kernel rejected an answer (ENOENT): the caller has gone. */
    void (*on_unwanted)(void *context, uint64_t tag);
    void *context;
};

void transaction_init(struct transaction *transaction, struct journal *journal,
                      struct helpers *helpers);
void transaction_free(struct transaction *transaction);

/* For struct service_host. */
int transaction_record(struct transaction *transaction, const struct record *record, size_t *mark);
int transaction_submit(struct transaction *transaction, enum service_pool pool, struct job *job);

/* Notes an entry for the next worker, with the records of this step. -ENOMEM */
int transaction_note(struct transaction *transaction, enum transaction_entry type,
                     const struct iovec *parts, int count);

/* Answers the kernel on `fd`, like writev(2), and returns its result or a negative errno. `tag` is
 * passed to on_unwanted; 0 if there is no one to tell. */
ssize_t transaction_answer(struct transaction *transaction, int fd, const struct iovec *parts,
                           int count, uint64_t tag);

/* Returns true if the step has recorded anything: then `held` is released when the records are
 * published, in the order of these calls, after the answers to the kernel. Returns false if nothing
 * has to wait. Calling it again before the release is harmless. */
bool transaction_hold(struct transaction *transaction, struct event_held *held);
/* Cancels the release. Harmless if it is not held. */
void transaction_unhold(struct transaction *transaction, struct event_held *held);

/* Publishes the transaction, and releases all that was held. */
void transaction_end(struct transaction *transaction);

#endif
