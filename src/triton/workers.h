/* SPDX-License-Identifier: Apache-2.0 */
/*
 * workers - threads of the server for what may wait: bytes of regions, and letting go of them
 *
 * libgmsfs asks the mount for both in places, and the loop must not wait for that. Threads are
 * started when there is work, up to a few, and stay. Submitting is for the loop's thread.
 */
#ifndef GMSFS_TRITON_WORKERS_H
#define GMSFS_TRITON_WORKERS_H

#include "base/job.h"

#include <stdint.h>

struct loop;
struct workers;

int workers_new(struct loop *loop, struct workers **workers);
/* owner: whose work it is; nobody has all threads. -ENOMEM: there is no thread and none can be had
 */
int workers_submit(struct workers *workers, uint64_t owner, struct job *job);
/* Waits until every thread has left; there must be no job. NULL is fine */
void workers_free(struct workers *workers);

#endif
