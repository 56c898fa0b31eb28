/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run - the parts of `gmsfs run` that do not deal with locks
 *
 * For cmd_run.c.
 */
#ifndef GMSFS_CLI_RUN_H
#define GMSFS_CLI_RUN_H

#include <stdbool.h>
#include <stdint.h>

/* Starts the command and waits for its end; signals are passed on to it meanwhile. Its exit status,
 * 128 + the signal that ended it, 126 or 127 when it could not be started. */
int run_command(char **command);

/* True if the text of the file `sessions` lists that session as held; pure. */
bool run_lists_session(const char *sessions, uint64_t session);

/* True if the text of `events` says that this session has committed, or sealed. */
bool run_has_commit(const char *events, uint64_t session);

#endif
