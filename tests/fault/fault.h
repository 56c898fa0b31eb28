/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fault - calls that fail on purpose, in test builds
 *
 * The calls of points.h that our own code makes pass through fault_meet. A call site is a point and
 * the return addresses of our own code that led to it: `realloc` under `core_apply` under RELEASE
 * is another site than under OPEN. A struct fault_control says which call fails. It is a file that
 * test and daemon map both (GMSFS_FAULT_CONTROL=FILE), so that a running daemon can be armed again
 * for each fault; or it comes from the environment alone:
 *
 *     GMSFS_FAULT=point:after=N:errno=E[:in=command|keeper|worker]
 *
 * lets the call number N+1 of that point fail once. A mistake in either variable is printed and
 * ends the process with exit status 2. Sites and living heap blocks are counted in a mapped file
 * only. Any thread; all processes that map the control share it.
 */
#ifndef GMSFS_FAULT_FAULT_H
#define GMSFS_FAULT_FAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAULT_MAGIC     0x32746c66u /* "flt2", for this layout */
#define FAULT_MAX_SITES 8192u
#define FAULT_DEPTH     24u

enum fault_point {
    FAULT_NONE, /* none, or any */
#define POINT(name, error) FAULT_##name,
#include "points.h"
#undef POINT
    FAULT_json, /* jansson's allocations */
    FAULT_POINTS,
};

/* The kinds of process: `gmsfs` before it is a keeper or a worker, keeper, worker, copier, and a
 * client of the library. */
enum fault_process {
    FAULT_COMMAND = 1,
    FAULT_KEEPER = 2,
    FAULT_WORKER = 4
};

struct fault_site {
    _Atomic uint64_t id; /* 0 if free */
    uint32_t point;
    _Atomic uint32_t processes; /* enum fault_process, the processes that met it */
    _Atomic uint32_t hits;
    _Atomic int32_t living[5];   /* heap blocks made here, by process */
    uint64_t chain[FAULT_DEPTH]; /* offsets in the program, innermost first; 0 ends it */
};

struct fault_control {
    uint32_t magic;
    _Atomic bool armed;
    _Atomic bool fired;
    /* The call that fails. Written while not armed. */
    uint32_t processes;
    uint32_t point; /* enum fault_point */
    uint64_t site;  /* 0 for any */
    int32_t error;
    _Atomic int32_t after;
    /* Distance in calls to the next one that fails; 0 if only one fails. */
    int32_t again;
    _Atomic int64_t living[5]; /* heap blocks by process */
    struct fault_site sites[FAULT_MAX_SITES];
};

/* Returns 0, or the errno that this call has to fail with; errno is set then. */
int fault_meet(enum fault_point point);
/* Makes the process one of this kind. */
void fault_become(enum fault_process process);
/* Note heap blocks. `block` may be NULL. */
void fault_note_block(enum fault_point point, void *block);
void fault_forget_block(void *block);

/* For programs that arm themselves. The control is zeroed. FAULT_ANYWHERE counts neither call sites
 * nor blocks, each of which costs a walk of the stack. */
enum fault_counting {
    FAULT_ANYWHERE,
    FAULT_SITES
};
struct fault_control *fault_start(enum fault_counting what);
/* Call sites below it are the same, no matter which code calls it. */
int fault_run(int (*run)(void *context), void *context);

const char *fault_point_name(enum fault_point point);
int fault_point_errno(enum fault_point point);
/* Returns FAULT_NONE if there is no such point. */
enum fault_point fault_point_parse(const char *name);

#endif
