/* SPDX-License-Identifier: Apache-2.0 */
/*
 * drain_store - `gmsfs drain` of one store: tells its holders, waits for them, ends them; then it
 * may move the store
 *
 * For cmd_drain.c. Prints its errors itself, once.
 */
#ifndef GMSFS_CLI_DRAIN_STORE_H
#define GMSFS_CLI_DRAIN_STORE_H

#include "cli/mounts.h"

#include <stdbool.h>
#include <stdint.h>

/* The options of `gmsfs drain`, of a mount too. */
struct drain_store {
    const char *path;          /* as given */
    const struct mount *mount; /* in which it lies */
    uint64_t timeout_ms;
    bool revoke, kill, undo, quiet;
    char **command;   /* runs while the store grants no lock; NULL if none */
    const char *to;   /* option --to, until it is part of `then`; NULL if not given */
    const char *then; /* place to move it to before locks are granted again; NULL if none */
};

/* Returns an exit status. */
int drain_store_run(const struct drain_store *drain);

#endif
