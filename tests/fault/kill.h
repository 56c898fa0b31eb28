/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill - workers and copiers that are killed at a certain step, in test builds
 *
 * Each call of steps.h, and those of points.h that others can see, is a step of the process that
 * makes it, whichever of its threads; of a copier, what it asks of its driver as well
 * (hook_copier.c). What is to be killed stands in a file that test and daemon map both
 * (GMSFS_KILL_CONTROL=FILE): the worker, or the copier, goes past `after[0]` steps and is killed
 * before the next one, the one that takes its place past `after[1]`, and so on.
 */
#ifndef GMSFS_FAULT_KILL_H
#define GMSFS_FAULT_KILL_H

#include "fault.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KILL_MAGIC 0x326c6b66u /* "fkl2": of this layout */
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
    _Atomic uint32_t kills; /* so many were killed since it was armed */
    _Atomic int32_t victim; /* the last one's number */
    _Atomic int32_t after[KILL_MOST];
    char at[KILL_MOST][KILL_NAME]; /* before which call */
    _Atomic uint32_t whom;         /* enum kill_role */
};

/* In a program that plays the worker itself: called at each step instead, and need not come back.
 */
extern void (*kill_simulated)(const char *step);

/* The process is about to do this. */
void kill_meet(const char *step);
void kill_meet_point(enum fault_point point);

/* A call that is a step. The linker's names: __wrap_X is called for X, __real_X is X. */
#define WRAP_STEP(type, name, parameters, arguments) \
    type __wrap_##name parameters;                   \
    type __real_##name parameters;                   \
    type __wrap_##name parameters                    \
    {                                                \
        kill_meet(#name);                            \
        return __real_##name arguments;              \
    }
/* From now on this process is one. */
void kill_become(enum kill_role role);

#endif
