/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_explain - why something failed in a store, and the way out, in words
 *
 * For the commands of src/cli. Printed here, through cli_error, once; the caller only passes the
 * failure on.
 */
#ifndef GMSFS_CLI_STORE_EXPLAIN_H
#define GMSFS_CLI_STORE_EXPLAIN_H

/*
 * Explains why `doing` (as "take the lock") failed for the store at `path`: the cause in words, and
 * the way out where there is one. `error` is a negative errno; it is returned.
 */
int store_explain(const char *path, const char *doing, int error);

#endif
