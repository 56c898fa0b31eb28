/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep - the worker's side of the `keep` channel
 *
 * For helper threads of the worker: hands the descriptor of new memory to the keeper and waits
 * until it holds it; says when memory is given back. Any thread; they take turns.
 */
#ifndef GMSFS_DAEMON_KEEP_H
#define GMSFS_DAEMON_KEEP_H

#include <pthread.h>
#include <stdint.h>

struct keep {
    pthread_mutex_t mutex;
    int fd;
};

void keep_init(struct keep *keep, int fd);
void keep_close(struct keep *keep);
/* The keeper holds a duplicate when this returns 0. -EMFILE: it has too many */
int keep_add(struct keep *keep, uint64_t memory, int fd, uint64_t bytes);
void keep_drop(struct keep *keep, uint64_t memory);

#endif
