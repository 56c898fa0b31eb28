/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_connect - takes a store's lock for a command, and prints the reason of a wait
 *
 * For the commands that lock. Errors are printed here, once; the caller only passes the failure on.
 */
#ifndef GMSFS_CLI_STORE_CONNECT_H
#define GMSFS_CLI_STORE_CONNECT_H

#include "gmsfs.h"

#include <stdbool.h>
#include <stdint.h>

/* Joins the session with the token in GMSFS_SESSION. -ENOENT: there is no token, or none of a
 * session of this store. */
int store_join(gmsfs_t *handle);

/* True if the wait for this lock would be for this process's own session, by its token. */
bool store_is_own(gmsfs_t *handle, enum gmsfs_mode mode);

/*
 * Connects with a timeout. If the lock is not free at once, a line on stderr gives the reason of
 * the wait (unless quiet). Does not wait for a `gmsfs run` that waits for this process. CLI_OK; or
 * CLI_TIMEOUT or CLI_FAILURE after the error.
 */
int store_connect(gmsfs_t *handle, const char *path, enum gmsfs_mode mode, uint64_t timeout_ms,
                  bool quiet);

/* As store_connect for RW, together with memory: lock and reserve_bytes, or neither. */
int store_connect_reserve(gmsfs_t *handle, const char *path, uint64_t timeout_ms, bool quiet,
                          uint64_t reserve_bytes);

#endif
