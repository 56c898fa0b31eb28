/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_open - opens the store at a path of the command line
 *
 * For the commands of src/cli. Opening takes no lock. A failure is explained here
 * (store_explain.h), once; the caller only passes it on.
 */
#ifndef GMSFS_CLI_STORE_OPEN_H
#define GMSFS_CLI_STORE_OPEN_H

#include "gmsfs.h"

#include <stdbool.h>

/* True if a store could be made at that path: it lies at the top of a mount. */
bool store_could_be(const char *path);

/* Opens the store at `path` as gmsfs_open does. CLI_OK, or CLI_FAILURE after the error. */
int store_open(const char *path, gmsfs_t **handle);

/* Checks that there is a store at `path`. CLI_OK, or CLI_FAILURE after the error. */
int store_check(const char *path);

#endif
