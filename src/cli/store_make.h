/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_make - a store that a command makes because it is not there, and removes where it fails
 *
 * For the commands that fill stores. What was made is forgotten by store_make_keep() once something
 * is committed in it; until then store_make_undo() removes it again, also from a signal's handler.
 * Only stores that this process made are ever removed, whatever they are called by then, and only
 * where nobody has ever committed anything in them and nobody else has them open.
 */
#ifndef GMSFS_CLI_STORE_MAKE_H
#define GMSFS_CLI_STORE_MAKE_H

#include "gmsfs.h"

#include <stdbool.h>

/* store_open(), after a mkdir(2) where the path is no store but could be one. */
int store_open_or_make(const char *path, gmsfs_t **handle);

/* Something was committed: they all stay. */
void store_make_keep(void);
/* Whether store_make_undo() is still to remove what was made at this path. */
bool store_make_is_ours(const char *path);
/* Removes those that were made, and says what became of each; whoever of this process has one of
 * them open has closed it. */
void store_make_undo(void);
/* The same from a handler, without a word, after closing all descriptors but the standard streams
 * and its own. Async-signal-safe. */
void store_make_undo_all(void);

#endif
