/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill - workers that are killed at a certain step, in test builds
 *
 * Each call of steps.h, and those of points.h that others can see, is a step of the worker that
 * makes it, whichever of its threads. What is to be killed stands in a file that test and daemon
 * map both (GMSFS_KILL_CONTROL=FILE): the worker goes past `after[0]` steps and is killed before
 * the next one, the worker that takes its place past `after[1]`, and so on.
 */
#ifndef GMSFS_FAULT_KILL_H
#define GMSFS_FAULT_KILL_H

#include "fault.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define KILL_MAGIC 0x316c6b66u /* "fkl1": of this layout */
#define KILL_MOST  3u
#define KILL_NEVER INT32_MAX
#define KILL_NAME  32u

struct kill_control {
    uint32_t magic;
    _Atomic bool armed;
    _Atomic uint32_t kills; /* so many workers were killed since it was armed */
    _Atomic int32_t victim; /* the last one's number */
    _Atomic int32_t after[KILL_MOST];
    char at[KILL_MOST][KILL_NAME]; /* before which call */
};

/* In a program that plays the worker itself: called at each step instead, and need not come back.
 */
extern void (*kill_simulated)(const char *step);

/* The worker is about to do this. */
void kill_meet(const char *step);
void kill_meet_point(enum fault_point point);
/* The process becomes a worker. */
void kill_become_worker(void);

#endif
