/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_make - makes missing stores for a command, and removes them if it fails
 *
 * For the commands that fill stores. store_make_keep() forgets the made stores once a layout is
 * committed in them; until then store_make_undo() removes them, also from a signal handler. It
 * removes only stores that this process made, also after a rename, and only while no layout was
 * ever committed in them and no other process has them open.
 */
#ifndef GMSFS_CLI_STORE_MAKE_H
#define GMSFS_CLI_STORE_MAKE_H

#include "gmsfs.h"

#include <stdbool.h>

/* store_open(), after a mkdir(2) if the path is no store but could be one. */
int store_open_or_make(const char *path, gmsfs_t **handle);

/* Keeps all made stores, after a commit. */
void store_make_keep(void);
/* True if store_make_undo() would remove a store that was made at this path. */
bool store_make_is_ours(const char *path);
/* Removes the made stores, and prints the result for each; call after closing every handle on them.
 */
void store_make_undo(void);
/* As store_make_undo from a signal handler: prints nothing, and first closes all descriptors but
 * the standard streams and its own. Async-signal-safe. */
void store_make_undo_all(void);

#endif
