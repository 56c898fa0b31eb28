/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/monitor.h"

#include "base/log.h"
#include "base/thread.h"
#include "vmm/nvml.h"
#include "vmm/nvml_events.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ENDING_S          1 /* what hangs in NVML longer is left to the process's end */
#define UUID_TEXT_BYTES   64
#define WHY_BYTES         256
#define WATCH_STACK_BYTES (1024u * 1024) /* NVML's own; untouched, it is free */

struct cuda_watch {
    char uuid[UUID_TEXT_BYTES];
    pthread_t thread;
    struct nvml nvml; /* these two: the thread's */
    struct nvml_device *device;
    pthread_mutex_t mutex; /* of everything below */
    pthread_cond_t asked, answered;
    struct health *health;
    struct nvml_events *events; /* NULL: it tells none */
    bool opened;                /* or that failed */
    int error;                  /* of opening */
    char why[WHY_BYTES];
    bool late_opening; /* nobody waits for it any more */
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

/* Errors of the GPU are told from now on, or it is said that they are not. */
static void wait_for_events(struct cuda_watch *watch)
{
    char why[WHY_BYTES] = "no memory";
    struct nvml_events *events = NULL;
    int rc = nvml_events_new(&watch->nvml, watch->device, &events, why, sizeof(why));

    pthread_mutex_lock(&watch->mutex);
    if (rc == 0 && !watch->ending) {
        rc = nvml_events_start(events, watch->health);
        snprintf(why, sizeof(why), "no thread for it");
    }
    if (rc == 0 && !watch->ending) {
        watch->events = events;
        events = NULL;
    }
    pthread_mutex_unlock(&watch->mutex);
    nvml_events_free(events);
    if (rc < 0)
        log_info("device cuda: errors of the GPU are not told: %s", why);
}

static int open_nvml(struct cuda_watch *watch, char why[WHY_BYTES])
{
    int rc = nvml_open(&watch->nvml, why, WHY_BYTES);

    if (rc == 0 &&
        watch->nvml.nvmlDeviceGetHandleByUUID(watch->uuid, &watch->device) != NVML_DONE) {
        snprintf(why, WHY_BYTES, "NVML does not know %s", watch->uuid);
        rc = -ENODEV;
    }
    if (rc == 0) {
        pthread_mutex_lock(&watch->mutex);
        measure(watch);
        pthread_mutex_unlock(&watch->mutex);
        wait_for_events(watch);
    }
    return rc;
}

/* 0: NVML can be asked. */
static int open_watch(struct cuda_watch *watch)
{
    char why[WHY_BYTES] = "";
    int rc = open_nvml(watch, why);

    pthread_mutex_lock(&watch->mutex);
    watch->opened = true;
    watch->error = rc;
    memcpy(watch->why, why, sizeof(why));
    if (watch->late_opening && rc == 0)
        log_info("device cuda: NVML answers now");
    else if (watch->late_opening)
        log_info("device cuda: what others hold of it, and its errors, cannot be told: %s", why);
    pthread_cond_broadcast(&watch->answered);
    pthread_mutex_unlock(&watch->mutex);
    return rc;
}

static void *run(void *argument)
{
    struct cuda_watch *watch = argument;
    int error = open_watch(watch);

    pthread_mutex_lock(&watch->mutex);
    for (;;) {
        while ((!watch->wanted || error) && !watch->ending)
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

/* False: it takes longer. */
static bool wait_until_opened(struct cuda_watch *watch)
{
    struct timespec until = after_ms(CLOCK_MONOTONIC, CUDA_WATCH_OPEN_MS);
    int rc = 0;

    pthread_mutex_lock(&watch->mutex);
    while (!watch->opened && rc == 0)
        rc = pthread_cond_timedwait(&watch->answered, &watch->mutex, &until);
    watch->late_opening = !watch->opened;
    watch->late = !watch->opened; /* nor does the loop wait for it */
    pthread_mutex_unlock(&watch->mutex);
    return !watch->late_opening;
}

int cuda_watch_new(const uint8_t uuid[16], struct health *health, struct cuda_watch **watch,
                   char *error, size_t error_bytes)
{
    struct cuda_watch *made = calloc(1, sizeof(*made));
    int rc;

    snprintf(error, error_bytes, "no memory or thread for it");
    if (!made)
        return -ENOMEM;
    init(made);
    format_uuid(uuid, made->uuid);
    made->health = health;
    rc = thread_start(&made->thread, WATCH_STACK_BYTES, run, made);
    if (rc < 0) {
        destroy(made);
        return rc;
    }
    if (!wait_until_opened(made)) {
        log_warning("device cuda: NVML has not answered for %d s; what others hold of the GPU, and "
                    "its errors, are not told until it does",
                    CUDA_WATCH_OPEN_MS / 1000);
    } else if (made->error) {
        rc = made->error;
        snprintf(error, error_bytes, "%s", made->why);
        cuda_watch_free(made);
        return rc;
    }
    *watch = made;
    return 0;
}

void cuda_watch_free(struct cuda_watch *watch)
{
    struct timespec until = after_ms(CLOCK_REALTIME, ENDING_S * 1000);

    if (!watch)
        return;
    pthread_mutex_lock(&watch->mutex);
    watch->ending = true;
    nvml_events_free(watch->events);
    watch->events = NULL;
    pthread_cond_signal(&watch->asked);
    pthread_mutex_unlock(&watch->mutex);
    if (pthread_timedjoin_np(watch->thread, NULL, &until) == 0)
        destroy(watch);
}
