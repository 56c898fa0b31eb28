/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/monitor.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "vmm/measurement.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ENDING_S    1 /* bound of waiting for a thread inside the library */
#define WHY_BYTES   256
#define STACK_BYTES (1024u * 1024) /* for the library; untouched pages cost nothing */

struct monitor {
    const struct monitor_source *source;
    const char *driver;
    uint8_t uuid[16];
    pthread_t thread;
    void *state;           /* of the source; used by the thread alone */
    pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t asked, answered;
    struct health *health; /* health, measurement: not valid once it is ending */
    struct measurement *measurement;
    void *events; /* of the source; NULL: it reports none */
    bool opened;  /* or failed to */
    int error;    /* of opening */
    char why[WHY_BYTES];
    bool opens_late; /* no thread waits for the opening any more */
    bool was_waited_for;
    bool wanted, ending;
    bool ended,
        abandoned;   /* ended: the thread has; abandoned: monitor_free left the freeing to it */
    uint64_t rounds; /* number of answers, good or bad */
    enum monitor_word last; /* the last answer */
};

/* Called under the mutex, which is released during the library's call. */
static void ask(struct monitor *monitor)
{
    uint64_t free_bytes;

    pthread_mutex_unlock(&monitor->mutex);
    enum monitor_word word = monitor->source->ask(monitor->state, &free_bytes);
    pthread_mutex_lock(&monitor->mutex);
    monitor->last = word;
    monitor->rounds++;
    if (!monitor->ending)
        measurement_end(monitor->measurement, word == MONITOR_THERE ? &free_bytes : NULL);
    pthread_cond_broadcast(&monitor->answered);
}

/* Starts to report errors of the GPU, or logs why they are not reported. */
static void wait_for_events(struct monitor *monitor)
{
    const struct monitor_source *source = monitor->source;
    char why[WHY_BYTES] = "no memory";
    void *events = NULL;
    int error = source->listen(monitor->state, &events, why, sizeof(why));

    pthread_mutex_lock(&monitor->mutex);
    if (error == 0 && !monitor->ending) {
        error = source->start(events, monitor->health);
        snprintf(why, sizeof(why), "no thread for it");
    }
    if (error == 0 && !monitor->ending) {
        monitor->events = events;
        events = NULL;
    }
    pthread_mutex_unlock(&monitor->mutex);
    if (events)
        source->stop(events);
    if (error)
        log_info("device %s: errors of the GPU are not reported: %s", monitor->driver, why);
}

/* Returns 0 if the library can be asked. */
static int open_source(struct monitor *monitor)
{
    char why[WHY_BYTES] = "";
    int error = monitor->source->open(monitor->uuid, &monitor->state, why, sizeof(why));

    if (error == 0) {
        pthread_mutex_lock(&monitor->mutex);
        ask(monitor);
        pthread_mutex_unlock(&monitor->mutex);
        wait_for_events(monitor);
    }
    pthread_mutex_lock(&monitor->mutex);
    monitor->opened = true;
    monitor->error = error;
    memcpy(monitor->why, why, sizeof(why));
    if (error && !monitor->ending)
        measurement_end(monitor->measurement, NULL); /* one that was begun meanwhile */
    if (monitor->opens_late && error == 0 && monitor->was_waited_for)
        log_info("device %s: %s answers now", monitor->driver, monitor->source->name);
    else if (monitor->opens_late && error)
        log_info(
            "device %s: the memory that other processes hold and the GPU's errors are unknown: %s",
            monitor->driver, why);
    pthread_cond_broadcast(&monitor->answered);
    pthread_mutex_unlock(&monitor->mutex);
    return error;
}

static void destroy(struct monitor *monitor)
{
    if (monitor->state)
        monitor->source->close(monitor->state);
    pthread_cond_destroy(&monitor->answered);
    pthread_cond_destroy(&monitor->asked);
    pthread_mutex_destroy(&monitor->mutex);
    free(monitor);
}

static void *run(void *argument)
{
    struct monitor *monitor = argument;
    int error = open_source(monitor);

    pthread_mutex_lock(&monitor->mutex);
    for (;;) {
        while ((!monitor->wanted || error) && !monitor->ending)
            pthread_cond_wait(&monitor->asked, &monitor->mutex);
        if (monitor->ending)
            break;
        monitor->wanted = false;
        ask(monitor);
    }
    monitor->ended = true;
    bool is_last = monitor->abandoned;
    pthread_mutex_unlock(&monitor->mutex);
    if (is_last)
        destroy(monitor);
    return NULL;
}

