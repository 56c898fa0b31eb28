/* SPDX-License-Identifier: Apache-2.0 */
/*
 * daemon_explain - why a daemon could not be asked, and what to do
 *
 * For the commands that use daemon_ask, after the errors that are answers of their own.
 */
#ifndef GMSFS_CLI_DAEMON_EXPLAIN_H
#define GMSFS_CLI_DAEMON_EXPLAIN_H

/* Prints it for the mount, or the store, at `path`. CLI_FAILURE */
int daemon_explain(const char *path, int error);

/* Prints who alone may do that (as "drain it") to the store at `path`, and how one comes to.
 * CLI_FAILURE */
int daemon_explain_rights(const char *path, const char *doing);

#endif
