/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hook - runs configured shell commands, within a time limit
 *
 * Commands run side by side, each `sh -c` in a process group of its own, without standard input,
 * and with both outputs in one pipe. A command that exceeds the limit is killed with its group. If
 * a command ends by itself, its background processes keep running, because it may have been told to
 * start one. For one thread.
 */
#ifndef GMSFS_GOVERNOR_HOOK_H
#define GMSFS_GOVERNOR_HOOK_H

#include <stddef.h>
#include <stdint.h>

struct failure;

#define HOOK_MAX_AT_ONCE  32u        /* the others wait, within the same time limit */
#define HOOK_OUTPUT_BYTES (1u << 20) /* for each command; the rest is dropped */

struct child;

struct hook {
    const char *command;
    size_t most_bytes; /* of output; 0: HOOK_OUTPUT_BYTES */
    int error;         /* 0: it ended by itself; -ETIMEDOUT; or why it could not start */
    int status;        /* its exit status; 128 + the signal that ended it */
    char *output;      /* NUL-terminated; NULL: none */
    size_t bytes;
    struct child *child; /* private to hook.c, as is the next */
    int from;
};

/* Returns when all have ended, at most a moment after limit_ms. Call hooks_free() afterwards. */
void hooks_run(struct hook *hooks, size_t count, uint64_t limit_ms);
void hooks_free(struct hook *hooks, size_t count);

/* 0: it succeeded. Else a negative errno and, in `failure`, one line with the reason and the last
 * line of output. */
int hook_check(const struct hook *hook, uint64_t limit_ms, struct failure *failure);

#endif
