/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_memory - the memory of a store for the commands that move its bytes, and its errors
 *
 * For the commands that stage. Errors are printed here, once; the caller only passes the failure
 * on.
 */
#ifndef GMSFS_CLI_STORE_MEMORY_H
#define GMSFS_CLI_STORE_MEMORY_H

#include "gmsfs.h"
#include "mover/staging.h"

#include <stdbool.h>

/* staging_open_memory() for an open store. CLI_OK or CLI_FAILURE. */
int store_open_memory(struct staging *staging, gmsfs_t *handle, const char *store,
                      struct staging_memory *memory);

/* The same, and frees the memory of the store's writer. CLI_OK or CLI_FAILURE. */
int store_clear(struct staging *staging, gmsfs_t *handle, const char *store,
                struct staging_memory *memory);

/* Prints the first failure of a device, once. True: a device has failed, and that is printed. */
bool store_explain_staging(struct staging *staging);

/* Explains a failure of libgmsfs: with the driver's words and the way out if the driver failed,
 * else as store_explain does. Returns CLI_FAILURE. */
int store_explain_call(gmsfs_t *handle, const struct staging_memory *memory, const char *doing,
                       int error);
/* Explains a failed commit. Returns CLI_FAILURE. */
int store_explain_commit(gmsfs_t *handle, const struct staging_memory *memory, bool immutable,
                         int error);
bool store_has_complaint(gmsfs_t *handle);

#endif
