/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/measurement.h"

#include "base/thread.h"

#define UNKNOWN UINT64_MAX

void measurement_init(struct measurement *measurement)
{
    *measurement = (struct measurement){.mutex = PTHREAD_MUTEX_INITIALIZER};
    atomic_init(&measurement->free_bytes, UNKNOWN);
}

void measurement_destroy(struct measurement *measurement)
{
    pthread_mutex_destroy(&measurement->mutex);
}

bool measurement_begin(struct measurement *measurement)
{
    SCOPED_LOCK(&measurement->mutex);
    bool is_first = !measurement->running;
    measurement->shared = !is_first;
    measurement->running = true;
    return is_first;
}

/* Under the mutex. */
static void finish(struct measurement *measurement, bool is_awaited)
{
    measurement->running = false;
    if (is_awaited && measurement->call)
        measurement->call(measurement->context);
}

void measurement_abandon(struct measurement *measurement)
{
    SCOPED_LOCK(&measurement->mutex);
    finish(measurement, measurement->running && measurement->shared);
}

void measurement_end(struct measurement *measurement, const uint64_t *free_bytes)
{
    if (free_bytes)
        atomic_store(&measurement->free_bytes, *free_bytes);
    SCOPED_LOCK(&measurement->mutex);
    finish(measurement, measurement->running);
}

bool measurement_get(const struct measurement *measurement, uint64_t *free_bytes)
{
    *free_bytes = atomic_load(&measurement->free_bytes);
    return *free_bytes != UNKNOWN;
}

void measurement_listen(struct measurement *measurement, void (*call)(void *context), void *context)
{
    SCOPED_LOCK(&measurement->mutex);
    measurement->call = call;
    measurement->context = context;
}
