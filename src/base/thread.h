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
#include <stddef.h>

/* thread: to be joined; NULL: it is detached. stack_bytes: 0: as the system has it. 0, or what
 * pthread_create says as a negative errno. */
int thread_start(pthread_t *thread, size_t stack_bytes, void *(*run)(void *), void *argument);
/* That this process may use; at least 1. */
unsigned thread_count_processors(void);

#endif
