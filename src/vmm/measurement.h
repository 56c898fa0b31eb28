/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measurement - a device's free memory, and the listener for new answers
 *
 * One question is open at a time: callers that ask meanwhile share its answer. A backend answers
 * from a thread of its own, whenever it can; no thread waits for it here. For src/vmm. All from any
 * thread.
 */
#ifndef GMSFS_VMM_MEASUREMENT_H
#define GMSFS_VMM_MEASUREMENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct measurement {
    _Atomic uint64_t free_bytes; /* last answer; see measurement_get */
    pthread_mutex_t mutex;       /* guards everything below; a leaf except for the call */
    bool running, shared;        /* shared: a caller asked while it was running */
    void (*call)(void *context);
    void *context;
};

void measurement_init(struct measurement *measurement);
void measurement_destroy(struct measurement *measurement);
/* Returns true if the caller has to ask. False: the question is open already. */
bool measurement_begin(struct measurement *measurement);
/* Ends a question that cannot be asked. Calls the listener if another caller shares it. */
void measurement_abandon(struct measurement *measurement);
/* Ends the measurement with an answer, asked for or not; NULL: there is none. Calls the listener if
 * it was asked for. */
void measurement_end(struct measurement *measurement, const uint64_t *free_bytes);
/* False: there was no answer yet. */
bool measurement_get(const struct measurement *measurement, uint64_t *free_bytes);
void measurement_listen(struct measurement *measurement, void (*call)(void *context),
                        void *context);

#endif
