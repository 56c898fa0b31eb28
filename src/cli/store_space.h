/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_space - the memory that a load will find, and the errors if it is too little
 *
 * For the commands that replace the contents of a store. The numbers are those of one moment: the
 * grant (gmsfs_connect_reserve) decides.
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
    bool is_known;       /* false if the mount did not answer; then no message is printed */
};

void store_get_space(const char *path, gmsfs_t *handle, struct store_space *space);

/* Returns the way out for memory that did not come in time; NULL: the command did not wait. */
const char *store_late_way_out(uint64_t timeout_ms);

/* Prints that the model does not fit, with the numbers and the way out (NULL: the usual one);
 * returns CLI_FAILURE. */
int store_say_full(const char *path, const struct store_space *space, uint64_t needed_bytes,
                   const char *way_out);

/* Prints that the store refuses this many allocations (ENOSPC), with the way out, which begins with
 * these words; returns CLI_FAILURE. */
int store_say_too_many(const char *path, size_t count, const char *way_out);

#define STORE_AHEAD_BYTES 256u

/* Finds the store of the first waiter in the queue for the device's memory; "": none, or not
 * visible. */
void store_get_ahead(const char *path, char name[STORE_AHEAD_BYTES]);
/* Refuses bytes that can never fit, with an error: the grant waits for memory that other clients
 * give back. way_out: as store_say_full has it. CLI_OK or CLI_FAILURE. */
int store_check_space(const char *path, gmsfs_t *handle, uint64_t needed_bytes,
                      const char *way_out);
/* Prints the reason of a wait for memory on stderr, if memory is short. */
void store_say_memory(const char *path, gmsfs_t *handle, uint64_t needed_bytes);

#endif
