/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_source - files on a mount that commands read from or write to
 *
 * For the commands that move files in and out of stores. An open allocation is a session of its
 * own, so a command that reads one and then wants to write its store would wait for itself. Errors
 * are printed here, once. Needs no /proc.
 */
#ifndef GMSFS_CLI_STORE_SOURCE_H
#define GMSFS_CLI_STORE_SOURCE_H

#include "gmsfs.h"
#include "source/source.h"

#include <stdbool.h>

/* Checks that a file of the source can be read while this command holds the writer's lock of
 * `store`. CLI_OK, or CLI_FAILURE after the error, which says `shown`: it lies in that very
 * store. */
int store_source_check(const char *store, gmsfs_t *handle, const struct source *source, size_t file,
                       const char *shown);

/* Prints why bytes of a file cannot be read: `why` in the words of the source; "": by the error.
 * tensor: NULL: of the whole file. CLI_FAILURE. */
int store_source_explain(const char *path, const char *tensor, int error, const char *why);

/* Says on stderr if the server's tree at this place was not seen whole, as from a cache alone; then
 * it may lack files, and seem whole without them. */
void store_source_tell_unfinished(struct source *source, const char *place);

/* True if a directory lies in a gmsfs mount, or would once it is made. */
bool store_source_is_mounted(const char *dir);

#endif
