/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holders - the processes that hold a store, and killing them
 *
 * For `gmsfs drain --kill`. Kills processes that `sessions` names, and only if their identity is
 * beyond
 * doubt: the daemon is in the same PID namespace as this command, and the process has the user and
 * the age of the row, because its number may belong to another process by now.
 */
#ifndef GMSFS_CLI_HOLDERS_H
#define GMSFS_CLI_HOLDERS_H

#include <jansson.h>

/* Returns the held rows of `sessions` of the store at `path`; json_decref. NULL: they cannot be
 * read. */
json_t *holders_read(const char *path);

/* Sends SIGKILL to each of them. 0, or -1 after it printed the error for a process that it did not
 * kill; it still kills the others. */
int holders_kill(const char *mount, const char *path);

#endif
