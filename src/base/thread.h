/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread - helper threads, which get no signals, and the number of processors
 *
 * Signals go to the program's first thread only. From any thread.
 */
#ifndef GMSFS_BASE_THREAD_H
#define GMSFS_BASE_THREAD_H

#include "base/scope.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* Starts a thread. thread: to join it; NULL: it is detached. stack_bytes: 0: the system's default.
 * 0, or the error of pthread_create as a negative errno. */
int thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *), void *argument);
/* Frees the memory of the calling thread's stack below the caller's frame. A thread calls it when
 * it ends: the C library caches stacks of ended threads, each with 16 KiB of memory. */
void thread_give_back_stack(void);
/* Asks for short time slices for the calling thread: it gets a processor sooner after a sleep, even
 * if many threads want one, and no larger share of it. Threads and processes that it starts do not
 * inherit this. Needs Linux 6.12 (sched(7)) and the default scheduling policy; otherwise does
 * nothing. */
void thread_be_prompt(void);
/* True if the calling thread has such slices. */
bool thread_is_prompt(void);
/* Makes a condition for timed waits by the monotonic clock. */
void thread_init_condition(pthread_cond_t *condition);
/* Counts the processors that this process may use; at least 1. */
unsigned thread_count_processors(void);

/* Holds the mutex until the block ends. A function can have one: a second in an inner block would
 * shadow it. */
#define SCOPED_LOCK(mutex) SCOPED(thread_unlock) pthread_mutex_t *locked_here = thread_lock(mutex)

static inline pthread_mutex_t *thread_lock(pthread_mutex_t *mutex)
{
    pthread_mutex_lock(mutex);
    return mutex;
}

static inline void thread_unlock(pthread_mutex_t **locked)
{
    pthread_mutex_unlock(*locked);
}

#endif
