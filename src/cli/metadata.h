/* SPDX-License-Identifier: Apache-2.0 */
/*
 * metadata - changing and reading one entry of a store
 *
 * For cmd_metadata.c. Chooses the session: by the token in GMSFS_SESSION through the library, else
 * by descent through the files of the mount. Never takes a lock of its own.
 */
#ifndef GMSFS_CLI_METADATA_H
#define GMSFS_CLI_METADATA_H

#include "gmsfs.h"

#include <stdbool.h>
#include <stddef.h>

struct metadata_entry {
    struct gmsfs_metadata data;
    char allocation[GMSFS_NAME_MAX + 1]; /* the name of that slot; "" when unbound */
    bool remove;                         /* the entry of that key is to go */
};

/* Puts or removes. 0 or a negative errno; -ENOLCK: in no writer's session. `handle` may be joined
 * to the session afterwards. */
int metadata_change(const char *store, gmsfs_t *handle, const struct metadata_entry *entry);

/* The value, free(3). Negative errno. */
int metadata_read(const char *store, const char *key, void **value, size_t *value_bytes);

/* Prints why it could not be done; returns CLI_FAILURE. */
int metadata_explain(const char *store, const char *key, const char *doing, int error);

#endif
