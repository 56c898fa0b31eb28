/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/cuda_watch.h"

#include "base/log.h"
#include "vmm/cuda_events.h"
#include "vmm/nvml.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ENDING_S          1 /* what hangs in NVML longer is left to the process's end */
#define UUID_TEXT_BYTES   64
#define WATCH_STACK_BYTES (1024u * 1024) /* NVML's own; untouched, it is free */

struct cuda_watch {
    struct nvml nvml;
    struct nvml_device *device;
    struct cuda_events *events; /* NULL: it tells none */
    pthread_t thread;
    pthread_mutex_t mutex; /* of everything below */
    pthread_cond_t asked, answered;
    bool wanted, ending, known;
    bool late;       /* a question is open that somebody gave up waiting for */
    uint64_t rounds; /* answers of NVML, good or bad */
    uint64_t free_bytes;
    enum nvml_result last; /* of those answers */
};

/* Under the mutex, but for the call itself. */
static void measure(struct cuda_watch *watch)
{
    struct nvml_memory memory;
    enum nvml_result result;

    pthread_mutex_unlock(&watch->mutex);
    result = watch->nvml.nvmlDeviceGetMemoryInfo(watch->device, &memory);
    pthread_mutex_lock(&watch->mutex);
    if (result == NVML_DONE) {
        watch->free_bytes = memory.free_bytes;
        watch->known = true;
    }
    watch->last = result;
    watch->late = false;
    watch->rounds++;
}

static void *run(void *argument)
{
    struct cuda_watch *watch = argument;

    pthread_mutex_lock(&watch->mutex);
    for (;;) {
        while (!watch->wanted && !watch->ending)
            pthread_cond_wait(&watch->asked, &watch->mutex);
        if (watch->ending)
            break;
        watch->wanted = false;
        measure(watch);
        pthread_cond_broadcast(&watch->answered);
    }
    pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

static struct timespec after_ms(clockid_t clock, unsigned ms)
{
    struct timespec at;

    clock_gettime(clock, &at);
    at.tv_sec += ms / 1000;
    at.tv_nsec += ms % 1000 * 1000000L;
    if (at.tv_nsec >= 1000000000L) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000L;
    }
    return at;
}

/* Under the mutex: `rounds` more answers, the first may be of a question from before. False: there
 * were none in time. */
static bool ask(struct cuda_watch *watch, unsigned rounds, unsigned patience_ms)
{
    struct timespec until = after_ms(CLOCK_MONOTONIC, patience_ms);
    int rc = 0;

    while (rounds > 0 && rc == 0) {
        uint64_t before = watch->rounds;
        watch->wanted = true;
        pthread_cond_signal(&watch->asked);
        while (watch->rounds == before && rc == 0)
            rc = pthread_cond_timedwait(&watch->answered, &watch->mutex, &until);
        if (watch->rounds == before)
            watch->late = true;
        rounds--;
    }
    return rc == 0;
}

enum cuda_watch_word cuda_watch_look(struct cuda_watch *watch)
{
    enum cuda_watch_word word = CUDA_WATCH_SILENT;

    pthread_mutex_lock(&watch->mutex);
    if (ask(watch, 2, CUDA_WATCH_LOOK_MS)) {
        if (watch->last == NVML_DONE)
            word = CUDA_WATCH_THERE;
        else if (watch->last == NVML_GPU_IS_LOST)
            word = CUDA_WATCH_GONE;
    }
    pthread_mutex_unlock(&watch->mutex);
    return word;
}

int cuda_watch_measure(struct cuda_watch *watch, uint64_t *free_bytes)
{
    int rc;

    pthread_mutex_lock(&watch->mutex);
    if (!watch->late) /* one wait for each hang: the loop asks, as often as clients like */
        ask(watch, 1, CUDA_WATCH_PATIENCE_MS);
    rc = watch->known ? 0 : -EAGAIN;
    *free_bytes = watch->free_bytes;
    pthread_mutex_unlock(&watch->mutex);
    return rc;
}

static void format_uuid(const uint8_t uuid[16], char text[UUID_TEXT_BYTES])
{
    int at = snprintf(text, UUID_TEXT_BYTES, "GPU-");

    for (int i = 0; i < 16; i++)
        at += snprintf(text + at, (size_t)(UUID_TEXT_BYTES - at), "%s%02x",
                       i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

/* Signals are the loop's business. */
static int start(struct cuda_watch *watch)
{
    pthread_attr_t attributes;
    sigset_t all, before;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, WATCH_STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&watch->thread, &attributes, run, watch);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return -error;
}

static void init(struct cuda_watch *watch)
{
    pthread_condattr_t clock;

    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&watch->mutex, NULL);
    pthread_cond_init(&watch->asked, NULL);
    pthread_cond_init(&watch->answered, &clock);
    pthread_condattr_destroy(&clock);
}

static void destroy(struct cuda_watch *watch)
{
    pthread_cond_destroy(&watch->answered);
    pthread_cond_destroy(&watch->asked);
    pthread_mutex_destroy(&watch->mutex);
    free(watch);
}

static void wait_for_events(struct cuda_watch *watch, struct health *health)
{
    char why[256] = "no memory";

    if (cuda_events_new(&watch->nvml, watch->device, health, &watch->events, why, sizeof(why)) < 0)
        log_info("device cuda: errors of the GPU are not told: %s", why);
}

int cuda_watch_new(const uint8_t uuid[16], struct health *health, struct cuda_watch **watch,
                   char *error, size_t error_bytes)
{
    struct cuda_watch *made = calloc(1, sizeof(*made));
    char text[UUID_TEXT_BYTES];
    int rc;

    if (!made)
        return -ENOMEM;
    init(made);
    format_uuid(uuid, text);
    rc = nvml_open(&made->nvml, error, error_bytes);
    if (rc == 0 && made->nvml.nvmlDeviceGetHandleByUUID(text, &made->device) != NVML_DONE) {
        snprintf(error, error_bytes, "NVML does not know %s", text);
        rc = -ENODEV;
    }
    if (rc == 0) {
        pthread_mutex_lock(&made->mutex);
        measure(made); /* nobody waits for it yet: however long it takes */
        pthread_mutex_unlock(&made->mutex);
        rc = start(made);
    }
    if (rc < 0) {
        destroy(made);
        return rc;
    }
    wait_for_events(made, health);
    *watch = made;
    return 0;
}

void cuda_watch_free(struct cuda_watch *watch)
{
    struct timespec until = after_ms(CLOCK_REALTIME, ENDING_S * 1000);

    if (!watch)
        return;
    cuda_events_free(watch->events);
    pthread_mutex_lock(&watch->mutex);
    watch->ending = true;
    pthread_cond_signal(&watch->asked);
    pthread_mutex_unlock(&watch->mutex);
    if (pthread_timedjoin_np(watch->thread, NULL, &until) == 0)
        destroy(watch);
}
