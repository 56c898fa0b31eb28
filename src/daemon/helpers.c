/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/helpers.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/test_hooks.h"
#include "base/thread.h"
#include "base/timeline.h"
#include "daemon/at_work.h"
#include "fs/deaths.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define BACKGROUND_NICE 10
/* For drivers and sanitizers; untouched pages cost nothing. */
#define HELPERS_STACK_BYTES (1024u * 1024)

static const char *const pool_names[SERVICE_POOL_COUNT] = {
    [SERVICE_POOL_MEMORY] = "memory",   [SERVICE_POOL_TRANSFER] = "transfer",
    [SERVICE_POOL_COMPUTE] = "compute", [SERVICE_POOL_MOVE] = "move",
    [SERVICE_POOL_DISK] = "disk",       [SERVICE_POOL_FREE] = "free",
};

struct pool {
    struct helpers *helpers;
    enum service_pool which;
    unsigned max_threads, threads, resting;
    struct job *queue, **queue_end;
    size_t queued, running;
    size_t promised; /* jobs that will follow; the last thread stays for them */
    pthread_cond_t work;
};

struct helpers {
    struct loop *loop;
    struct fs_ledger *ledger;
    bool loop_is_prompt;
    pthread_mutex_t mutex; /* guards the fields below */
    pthread_cond_t left;
    bool ending;
    struct pool pools[SERVICE_POOL_COUNT];
};

static void init_pool(struct helpers *helpers, enum service_pool which, unsigned max_threads)
{
    struct pool *pool = &helpers->pools[which];

    *pool = (struct pool){.helpers = helpers, .which = which, .max_threads = max_threads};
    pool->queue_end = &pool->queue;
    thread_init_condition(&pool->work);
}

/* Leaves a processor to the loop and its clients: the kernel may free for a long time and cannot
 * always be interrupted. */
static unsigned count_freeing(void)
{
    unsigned half = thread_count_processors() / 2;

    if (half < 1)
        return 1;
    return half < HELPERS_MAX_FREE ? half : HELPERS_MAX_FREE;
}

int helpers_new(struct loop *loop, struct fs_ledger *ledger, struct helpers **helpers)
{
    struct helpers *new = calloc(1, sizeof *new);

    if (!new)
        return -ENOMEM;
    new->loop = loop;
    new->ledger = ledger;
    new->loop_is_prompt = thread_is_prompt();
    pthread_mutex_init(&new->mutex, NULL);
    pthread_cond_init(&new->left, NULL);
    init_pool(new, SERVICE_POOL_MEMORY, HELPERS_MAX_MEMORY);
    init_pool(new, SERVICE_POOL_TRANSFER, HELPERS_MAX_TRANSFER);
    init_pool(new, SERVICE_POOL_COMPUTE, HELPERS_MAX_COMPUTE);
    init_pool(new, SERVICE_POOL_MOVE, HELPERS_MAX_MOVE);
    init_pool(new, SERVICE_POOL_DISK, HELPERS_MAX_DISK);
    init_pool(new, SERVICE_POOL_FREE, count_freeing());
    *helpers = new;
    return 0;
}

/* Returns the next job; NULL if there was none for a while. The caller holds the mutex. */
static struct job *next_job(struct pool *pool)
{
    const struct timespec until = clock_after_ms(CLOCK_MONOTONIC, HELPERS_REST_S * 1000);
    int error = 0;

    pool->resting++;
    while (!pool->queue && !pool->helpers->ending && (error != ETIMEDOUT || pool->promised > 0))
        error = pthread_cond_timedwait(&pool->work, &pool->helpers->mutex, &until);
    pool->resting--;
    struct job *job = pool->queue;
    if (job) {
        pool->queue = job->next;
        if (!pool->queue)
            pool->queue_end = &pool->queue;
        pool->queued--;
        pool->running++;
    }
    return job;
}

static void run(struct pool *pool, struct job *job)
{
    struct helpers *helpers = pool->helpers;
    unsigned place = at_work_enter(helpers->ledger, job->request);

    hook_wait_at_gates(pool->which);
    if (pool->which == SERVICE_POOL_MEMORY)
        fs_die_if_told("GMSFS_DIE_MAKING");
    uint64_t began_us = log_begin_trace(), span_us = timeline_begin();
    if (began_us)
        log_trace(job->request, "job begins pool=%s", pool_names[pool->which]);
    PROBE_JOB_BEGIN(job->request, pool->which, job);
    job->run(job);
    PROBE_JOB_END(job->request, pool->which, job);
    if (began_us)
        log_trace(job->request, "job ends pool=%s, %llu us", pool_names[pool->which],
                  (unsigned long long)(log_read_clock_us() - began_us));
    timeline_end("job", pool_names[pool->which], span_us, NULL);
    at_work_leave(helpers->ledger, place);
    loop_post(helpers->loop, job);
}

