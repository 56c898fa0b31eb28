/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread - helper threads, which no signal reaches, and how many can run at once
 *
 * For whoever starts one: signals are left to the thread that the program began with. From any
 * thread.
 */
#ifndef GMSFS_BASE_THREAD_H
#define GMSFS_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* thread: to be joined; NULL: it is detached. stack_bytes: 0: as the system has it. 0, or what
 * pthread_create says as a negative errno. */
int thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *), void *argument);
/* Asks for short slices for the calling thread: it gets a processor sooner after it has slept, also
 * where many threads want one, and no larger part of it. What it starts has none of that. Linux
 * 6.12 has such slices (sched(7)); nothing happens before that, nor under another policy than the
 * usual one. */
void thread_be_prompt(void);
/* Has the calling thread such slices? */
bool thread_is_prompt(void);
/* That this process may use; at least 1. */
unsigned thread_count_processors(void);

#endif
