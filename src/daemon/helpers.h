/* SPDX-License-Identifier: Apache-2.0 */
/*
 * helpers - threads for what may take long
 * Pools of their own, so that slow transfers of clients never hold up memory, nor a disk what moves
 * between device and host: threads are started
 * when there is work and leave when there was none for two seconds. A job runs on a helper and is
 * then posted to the loop. Submitting is for the loop's thread.
 */
#ifndef GMSFS_DAEMON_HELPERS_H
#define GMSFS_DAEMON_HELPERS_H

#include "daemon/loop.h"
#include "fs/fs.h"
#include "service/host.h"

/* Half as many again as one ALLOC may have: other stores go on. */
#define HELPERS_MAX_MEMORY   (SERVICE_MAX_ALLOC_THREADS + SERVICE_MAX_ALLOC_THREADS / 2)
#define HELPERS_MAX_TRANSFER 48u
#define HELPERS_MAX_COMPUTE  8u
#define HELPERS_MAX_MOVE     24u
#define HELPERS_MAX_DISK     12u /* so on a GPU the copier has room for other moves (COPIER_MOVES) */
#define HELPERS_MAX_FREE     4u  /* or half of the processors, if that is less */
#define HELPERS_REST_S       2

struct helpers;

/* `ledger`: where it is seen what they are at. */
int helpers_new(struct loop *loop, struct fs_ledger *ledger, struct helpers **helpers);
/* From now on so many threads at most. */
void helpers_bound(struct helpers *helpers, enum service_pool pool, unsigned max_threads);
/* -ENOMEM: there is no thread and none can be had */
int helpers_submit(struct helpers *helpers, enum service_pool pool, struct job *job);
/* The same in two steps: after the first the second cannot fail, and has to follow. */
int helpers_promise(struct helpers *helpers, enum service_pool pool, struct job *job);
void helpers_submit_promised(struct helpers *helpers, enum service_pool pool, struct job *job);
/* Jobs that were submitted and not posted yet. */
size_t helpers_count_jobs(struct helpers *helpers);
/* Waits until every thread has left; there must be no job. */
void helpers_free(struct helpers *helpers);

#endif