/* Waits for `rounds` more answers, under the mutex; the first may be to an earlier question. False:
 * they did not come in time. */
static bool await_answers(struct monitor *monitor, unsigned rounds, unsigned patience_ms)
{
    struct timespec until = clock_after_ms(CLOCK_MONOTONIC, patience_ms);
    int error = 0;

    while (rounds > 0 && error == 0) {
        uint64_t before = monitor->rounds;
        monitor->wanted = true;
        pthread_cond_signal(&monitor->asked);
        while (monitor->rounds == before && error == 0)
            error = pthread_cond_timedwait(&monitor->answered, &monitor->mutex, &until);
        rounds--;
    }
    return error == 0;
}

enum monitor_word monitor_look(struct monitor *monitor)
{
    enum monitor_word word = MONITOR_SILENT;

    SCOPED_LOCK(&monitor->mutex);
    if (await_answers(monitor, 2, MONITOR_LOOK_MS))
        word = monitor->last;
    return word;
}

void monitor_refresh(struct monitor *monitor)
{
    SCOPED_LOCK(&monitor->mutex);
    await_answers(monitor, 2, MONITOR_REFRESH_MS);
}

int monitor_measure(struct monitor *monitor)
{
    int error;

    SCOPED_LOCK(&monitor->mutex);
    error = monitor->error;
    monitor->wanted = true;
    pthread_cond_signal(&monitor->asked);
    return error;
}

/* False: it takes longer. */
static bool wait_until_opened(struct monitor *monitor)
{
    struct timespec until = clock_after_ms(CLOCK_MONOTONIC, MONITOR_OPEN_MS);
    int error = 0;

    SCOPED_LOCK(&monitor->mutex);
    while (!monitor->opened && error == 0)
        error = pthread_cond_timedwait(&monitor->answered, &monitor->mutex, &until);
    monitor->opens_late = !monitor->opened;
    return !monitor->opens_late;
}

int monitor_new(const struct monitor_source *source, const char *driver, const uint8_t uuid[16],
                struct health *health, struct measurement *measurement, bool is_late,
                struct monitor **monitor, char *why, size_t why_bytes)
{
    struct monitor *made = calloc(1, sizeof(*made));

    snprintf(why, why_bytes, "no memory or thread for it");
    if (!made)
        return -ENOMEM;
    pthread_mutex_init(&made->mutex, NULL);
    pthread_cond_init(&made->asked, NULL);
    thread_init_condition(&made->answered);
    made->source = source;
    made->driver = driver;
    memcpy(made->uuid, uuid, sizeof(made->uuid));
    made->health = health;
    made->measurement = measurement;
    made->opens_late = is_late;
    made->was_waited_for = !is_late;
    int error = thread_start(&made->thread, STACK_BYTES, run, made);
    if (error) {
        destroy(made);
        return error;
    }
    if (is_late) {
        *monitor = made;
        return 0;
    }
    if (!wait_until_opened(made)) {
        log_warning("device %s: %s has not answered for %d s; the memory that other processes "
                    "hold and the GPU's errors are unknown until it does",
                    driver, source->name, MONITOR_OPEN_MS / 1000);
    } else if (made->error) {
        error = made->error;
        snprintf(why, why_bytes, "%s", made->why);
        monitor_free(made);
        return error;
    }
    *monitor = made;
    return 0;
}

void monitor_free(struct monitor *monitor)
{
    struct timespec until = clock_after_ms(CLOCK_REALTIME, ENDING_S * 1000);

    if (!monitor)
        return;
    pthread_mutex_lock(&monitor->mutex);
    monitor->ending = true;
    if (monitor->events)
        monitor->source->stop(monitor->events);
    monitor->events = NULL;
    pthread_cond_signal(&monitor->asked);
    pthread_mutex_unlock(&monitor->mutex);
    if (pthread_timedjoin_np(monitor->thread, NULL, &until) == 0) {
        destroy(monitor);
        return;
    }
    pthread_mutex_lock(&monitor->mutex);
    monitor->abandoned = !monitor->ended;
    bool is_last = monitor->ended;
    pthread_t thread = monitor->thread;
    pthread_mutex_unlock(&monitor->mutex);
    if (!is_last) {
        pthread_detach(thread); /* the library hangs; the thread frees its own memory */
        return;
    }
    pthread_join(thread, NULL);
    destroy(monitor);
}
