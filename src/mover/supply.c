/* SPDX-License-Identifier: Apache-2.0 */
#include "mover/supply.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

int supply_begin(struct supply *supply)
{
    supply->fds = calloc(supply->count + 1, sizeof(*supply->fds));
    if (!supply->fds)
        return -ENOMEM;
    for (size_t i = 0; i < supply->count; i++)
        supply->fds[i] = -1;
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
    pthread_mutex_destroy(&supply->mutex);
    pthread_cond_destroy(&supply->changed);
}

/* ---- the thread that supplies -------------------------------------------------------------- */

static bool supply_wants_more(struct supply *supply)
{
    bool is_over;

    pthread_mutex_lock(&supply->mutex);
    while (supply->there - supply->filled >= supply->most && !supply->is_over)
        pthread_cond_wait(&supply->changed, &supply->mutex);
    is_over = supply->is_over;
    pthread_mutex_unlock(&supply->mutex);
    return !is_over;
}

static void supply_put(struct supply *supply, size_t item, int fd)
{
    pthread_mutex_lock(&supply->mutex);
    if (fd < 0) {
        supply->refusal = fd;
        supply->refused = item;
        supply->is_over = true;
    } else {
        supply->fds[item] = fd;
        supply->there++;
    }
    pthread_cond_broadcast(&supply->changed);
    pthread_mutex_unlock(&supply->mutex);
}

void supply_run(struct supply *supply)
{
    for (size_t i = 0; i < supply->count && supply_wants_more(supply); i++) {
        size_t item = supply->order ? supply->order[i] : i;
        supply_put(supply, item, supply->get(supply->context, item));
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
    supply->fds[item] = -1;
    pthread_mutex_unlock(&supply->mutex);
    return fd < 0 ? -ECANCELED : fd;
}

void supply_give_back(struct supply *supply)
{
    pthread_mutex_lock(&supply->mutex);
    supply->filled++;
    pthread_cond_broadcast(&supply->changed);
    pthread_mutex_unlock(&supply->mutex);
}

void supply_stop(struct supply *supply)
{
    pthread_mutex_lock(&supply->mutex);
    supply->is_over = true;
    pthread_cond_broadcast(&supply->changed);
    pthread_mutex_unlock(&supply->mutex);
}
