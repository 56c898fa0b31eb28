/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook - commands of the shell that somebody configured, within a time
 *
 * They run side by side, each `sh -c` with a process group of its own, nothing on its standard
 * input, and both outputs in one. Whichever has not ended in time is killed with all of its group.
 * What a command leaves behind when it ends by itself goes on, for it may have been told to start
 * something. For one thread.
 */
#ifndef GMSFS_GOVERNOR_HOOK_H
#define GMSFS_GOVERNOR_HOOK_H

#include <stddef.h>
#include <stdint.h>

struct failure;

#define HOOK_MAX_AT_ONCE  32u        /* the others wait, within the same time */
#define HOOK_OUTPUT_BYTES (1u << 20) /* of a command; what comes after is dropped */

struct child;

struct hook {
    const char *command;
    size_t most_bytes; /* of output; 0: HOOK_OUTPUT_BYTES */
    int error;         /* 0: it ended by itself; -ETIMEDOUT; or why it could not be started */
    int status;        /* its exit status; 128 + the signal that ended it */
    char *output;      /* NUL-terminated; NULL: nothing came */
    size_t bytes;
    struct child *child; /* this and the next are hook.c's own */
    int from;
};

/* Returns when all have ended, at most a moment after limit_ms. hooks_free() afterwards. */
void hooks_run(struct hook *hooks, size_t count, uint64_t limit_ms);
void hooks_free(struct hook *hooks, size_t count);

/* 0: it has done what it was to do. Else a negative errno and, in `failure`, one line that says
 * why, with the last line that the command said. */
int hook_check(const struct hook *hook, uint64_t limit_ms, struct failure *failure);

#endif
