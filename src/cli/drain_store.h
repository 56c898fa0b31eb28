/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drain_store - `gmsfs drain` of one store: its holders are told, waited for, and ended; then it
 * may be moved
 *
 * For cmd_drain.c. Prints its errors itself, once.
 */
#ifndef GMSFS_CLI_DRAIN_STORE_H
#define GMSFS_CLI_DRAIN_STORE_H

#include "cli/mounts.h"

#include <stdbool.h>
#include <stdint.h>

struct drain_store {
    const char *path;          /* as it was named */
    const struct mount *mount; /* in which it lies */
    uint64_t timeout_ms;
    bool revoke, kill, undo, quiet;
    char **command;   /* runs while nobody is let in; NULL: none */
    const char *then; /* the place that it moves to before anybody is let in; NULL: it stays */
};

/* An exit status. */
int drain_store_run(const struct drain_store *drain);

#endif
