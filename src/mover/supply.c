/* SPDX-License-Identifier: Apache-2.0 */
#include "mover/supply.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int supply_begin(struct supply *supply)
{
    supply->fds = calloc(supply->count + 1, sizeof(*supply->fds));
    supply->left = calloc(supply->count + 1, sizeof(*supply->left));
    if (!supply->fds || !supply->left) {
        free(supply->fds);
        free(supply->left);
        return -ENOMEM;
    }
    for (size_t i = 0; i < supply->count; i++) {
        supply->fds[i] = -1;
        supply->left[i] = supply->parts ? supply->parts[i] : 1;
    }
    supply->refusal = 0;
    supply->there = supply->filled = 0;
    supply->is_over = false;
    pthread_mutex_init(&supply->mutex, NULL);
    pthread_cond_init(&supply->changed, NULL);
    return 0;
}

void supply_end(struct supply *supply)
{
    for (size_t i = 0; i < supply->count; i++)
        if (supply->fds[i] >= 0)
            close(supply->fds[i]);
    free(supply->fds);
    free(supply->left);
    pthread_mutex_destroy(&supply->mutex);
    pthread_cond_destroy(&supply->changed);
}

/* ---- the thread that supplies -------------------------------------------------------------- */

/* How many there is room for; 0: nobody wants more. */
static size_t supply_wait_room(struct supply *supply)
{
    size_t room;

    pthread_mutex_lock(&supply->mutex);
    while (supply->there - supply->filled >= supply->most && !supply->is_over)
        pthread_cond_wait(&supply->changed, &supply->mutex);
    room = supply->is_over ? 0 : supply->most - (supply->there - supply->filled);
    pthread_mutex_unlock(&supply->mutex);
    return room;
}

void supply_put(struct supply *supply, size_t item, int fd)
{
    pthread_mutex_lock(&supply->mutex);
    supply->fds[item] = fd;
    supply->there++;
    pthread_cond_broadcast(&supply->changed);
    pthread_mutex_unlock(&supply->mutex);
}

static void supply_refuse(struct supply *supply, size_t item, int error)
{
    pthread_mutex_lock(&supply->mutex);
    supply->refusal = error;
    supply->refused = item;
    supply->is_over = true;
    pthread_cond_broadcast(&supply->changed);
    pthread_mutex_unlock(&supply->mutex);
}

void supply_run(struct supply *supply)
{
    size_t items[SUPPLY_MOST_AT_ONCE], room, done = 0;

    while (done < supply->count && (room = supply_wait_room(supply)) > 0) {
        size_t count = supply->count - done, refused = 0;
        int error;

        count = count < supply->at_once ? count : supply->at_once;
        count = count < room ? count : room;
        for (size_t i = 0; i < count; i++)
            items[i] = supply->order ? supply->order[done + i] : done + i;
        error = supply->get(supply->context, items, count, &refused);
        if (error) {
            supply_refuse(supply, refused, error);
            return;
        }
        done += count;
    }
}

/* ---- threads that fill --------------------------------------------------------------------- */

int supply_take(struct supply *supply, size_t item)
{
    int fd;

    pthread_mutex_lock(&supply->mutex);
    while (supply->fds[item] < 0 && !supply->is_over)
        pthread_cond_wait(&supply->changed, &supply->mutex);
    fd = supply->fds[item];
    pthread_mutex_unlock(&supply->mutex);
    return fd < 0 ? -ECANCELED : fd;
}

void supply_give_back(struct supply *supply, size_t item)
{
    int filled = -1;

    pthread_mutex_lock(&supply->mutex);
    if (--supply->left[item] == 0) {
        filled = supply->fds[item];
        supply->fds[item] = -1;
        supply->filled++;
        pthread_cond_broadcast(&supply->changed);
    }
    pthread_mutex_unlock(&supply->mutex);
    if (filled >= 0)
        close(filled);
}

void supply_stop(struct supply *supply)
{
    pthread_mutex_lock(&supply->mutex);
    supply->is_over = true;
    pthread_cond_broadcast(&supply->changed);
    pthread_mutex_unlock(&supply->mutex);
}
