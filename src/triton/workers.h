/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers - threads of the server for calls that may block: reading, writing and releasing regions
 *
 * libgmsfs may ask the mount for both, and the loop must not wait for that. Threads are started
 * when there is work, up to a few, and stay. Only the loop's thread submits.
 */
#ifndef GMSFS_TRITON_WORKERS_H
#define GMSFS_TRITON_WORKERS_H

#include "base/job.h"

#include <stdint.h>

struct loop;
struct workers;

int workers_new(struct loop *loop, struct workers **workers);
/* owner: user that the job counts for; no owner gets all threads. -ENOMEM: there is no thread, and
 * none can be started */
int workers_submit(struct workers *workers, uint64_t owner, struct job *job);
/* Waits until every thread has ended; no job may be pending. NULL is fine */
void workers_free(struct workers *workers);

#endif
