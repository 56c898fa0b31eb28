/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_explain - explains why a daemon could not be asked, and the way out
 *
 * For the commands that use daemon_ask, after they have handled their own errors.
 */
#ifndef GMSFS_CLI_DAEMON_EXPLAIN_H
#define GMSFS_CLI_DAEMON_EXPLAIN_H

/* Prints the explanation for the mount, or the store, at `path`. Returns CLI_FAILURE. */
int daemon_explain(const char *path, int error);

/* Prints which users alone may do that (as "drain it") to the store at `path`, and how to become
 * one. Returns CLI_FAILURE. */
int daemon_explain_rights(const char *path, const char *doing);

/* Explains why a drain was cancelled. `now` is the state since then, as "the mount serves again".
 * Returns CLI_FAILURE. */
int daemon_explain_cancelled(const char *path, const char *now);

#endif
