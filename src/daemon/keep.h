/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep - the worker's side of the `keep` channel
 *
 * For helper threads of the worker. Hands descriptors of new memory, and of connections of GMS
 * clients, to the keeper and waits until the keeper holds them; tells it when they are freed. Any
 * thread; they take turns. One question and one answer cover up to WIRE_BATCH_MAX pieces, so
 * callers gather them.
 */
#ifndef GMSFS_DAEMON_KEEP_H
#define GMSFS_DAEMON_KEEP_H

#include "service/host.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct keep {
    pthread_mutex_t mutex;
    int fd;
    uint64_t questions; /* number of the last question */
};

void keep_init(struct keep *keep, int fd);
void keep_close(struct keep *keep);
/* When this returns 0 the keeper holds duplicates of all; else it may hold some, and the caller
 * must drop all. -EMFILE: the keeper has too many. */
int keep_add(struct keep *keep, const struct service_memory *memories, size_t count);
/* Tells the keeper of one descriptor without waiting, for a caller that calls keep_add later or can
 * do without. Returns false if the keeper's queue is full: it was not told. */
bool keep_add_ahead(struct keep *keep, const struct service_memory *memory);
/* Tells the keeper to drop one, without waiting. Returns false if its queue is full. */
bool keep_drop_ahead(struct keep *keep, uint64_t memory);
/* Makes the keeper drop all of these; numbers that it does not hold are ignored. */
void keep_drop(struct keep *keep, const uint64_t *memories, size_t count);
/* Has the keeper register this memory's file with the kernel. -EPERM: its bytes are not final, or
 * the keeper may not; another negative errno of the kernel. keep_end_back
 * and keep_drop end the registration. */
int keep_back(struct keep *keep, uint64_t memory, uint32_t *number);
int keep_end_back(struct keep *keep, uint64_t memory);

#endif
