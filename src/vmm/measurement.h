/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measurement - what a device says of its free memory, and whom to tell when it has said it
 *
 * One question is open at a time: whoever asks meanwhile shares its answer. A backend answers from
 * a thread of its own, whenever it can; nobody waits for it here. For src/vmm. All from any thread.
 */
#ifndef GMSFS_VMM_MEASUREMENT_H
#define GMSFS_VMM_MEASUREMENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct measurement {
    _Atomic uint64_t free_bytes; /* as last told; see measurement_get */
    pthread_mutex_t mutex;       /* of everything below; a leaf but for the call */
    bool running, shared;        /* by who asked meanwhile */
    void (*call)(void *context);
    void *context;
};

void measurement_init(struct measurement *measurement);
void measurement_destroy(struct measurement *measurement);
/* True: the question is the caller's to ask. False: it was asked already. */
bool measurement_begin(struct measurement *measurement);
/* The question of who began cannot be asked. Calls who listens if somebody shares it. */
void measurement_abandon(struct measurement *measurement);
/* The answer, asked for or not; NULL: there is none. Calls who listens, if it was asked for. */
void measurement_end(struct measurement *measurement, const uint64_t *free_bytes);
/* False: it was never told. */
bool measurement_get(const struct measurement *measurement, uint64_t *free_bytes);
void measurement_listen(struct measurement *measurement, void (*call)(void *context),
                        void *context);

#endif
