/* SPDX-License-Identifier: Apache-2.0 */
/*
 * helpers - threads for long work
 *
 * Each kind of work has a pool of its own, so that slow transfers of clients never delay memory,
 * nor a disk the moves between device and host. A thread starts when there is work and leaves after
 * two seconds without. A job runs on a helper and is then posted to the loop. Only the loop's
 * thread submits.
 */
#ifndef GMSFS_DAEMON_HELPERS_H
#define GMSFS_DAEMON_HELPERS_H

#include "daemon/loop.h"
#include "fs/fs.h"
#include "service/host.h"

/* Half as many again as one ALLOC may have, so that other stores still get some. */
#define HELPERS_MAX_MEMORY   (SERVICE_MAX_ALLOC_THREADS + SERVICE_MAX_ALLOC_THREADS / 2)
#define HELPERS_MAX_TRANSFER 48u
#define HELPERS_MAX_COMPUTE  8u
#define HELPERS_MAX_MOVE     24u
#define HELPERS_MAX_DISK     12u /* leaves room for other moves in a GPU's copier (COPIER_MOVES) */
#define HELPERS_MAX_FREE     4u  /* or half of the processors, if that is less */
#define HELPERS_REST_S       2

struct helpers;

/* `ledger`: where the helpers note the requests that they serve. */
int helpers_new(struct loop *loop, struct fs_ledger *ledger, struct helpers **helpers);
/* Bounds the number of threads from now on. */
void helpers_bound(struct helpers *helpers, enum service_pool pool, unsigned max_threads);
/* -ENOMEM: the pool has no thread and cannot start one. */
int helpers_submit(struct helpers *helpers, enum service_pool pool, struct job *job);
/* The same in two steps: after the first the second cannot fail, and must follow. */
int helpers_promise(struct helpers *helpers, enum service_pool pool, struct job *job);
void helpers_submit_promised(struct helpers *helpers, enum service_pool pool, struct job *job);
/* Counts jobs that were submitted and not posted yet. */
size_t helpers_count_jobs(struct helpers *helpers);
/* Waits until every thread has left. There must be no job. */
void helpers_free(struct helpers *helpers);

#endif
