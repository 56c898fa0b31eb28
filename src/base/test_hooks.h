/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_hooks - places where tests make a daemon slow, kill it, or change its bounds
 *
 * Controlled by environment variables, only in test builds (tests/hooks.c): in all other builds
 * each of these does nothing, or returns its argument.
 */
#ifndef GMSFS_BASE_TEST_HOOKS_H
#define GMSFS_BASE_TEST_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef GMSFS_TEST_HOOKS

/* Return the variable's value; `otherwise` if it is not set. */
uint64_t hook_number(const char *variable, uint64_t otherwise);
const char *hook_text(const char *variable, const char *otherwise);
bool hook_is_set(const char *variable);
/* True if the file named by the variable exists. */
bool hook_has_file(const char *variable);
/* Returns once that file is gone. */
void hook_wait(const char *variable);
/* Removes that file, if it exists, and kills the process. */
void hook_kill_once(const char *variable);
/* Stops the process if the variable is this word. */
void hook_stop_at(const char *variable, const char *point);
/* Before a job of this service_pool. */
void hook_wait_at_gates(unsigned pool);

#else

#define hook_number(variable, otherwise) (otherwise)
#define hook_text(variable, otherwise)   (otherwise)
#define hook_is_set(variable)            false
#define hook_has_file(variable)          false
#define hook_wait(variable)              ((void)0)
#define hook_kill_once(variable)         ((void)0)
#define hook_stop_at(variable, point)    ((void)0)
#define hook_wait_at_gates(pool)         ((void)0)

#endif

#endif
