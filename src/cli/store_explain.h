/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_explain - explains a failure in a store, and the way out
 *
 * For the commands of src/cli. Printed here, through cli_error, once; the caller only passes the
 * failure on.
 */
#ifndef GMSFS_CLI_STORE_EXPLAIN_H
#define GMSFS_CLI_STORE_EXPLAIN_H

#include <stdbool.h>

/*
 * Explains why `doing` (as "take the lock") failed for the store at `path`: the cause in words, and
 * the way out if there is one. `error` is a negative errno. Returns CLI_FAILURE.
 */
int store_explain(const char *path, const char *doing, int error);

/* True if a store is fenced for a checkpoint. */
bool store_is_fenced(const char *path);
/* True if its committed layout never changes. */
bool store_is_immutable(const char *path);

/* After ENODEV for a lock, which has other causes too: prints "cannot DOING: PATH: it is fenced
 * ..." if the store is fenced. Returns true if it did. */
bool store_explain_fence(const char *path, const char *doing);

#endif
