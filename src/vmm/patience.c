/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/patience.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define THREAD_STACK (256u * 1024)

struct patience {
    const char *device;
    unsigned ms;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t changed;
    const char *call; /* the call in progress; NULL: none */
    uint64_t number;  /* of the call */
    uint64_t begun_ms;
    bool told;    /* this call was logged */
    bool resting; /* the thread waits for a call */
    bool ending;
};

/* Under the mutex. */
static void wait_ms(struct patience *patience, unsigned ms)
{
    struct timespec until = clock_after_ms(CLOCK_MONOTONIC, ms);

    while (!patience->ending &&
           pthread_cond_timedwait(&patience->changed, &patience->mutex, &until) != ETIMEDOUT)
        ;
}

static void *run(void *argument)
{
    struct patience *patience = argument;

    SCOPED_LOCK(&patience->mutex);
    while (!patience->ending) {
        if (!patience->call || patience->told) {
            patience->resting = true;
            pthread_cond_wait(&patience->changed, &patience->mutex);
            patience->resting = false;
            continue;
        }
        uint64_t number = patience->number;
        wait_ms(patience, patience->ms);
        if (patience->ending || !patience->call || patience->number != number)
            continue;
        patience->told = true;
        log_error("%s: %s has not come back for %u ms; allocations wait for it, and the kernel log "
                  "may say why",
                  patience->device, patience->call, patience->ms);
    }
    return NULL;
}

static void destroy(struct patience *patience)
{
    pthread_cond_destroy(&patience->changed);
    pthread_mutex_destroy(&patience->mutex);
    free(patience);
}

int patience_new(const char *device, unsigned ms, struct patience **patience)
{
    struct patience *made = calloc(1, sizeof(*made));

    if (!made)
        return -ENOMEM;
    made->device = device;
    made->ms = ms;
    pthread_mutex_init(&made->mutex, NULL);
    thread_init_condition(&made->changed);
    int error = thread_start(&made->thread, THREAD_STACK, run, made);
    if (error < 0)
        destroy(made);
    else
        *patience = made;
    return error;
}

void patience_free(struct patience *patience)
{
    if (!patience)
        return;
    pthread_mutex_lock(&patience->mutex);
    patience->ending = true;
    pthread_cond_signal(&patience->changed);
    pthread_mutex_unlock(&patience->mutex);
    pthread_join(patience->thread, NULL);
    destroy(patience);
}

/* Under the mutex. */
static void come_back(struct patience *patience)
{
    if (patience->call && patience->told)
        log_info("%s: %s came back after %llu ms", patience->device, patience->call,
                 (unsigned long long)(clock_now_ms() - patience->begun_ms));
    patience->call = NULL;
}

void patience_begin(struct patience *patience, const char *call)
{
    if (!patience)
        return;
    SCOPED_LOCK(&patience->mutex);
    come_back(patience);
    patience->call = call;
    patience->number++;
    patience->begun_ms = clock_now_ms();
    patience->told = false;
    if (patience->resting)
        pthread_cond_signal(&patience->changed);
}

void patience_end(struct patience *patience)
{
    if (!patience)
        return;
    SCOPED_LOCK(&patience->mutex);
    come_back(patience);
}
