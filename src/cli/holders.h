/* SPDX-License-Identifier: Apache-2.0 */
/*
 * holders - the processes that hold a store, and how they are ended
 *
 * For `gmsfs drain --kill`. What is killed is who `sessions` names, and only where that is beyond
 * doubt: the daemon counts processes as this command does, and the process is of the user and as
 * old as the row says, for a number may be another's by now.
 */
#ifndef GMSFS_CLI_HOLDERS_H
#define GMSFS_CLI_HOLDERS_H

#include <jansson.h>

/* The rows of `sessions` of the store at `path` that are held; json_decref. NULL: they cannot be
 * read. */
json_t *holders_read(const char *path);

/* SIGKILL to each of them. 0, or -1 after the error for one that is not killed was printed; the
 * others are all the same. */
int holders_kill(const char *mount, const char *path);

#endif
