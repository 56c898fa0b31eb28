/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_state - the words of the states of a lock
 *
 * For the commands of src/cli. Pure.
 */
#ifndef GMSFS_CLI_STORE_STATE_H
#define GMSFS_CLI_STORE_STATE_H

#include "gmsfs.h"

#define STORE_STATE_WORD(word, number) " " #word
#define STORE_STATE_WORDS              GMSFS_STATE_LIST(STORE_STATE_WORD) /* each behind a blank */

/* Convert a state to and from its name in the file `state`; parse accepts any case; -EINVAL. */
const char *store_state_name(enum gmsfs_state state);
int store_state_parse(const char *text, enum gmsfs_state *state);

#endif
