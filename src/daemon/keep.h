/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep - the worker's side of the `keep` channel
 *
 * For helper threads of the worker: hands descriptors of new memory, and of connections of GMS
 * clients, to the keeper and waits until it holds them; says when they are given back. Any thread;
 * they take turns. One question and one answer for up to WIRE_BATCH_MAX pieces, so callers gather
 * them.
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
    uint64_t questions; /* so far: their numbers */
};

void keep_init(struct keep *keep, int fd);
void keep_close(struct keep *keep);
/* The keeper holds duplicates of all when this returns 0, else it may hold some: drop them all.
 * -EMFILE: it has too many */
int keep_add(struct keep *keep, const struct service_memory *memories, size_t count);
/* One, which the keeper is told of without waiting, and not at all where its queue is full: for
 * what keep_add follows for, or what can be done without. False: it was not. */
bool keep_add_ahead(struct keep *keep, const struct service_memory *memory);
/* The same of one that it is to let go of. False: its queue is full. */
bool keep_drop_ahead(struct keep *keep, uint64_t memory);
/* It holds none of these any more; those that it never held do no harm. */
void keep_drop(struct keep *keep, const uint64_t *memories, size_t count);

#endif
