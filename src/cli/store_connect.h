/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_connect - a store's lock for a command, with a word about what it waits for
 *
 * For the commands that lock. Errors are printed here, once; the caller only passes the failure on.
 */
#ifndef GMSFS_CLI_STORE_CONNECT_H
#define GMSFS_CLI_STORE_CONNECT_H

#include "gmsfs.h"

#include <stdbool.h>
#include <stdint.h>

/* Joins the session whose token is in GMSFS_SESSION. -ENOENT: there is no token, or none of a
 * session of this store. */
int store_join(gmsfs_t *handle);

/* Would the wait for this lock be for the session that this process belongs to, by its token? */
bool store_is_own(gmsfs_t *handle, enum gmsfs_mode mode);

/*
 * Connects with a timeout. When the lock is not free at once, a line on stderr says what it waits
 * for (unless quiet). It does not wait for a `gmsfs run` that waits for this process.
 * CLI_OK, CLI_TIMEOUT or CLI_FAILURE, the latter two explained.
 */
int store_connect(gmsfs_t *handle, const char *path, enum gmsfs_mode mode, uint64_t timeout_ms,
                  bool quiet);

/* The same for RW, together with memory: lock and reserve_bytes, or neither. */
int store_connect_reserve(gmsfs_t *handle, const char *path, uint64_t timeout_ms, bool quiet,
                          uint64_t reserve_bytes);

#endif
