/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_path - from a path on the command line to a store, with errors that help
 *
 * For the commands of src/cli. Opening takes no lock. Errors are printed here, through cli_error,
 * once; the caller only passes the failure on.
 */
#ifndef GMSFS_CLI_STORE_PATH_H
#define GMSFS_CLI_STORE_PATH_H

#include "gmsfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* Opens the store at `path` as gmsfs_open does; a failure is explained. 0 or a negative errno. */
int store_open(const char *path, gmsfs_t **handle);

/*
 * Explains why `doing` (as "take the lock") failed for the store at `path`: the cause in words, and
 * the way out where there is one. `error` is a negative errno; it is returned.
 */
int store_explain(const char *path, const char *doing, int error);

/* The path of a file in the store, absolute for an absolute store; free(3). NULL: no memory. */
char *store_file_path(const char *path, const char *file);

/* A small text file whole, NUL-terminated, free(3). Errors are not printed. Negative errno. */
int store_read_text(const char *path, char **text);
/* Any file, of not much more than most_bytes (-ENOMEM), free(3). Errors are not printed. */
int store_read_bytes(const char *path, size_t most_bytes, uint8_t **bytes, size_t *size_bytes);

/* `device` of the mount that the store lies in, or `info` of the store: JSON, or NULL. */
json_t *store_device_json(const char *path);
json_t *store_info_json(const char *path);

/* last_error of the store's info into `text`; "" when there is none. */
void store_last_error(const char *path, char *text, size_t room);

/* An unsigned number of a JSON object, 0 when it has none of that name. */
uint64_t store_json_number(const json_t *object, const char *name);
const char *store_json_text(const json_t *object, const char *name); /* "" when it has none */

/* The state's name as the file `state` has it; parse: any case; -EINVAL. */
const char *store_state_name(enum gmsfs_state state);
int store_state_parse(const char *text, enum gmsfs_state *state);

#define STORE_ENCODED_BYTES (GMSFS_NAME_MAX + 1)

/*
 * The file name of a metadata key: % / and a leading . are written %25 %2F %2E. -EINVAL: empty, not
 * UTF-8, or longer than GMSFS_NAME_MAX encoded.
 */
int store_encode_key(const char *key, char name[STORE_ENCODED_BYTES]);

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
