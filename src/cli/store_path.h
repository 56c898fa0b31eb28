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

/* Opens the store at `path` as gmsfs_open does; a failure is explained. 0 or a negative errno. */
int store_open(const char *path, gmsfs_t **handle);

/*
 * Explains why `doing` (as "take the lock") failed for the store at `path`: the cause in words, and
 * the way out where there is one. `error` is a negative errno; it is returned.
 */
int store_explain(const char *path, const char *doing, int error);

#define STORE_STATE_WORD(word, number) " " #word
#define STORE_STATE_WORDS              GMSFS_STATE_LIST(STORE_STATE_WORD) /* each behind a blank */

/* The state's name as the file `state` has it; parse: any case; -EINVAL. */
const char *store_state_name(enum gmsfs_state state);
int store_state_parse(const char *text, enum gmsfs_state *state);

#define STORE_ENCODED_BYTES (GMSFS_NAME_MAX + 1)

/*
 * The file name of a metadata key: % / and a leading . are written %25 %2F %2E. -EINVAL: empty, not
 * UTF-8, or longer than GMSFS_NAME_MAX encoded.
 */
int store_encode_key(const char *key, char name[STORE_ENCODED_BYTES]);

#endif
