/* SPDX-License-Identifier: Apache-2.0 */
#include "mover/work.h"

#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_DEFAULT_THREADS 16u

unsigned work_default_threads(void)
{
    unsigned count = thread_count_processors();

    return count < MAX_DEFAULT_THREADS ? count : MAX_DEFAULT_THREADS;
}

/* ---- order --------------------------------------------------------------------------------- */

/* The items of one file that are not in the order yet. */
struct work_run {
    size_t at, end;
};

static size_t work_find_run(const size_t *file, size_t at, size_t count, struct work_run *run)
{
    run->at = at;
    while (at < count && file[at] == file[run->at])
        at++;
    return run->end = at;
}

void work_order_abreast(const size_t *file, size_t count, unsigned abreast, size_t *order)
{
    struct work_run runs[WORK_MAX_THREADS];
    unsigned most = abreast < WORK_MAX_THREADS ? abreast : WORK_MAX_THREADS, turn = 0, active = 0;
    size_t at = 0, ordered = 0;

    while (active < most && at < count)
        at = work_find_run(file, at, count, &runs[active++]);
    while (ordered < count) {
        struct work_run *run = &runs[turn];

        order[ordered++] = run->at++;
        if (run->at < run->end)
            turn++;
        else if (at < count)
            at = work_find_run(file, at, count, &runs[turn++]);
        else
            memmove(run, run + 1, (--active - turn) * sizeof(*run));
        if (turn >= active)
            turn = 0;
    }
}

/* ---- pieces -------------------------------------------------------------------------------- */

/* left_bytes: of the item; all_left_bytes: of it and all later items. */
static size_t work_piece_bytes(const struct work *work, uint64_t left_bytes,
                               uint64_t all_left_bytes)
{
    uint64_t most = WORK_PIECE_BYTES;

    if (work->tapers && all_left_bytes <= (uint64_t)work->threads * WORK_PIECE_BYTES)
        most = WORK_LAST_BYTES;
    return (size_t)(work->whole || left_bytes < most ? left_bytes : most);
}

/* Cuts all items; pieces: NULL to count, or room for all. Returns their number. */
static size_t work_cut(const struct work *work, uint64_t all_left_bytes, struct work_piece *pieces)
{
    size_t count = 0;

    for (size_t i = 0; i < work->item_count; i++) {
        size_t item = work->order ? work->order[i] : i;
        uint64_t offset = 0, left = work->item_bytes[item];
        while (left > 0) {
            size_t size = work_piece_bytes(work, left, all_left_bytes);
            if (pieces)
                pieces[count] = (struct work_piece){item, offset, size};
            count++;
            offset += size;
            left -= size;
            all_left_bytes -= size;
        }
    }
    return count;
}

static int work_split(struct work *work)
{
    uint64_t all_bytes = 0;

    for (size_t i = 0; i < work->item_count; i++)
        all_bytes += work->item_bytes[i];
    work->piece_count = work_cut(work, all_bytes, NULL);
    work->pieces = calloc(work->piece_count + 1, sizeof(*work->pieces));
    if (!work->pieces)
        return -ENOMEM;
    work_cut(work, all_bytes, work->pieces);
    return 0;
}

/* Keeps the first error. */
static void work_stop(struct work *work, int error)
{
    int none = 0;

    atomic_compare_exchange_strong(&work->error, &none, error);
}

static int work_loop(struct work *work)
{
    void *own = NULL;
    int ended, error = work->begin ? work->begin(work->shared, &own) : 0;

    if (error)
        return error;
    while (!error && !atomic_load(&work->error)) {
        size_t index = atomic_fetch_add(&work->next, 1);
        if (index >= work->piece_count)
            break;
        error = work->piece(work->context, &work->pieces[index], own);
        if (!error)
            atomic_fetch_add(&work->done_bytes, work->pieces[index].size_bytes);
    }
    ended = work->end ? work->end(work->shared, own) : 0;
    return error ? error : ended;
}

static void *work_thread(void *argument)
{
    struct work *work = argument;
    int error = work_loop(work);

    if (error)
        work_stop(work, error);
    sem_post(&work->ended);
    return NULL;
}

static unsigned work_start(struct work *work, pthread_t *threads)
{
    unsigned started = 0;
    int error = 0;

    while (started < work->threads && started < work->piece_count && !error) {
        error = thread_start(&threads[started], 0, work_thread, work);
        started += error == 0;
    }
    if (!started && work->piece_count)
        work_stop(work, error);
    return started;
}

static void work_tick(struct work *work)
{
    int error = work->tick ? work->tick(work->context, atomic_load(&work->done_bytes)) : 0;

    if (error)
        work_stop(work, error);
}

/* Waits for the end of all threads, with a tick at each timeout and signal. */
static void work_wait(struct work *work, unsigned started)
{
    while (started > 0) {
        struct timespec until = clock_after_ms(CLOCK_MONOTONIC, WORK_TICK_MS);

        if (sem_clockwait(&work->ended, CLOCK_MONOTONIC, &until) == 0)
            started--;
        else
            work_tick(work);
    }
}

int work_run(struct work *work)
{
    pthread_t threads[WORK_MAX_THREADS];
    int error;

    atomic_store(&work->next, 0);
    atomic_store(&work->done_bytes, 0);
    atomic_store(&work->error, 0);
    if (work->threads == 0 || work->threads > WORK_MAX_THREADS)
        return -EINVAL;
    error = work_split(work);
    if (error)
        return error;
    sem_init(&work->ended, 0, 0);
    unsigned started = work_start(work, threads);
    work_wait(work, started);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    sem_destroy(&work->ended);
    work_tick(work);
    free(work->pieces);
    work->pieces = NULL;
    return atomic_load(&work->error);
}
