/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/workers.h"

#include "base/thread.h"
#include "daemon/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define MAX_THREADS 8u
#define STACK_BYTES (256u << 10)

struct workers {
    struct loop *loop;
    pthread_mutex_t mutex; /* of everything below */
    pthread_cond_t work, left;
    unsigned threads, resting;
    size_t queued;
    struct job *queue, **queue_end;
    bool is_ending;
};

int workers_new(struct loop *loop, struct workers **workers)
{
    struct workers *new = calloc(1, sizeof *new);

    if (!new)
        return -ENOMEM;
    new->loop = loop;
    new->queue_end = &new->queue;
    pthread_mutex_init(&new->mutex, NULL);
    pthread_cond_init(&new->work, NULL);
    pthread_cond_init(&new->left, NULL);
    *workers = new;
    return 0;
}

/* Under the mutex; NULL: it is over. */
static struct job *next_job(struct workers *workers)
{
    struct job *job;

    workers->resting++;
    while (!workers->queue && !workers->is_ending)
        pthread_cond_wait(&workers->work, &workers->mutex);
    workers->resting--;
    job = workers->queue;
    if (!job)
        return NULL;
    workers->queue = job->next;
    if (!workers->queue)
        workers->queue_end = &workers->queue;
    workers->queued--;
    return job;
}

static void *run_thread(void *argument)
{
    struct workers *workers = argument;
    struct job *job;

    pthread_mutex_lock(&workers->mutex);
    while ((job = next_job(workers))) {
        pthread_mutex_unlock(&workers->mutex);
        job->run(job);
        loop_post(workers->loop, job);
        pthread_mutex_lock(&workers->mutex);
    }
    workers->threads--;
    pthread_cond_signal(&workers->left);
    pthread_mutex_unlock(&workers->mutex);
    return NULL;
}

/* Under the mutex. */
static int start_thread(struct workers *workers)
{
    int error = thread_start(NULL, STACK_BYTES, run_thread, workers);

    if (!error)
        workers->threads++;
    return error;
}

int workers_submit(struct workers *workers, struct job *job)
{
    int error = 0;

    job->next = NULL;
    pthread_mutex_lock(&workers->mutex);
    /* Without a new thread the work waits for one that is there. */
    if (workers->queued >= workers->resting && workers->threads < MAX_THREADS &&
        start_thread(workers) != 0 && workers->threads == 0)
        error = -ENOMEM;
    if (!error) {
        *workers->queue_end = job;
        workers->queue_end = &job->next;
        workers->queued++;
        pthread_cond_signal(&workers->work);
    }
    pthread_mutex_unlock(&workers->mutex);
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
    pthread_mutex_destroy(&workers->mutex);
    free(workers);
}
