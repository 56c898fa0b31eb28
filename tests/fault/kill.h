/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill - workers and copiers that are killed at a certain step, in test builds
 *
 * Each call of steps.h, and each call of points.h that others can see, is a step of the process
 * that makes it, in any thread; for a copier, each call of its driver too (hook_copier.c). A file
 * that test and daemon map both (GMSFS_KILL_CONTROL=FILE) says which step kills: the worker, or the
 * copier, does `after[0]` steps and is killed before the next one, its successor after `after[1]`
 * steps, and so on.
 */
#ifndef GMSFS_FAULT_KILL_H
#define GMSFS_FAULT_KILL_H

#include "fault.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KILL_MAGIC 0x326c6b66u /* "fkl2", for this layout */
#define KILL_MOST  3u
#define KILL_NEVER INT32_MAX
#define KILL_NAME  32u

enum kill_role {
    KILL_WORKER,
    KILL_COPIER,
    KILL_NOBODY,
};

struct kill_control {
    uint32_t magic;
    _Atomic bool armed;
    _Atomic uint32_t kills; /* number of kills since it was armed */
    _Atomic int32_t victim; /* pid of the last one */
    _Atomic int32_t after[KILL_MOST];
    char at[KILL_MOST][KILL_NAME]; /* the calls before which they were killed */
    _Atomic uint32_t whom;         /* enum kill_role */
};

/* Called at each step instead, in a program that plays the worker itself; need not return. */
extern void (*kill_simulated)(const char *step);

/* Call it before this step. */
void kill_meet(const char *step);
void kill_meet_point(enum fault_point point);

/* Wraps a call that is a step. The linker's names: __wrap_X is called for X, __real_X is X. */
#define WRAP_STEP(type, name, parameters, arguments) \
    type __wrap_##name parameters;                   \
    type __real_##name parameters;                   \
    type __wrap_##name parameters                    \
    {                                                \
        kill_meet(#name);                            \
        return __real_##name arguments;              \
    }
/* Makes this process one of this role. */
void kill_become(enum kill_role role);

#endif
