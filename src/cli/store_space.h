/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_space - is there memory for what is to be loaded, and words for when there is not
 *
 * For the commands that replace what a store has. The numbers are those of one moment: whether
 * there is memory is decided by the grant (gmsfs_connect_reserve).
 */
#ifndef GMSFS_CLI_STORE_SPACE_H
#define GMSFS_CLI_STORE_SPACE_H

#include "gmsfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_space {
    uint64_t total_bytes;
    uint64_t free_bytes; /* the store's own memory counts as free: it is replaced */
    bool is_known;       /* else the mount did not answer, and nothing is said */
};

void store_get_space(const char *path, gmsfs_t *handle, struct store_space *space);

/* "does not fit", with the numbers and the way out; returns CLI_FAILURE. */
int store_say_full(const char *path, const struct store_space *space, uint64_t needed_bytes);

/* So many allocations are refused (ENOSPC), with the way out, which begins with these words;
 * returns CLI_FAILURE. */
int store_say_too_many(const char *path, size_t count, const char *way_out);

#define STORE_AHEAD_BYTES 256u

/* The store whose waiter comes first for the device's memory; "": none, or it cannot be seen. */
void store_get_ahead(const char *path, char name[STORE_AHEAD_BYTES]);
/* A line on stderr about what is waited for, if memory is lacking. */
void store_say_memory(const char *path, gmsfs_t *handle, uint64_t needed_bytes);

#endif
