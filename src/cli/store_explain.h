/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_explain - why something failed in a store, and the way out, in words
 *
 * For the commands of src/cli. Printed here, through cli_error, once; the caller only passes the
 * failure on.
 */
#ifndef GMSFS_CLI_STORE_EXPLAIN_H
#define GMSFS_CLI_STORE_EXPLAIN_H

#include <stdbool.h>

/*
 * Explains why `doing` (as "take the lock") failed for the store at `path`: the cause in words, and
 * the way out where there is one. `error` is a negative errno; it is returned.
 */
int store_explain(const char *path, const char *doing, int error);

/* Whether a store is closed for a checkpoint. */
bool store_is_fenced(const char *path);

/* Where a lock was refused by ENODEV, which has other causes too: "cannot DOING: PATH: it is fenced
 * ..."; nothing where it is not, or cannot be looked at. Whether it was said. */
bool store_explain_fence(const char *path, const char *doing);

#endif
