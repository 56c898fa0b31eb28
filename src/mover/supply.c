/* SPDX-License-Identifier: Apache-2.0 */
#include "mover/supply.h"

#include "base/clock.h"
#include "base/file_io.h"
#include "base/thread.h"
#include "base/timeline.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define CANCEL_AGAIN_MS 10u

static void supply_free(struct supply *supply)
{
    free(supply->fds);
    free(supply->left);
    free(supply->writes);
}

int supply_begin(struct supply *supply)
{
    supply->fds = calloc(supply->count + 1, sizeof(*supply->fds));
    supply->left = calloc(supply->count + 1, sizeof(*supply->left));
    supply->writes = calloc(supply->count + 1, sizeof(*supply->writes));
    if (!supply->fds || !supply->left || !supply->writes) {
        supply_free(supply);
        return -ENOMEM;
    }
    for (size_t i = 0; i < supply->count; i++)
        supply->fds[i] = -1;
    supply->refusal = 0;
    supply->there = supply->filled = 0;
    supply->is_getting = supply->is_over = false;
    pthread_mutex_init(&supply->mutex, NULL);
    pthread_cond_init(&supply->changed, NULL);
    return 0;
}

void supply_end(struct supply *supply)
{
    for (size_t i = 0; i < supply->count; i++)
        if (supply->fds[i] >= 0)
            close(supply->fds[i]);
    supply_free(supply);
    pthread_mutex_destroy(&supply->mutex);
    pthread_cond_destroy(&supply->changed);
}

void supply_add_part(struct supply *supply, size_t item)
{
    supply->left[item]++;
}

/* ---- the thread that supplies -------------------------------------------------------------- */

/* Waits for room. Returns how many items may be asked for, and sets is_getting; 0 after
 * supply_stop(). */
static size_t supply_wait_room(struct supply *supply)
{
    SCOPED_LOCK(&supply->mutex);
    while (supply->there - supply->filled >= supply->most && !supply->is_over)
        pthread_cond_wait(&supply->changed, &supply->mutex);
    size_t room = supply->is_over ? 0 : supply->most - (supply->there - supply->filled);
    supply->is_getting = room > 0;
    return room;
}

void supply_put(struct supply *supply, size_t item, int fd)
{
    pthread_mutex_lock(&supply->mutex);
    bool is_filled = supply->left[item] == 0;
    supply->fds[item] = is_filled ? -1 : fd;
    supply->there++;
    supply->filled += is_filled;
    pthread_cond_broadcast(&supply->changed);
    pthread_mutex_unlock(&supply->mutex);
    if (is_filled)
        close(fd);
}

static void supply_refuse(struct supply *supply, size_t first, size_t count, int error)
{
    SCOPED_LOCK(&supply->mutex);
    if (!supply->is_over) {
        supply->refusal = error;
        supply->refused = first;
        supply->refused_count = count;
    }
    supply->is_over = true;
    pthread_cond_broadcast(&supply->changed);
}

/* Returns how many items, from `first` on, go into one call of get(). */
static size_t supply_count_alike(const struct supply *supply, size_t first, size_t room)
{
    size_t left = supply->count - first, most = left < supply->at_once ? left : supply->at_once;
    size_t count = 1;

    most = most < room ? most : room;
    while (count < most && (!supply->alike || supply->alike(supply->context, first, first + count)))
        count++;
    return count;
}

static void supply_note_got(struct supply *supply)
{
    SCOPED_LOCK(&supply->mutex);
    supply->is_getting = false;
    pthread_cond_broadcast(&supply->changed);
}

void supply_run(struct supply *supply)
{
    size_t room, done = 0;

    while (done < supply->count && (room = supply_wait_room(supply)) > 0) {
        size_t count = supply_count_alike(supply, done, room);
        uint64_t span_us = timeline_begin();
        int error = supply->get(supply->context, done, count);

        timeline_end("load", "memory", span_us, NULL);

        supply_note_got(supply);
        if (error) {
            supply_refuse(supply, done, count, error);
            return;
        }
        done += count;
    }
}

/* ---- threads that fill --------------------------------------------------------------------- */

int supply_take(struct supply *supply, size_t item, bool *writes)
{
    SCOPED_LOCK(&supply->mutex);
    while (supply->fds[item] < 0 && !supply->is_over)
        pthread_cond_wait(&supply->changed, &supply->mutex);
    int fd = supply->fds[item];
    *writes = fd >= 0 && !supply->writes[item];
    supply->writes[item] |= *writes;
    return fd < 0 ? -ECANCELED : fd;
}

void supply_give_back(struct supply *supply, size_t item, bool writes)
{
    SCOPED_CLOSE int filled = -1;

    SCOPED_LOCK(&supply->mutex);
    if (writes)
        supply->writes[item] = false;
    if (--supply->left[item] == 0) {
        filled = supply->fds[item];
        supply->fds[item] = -1;
        supply->filled++;
        pthread_cond_broadcast(&supply->changed);
    }
}

/* The caller holds the mutex, which is released meanwhile. */
static void supply_cancel(struct supply *supply)
{
    pthread_mutex_unlock(&supply->mutex);
    supply->cancel(supply->context);
    pthread_mutex_lock(&supply->mutex);
    if (supply->is_getting) {
        struct timespec until = clock_after_ms(CLOCK_REALTIME, CANCEL_AGAIN_MS);
        pthread_cond_timedwait(&supply->changed, &supply->mutex, &until);
    }
}

int supply_stop(struct supply *supply)
{
    int refusal;

    SCOPED_LOCK(&supply->mutex);
    supply->is_over = true;
    refusal = supply->refusal;
    pthread_cond_broadcast(&supply->changed);
    while (supply->cancel && supply->is_getting)
        supply_cancel(supply);
    return refusal;
}