static void *run_thread(void *argument)
{
    struct pool *pool = argument;
    struct helpers *helpers = pool->helpers;
    struct job *job;

    /* With few processors the loop must not wait behind this thread. With short time slices it does
     * not; then this thread keeps its priority, because it frees memory that the loop allocated,
     * and a thread of low priority would hold malloc's lock, or a mapping's, while it waits for a
     * processor. */
    if (!helpers->loop_is_prompt &&
        (pool->which == SERVICE_POOL_COMPUTE || pool->which == SERVICE_POOL_FREE))
        setpriority(PRIO_PROCESS, (id_t)gettid(), BACKGROUND_NICE);
    pthread_mutex_lock(&helpers->mutex);
    while ((job = next_job(pool))) {
        pthread_mutex_unlock(&helpers->mutex);
        run(pool, job);
        pthread_mutex_lock(&helpers->mutex);
        pool->running--;
    }
    pool->threads--;
    pthread_cond_signal(&helpers->left);
    pthread_mutex_unlock(&helpers->mutex);
    thread_give_back_stack();
    return NULL;
}

/* The caller holds the mutex. */
static int start_thread(struct pool *pool)
{
    int error = thread_start(NULL, HELPERS_STACK_BYTES, run_thread, pool);
    if (!error)
        pool->threads++;
    return error;
}

void helpers_bound(struct helpers *helpers, enum service_pool which, unsigned max_threads)
{
    SCOPED_LOCK(&helpers->mutex);
    helpers->pools[which].max_threads = max_threads;
}

int helpers_promise(struct helpers *helpers, enum service_pool which, struct job *job)
{
    struct pool *pool = &helpers->pools[which];
    int error = 0;

    SCOPED_LOCK(&helpers->mutex);
    /* If no thread can be started, the job waits for a running one. */
    if (pool->queued + pool->promised >= pool->resting && pool->threads < pool->max_threads &&
        start_thread(pool) != 0 && pool->threads == 0)
        error = -ENOMEM;
    job->request = at_work_get(helpers->ledger);
    if (!error)
        pool->promised++;
    return error;
}

void helpers_submit_promised(struct helpers *helpers, enum service_pool which, struct job *job)
{
    struct pool *pool = &helpers->pools[which];

    job->next = NULL;
    SCOPED_LOCK(&helpers->mutex);
    *pool->queue_end = job;
    pool->queue_end = &job->next;
    pool->queued++;
    pool->promised--;
    pthread_cond_signal(&pool->work);
}

int helpers_submit(struct helpers *helpers, enum service_pool which, struct job *job)
{
    int error = helpers_promise(helpers, which, job);

    if (!error)
        helpers_submit_promised(helpers, which, job);
    return error;
}

size_t helpers_count_jobs(struct helpers *helpers)
{
    SCOPED_LOCK(&helpers->mutex);
    size_t count = 0;
    for (size_t i = 0; i < SERVICE_POOL_COUNT; i++)
        count += helpers->pools[i].queued + helpers->pools[i].running + helpers->pools[i].promised;
    return count;
}

/* The caller holds the mutex. */
static unsigned count_threads(const struct helpers *helpers)
{
    unsigned count = 0;

    for (size_t i = 0; i < SERVICE_POOL_COUNT; i++)
        count += helpers->pools[i].threads;
    return count;
}

void helpers_free(struct helpers *helpers)
{
    if (!helpers)
        return;
    pthread_mutex_lock(&helpers->mutex);
    helpers->ending = true;
    for (size_t i = 0; i < SERVICE_POOL_COUNT; i++)
        pthread_cond_broadcast(&helpers->pools[i].work);
    while (count_threads(helpers) > 0)
        pthread_cond_wait(&helpers->left, &helpers->mutex);
    pthread_mutex_unlock(&helpers->mutex);
    for (size_t i = 0; i < SERVICE_POOL_COUNT; i++)
        pthread_cond_destroy(&helpers->pools[i].work);
    pthread_cond_destroy(&helpers->left);
    pthread_mutex_destroy(&helpers->mutex);
    free(helpers);
}
