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

#include <stdbool.h>

/* Checks that `file`, open as fd, can be read while this command holds the writer's lock of
 * `store`. CLI_OK, or CLI_FAILURE after the error: it lies in that very store. */
int store_source_check(const char *store, gmsfs_t *handle, const char *file, int fd);

/* True if a directory lies in a gmsfs mount, or would once it is made. */
bool store_source_is_mounted(const char *dir);

#endif
