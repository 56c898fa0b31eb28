/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/workers.h"

#include "base/idvec.h"
#include "base/thread.h"
#include "daemon/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define MAX_THREADS 16u
#define STACK_BYTES (256u << 10)

struct owner {
    uint64_t id; /* first for idvec */
    struct job *first, **end;
    unsigned running;
    struct owner *next;
};

struct workers {
    struct loop *loop;
    pthread_mutex_t mutex; /* of all fields below */
    pthread_cond_t work, left;
    unsigned threads, resting, running;
    size_t queued;
    struct idvec owners;            /* with queued or running jobs */
    struct owner *line, **line_end; /* with queued jobs, in order */
    bool is_ending;
};

int workers_new(struct loop *loop, struct workers **workers)
{
    struct workers *new = calloc(1, sizeof *new);

    if (!new)
        return -ENOMEM;
    new->loop = loop;
    new->line_end = &new->line;
    pthread_mutex_init(&new->mutex, NULL);
    pthread_cond_init(&new->work, NULL);
    pthread_cond_init(&new->left, NULL);
    *workers = new;
    return 0;
}

/* ---- turns --------------------------------------------------------------------------------- */

static struct owner *find_owner(struct workers *workers, uint64_t id)
{
    struct owner *owner = idvec_find(&workers->owners, id);

    if (owner)
        return owner;
    owner = calloc(1, sizeof *owner);
    if (!owner)
        return NULL;
    owner->id = id;
    owner->end = &owner->first;
    if (idvec_insert(&workers->owners, owner) == 0)
        return owner;
    free(owner);
    return NULL;
}

static void drop_if_idle(struct workers *workers, struct owner *owner)
{
    if (owner->first || owner->running > 0)
        return;
    idvec_remove(&workers->owners, owner->id);
    free(owner);
}

static void stand_in_line(struct workers *workers, struct owner *owner)
{
    owner->next = NULL;
    *workers->line_end = owner;
    workers->line_end = &owner->next;
}

/* An owner gets at most half of the threads that other owners leave free: its jobs may block for
 * long, on a driver or a stopped process. */
static bool has_room(const struct workers *workers, const struct owner *owner)
{
    unsigned others = workers->running - owner->running;

    return owner->running < (MAX_THREADS - others + 1) / 2;
}

/* Takes the first owner in the line that has room; NULL: none. */
static struct owner *leave_line(struct workers *workers)
{
    for (struct owner **link = &workers->line; *link; link = &(*link)->next) {
        struct owner *owner = *link;
        if (!has_room(workers, owner))
            continue;
        *link = owner->next;
        if (!*link)
            workers->line_end = link;
        return owner;
    }
    return NULL;
}

static struct job *take_job(struct workers *workers, struct owner *owner)
{
    struct job *job = owner->first;

    owner->first = job->next;
    if (owner->first)
        stand_in_line(workers, owner);
    else
        owner->end = &owner->first;
    owner->running++;
    workers->running++;
    workers->queued--;
    return job;
}

/* ---- threads ------------------------------------------------------------------------------- */

/* The caller holds the mutex. NULL: the workers end. */
static struct owner *await_owner(struct workers *workers)
{
    struct owner *owner;

    workers->resting++;
    while (!(owner = leave_line(workers)) && !workers->is_ending)
        pthread_cond_wait(&workers->work, &workers->mutex);
    workers->resting--;
    return owner;
}

static void *run_thread(void *argument)
{
    struct workers *workers = argument;
    struct owner *owner;

    pthread_mutex_lock(&workers->mutex);
    while ((owner = await_owner(workers))) {
        struct job *job = take_job(workers, owner);
        pthread_mutex_unlock(&workers->mutex);
        job->run(job);
        loop_post(workers->loop, job);
        pthread_mutex_lock(&workers->mutex);
        owner->running--;
        workers->running--;
        drop_if_idle(workers, owner);
    }
    workers->threads--;
    pthread_cond_signal(&workers->left);
    pthread_mutex_unlock(&workers->mutex);
    return NULL;
}

/* The caller holds the mutex. */
static int start_thread(struct workers *workers)
{
    int error = thread_start(NULL, STACK_BYTES, run_thread, workers);

    if (!error)
        workers->threads++;
    return error;
}

int workers_submit(struct workers *workers, uint64_t id, struct job *job)
{
    int error = 0;

    job->next = NULL;
    SCOPED_LOCK(&workers->mutex);
    struct owner *owner = find_owner(workers, id);
    /* If no thread can be started, an existing one takes the job later. */
    if (!owner || (workers->queued >= workers->resting && workers->threads < MAX_THREADS &&
                   start_thread(workers) != 0 && workers->threads == 0))
        error = -ENOMEM;
    if (!error) {
        if (!owner->first)
            stand_in_line(workers, owner);
        *owner->end = job;
        owner->end = &job->next;
        workers->queued++;
        pthread_cond_signal(&workers->work);
    } else if (owner) {
        drop_if_idle(workers, owner);
    }
    return error;
}

void workers_free(struct workers *workers)
{
    if (!workers)
        return;
    pthread_mutex_lock(&workers->mutex);
    workers->is_ending = true;
    pthread_cond_broadcast(&workers->work);
    while (workers->threads > 0)
        pthread_cond_wait(&workers->left, &workers->mutex);
    pthread_mutex_unlock(&workers->mutex);
    pthread_cond_destroy(&workers->work);
    pthread_cond_destroy(&workers->left);
    idvec_free(&workers->owners);
    pthread_mutex_destroy(&workers->mutex);
    free(workers);
}
