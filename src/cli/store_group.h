/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_group - the writer's locks of several stores together with memory, and their commit
 *
 * For the commands that fill several stores, all or none: `gmsfs load --group`, `gmsfs copy`. One
 * store is a group too. Errors are printed here, once, with the store at fault.
 */
#ifndef GMSFS_CLI_STORE_GROUP_H
#define GMSFS_CLI_STORE_GROUP_H

#include "gmsfs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store_group {
    size_t count;
    const char **stores; /* names for messages */
    gmsfs_t **handles;   /* of each, opened by the caller, which closes them */
    uint64_t *bytes;     /* of memory that each needs */
    enum gmsfs_mode mode;
    uint64_t timeout_ms;
    bool quiet;
    bool has_told; /* the wait, which is told once */
};

/* Allocates room for this many stores; count is 0 afterwards. */
void store_group_begin(struct store_group *group, size_t most);
void store_group_end(struct store_group *group);

/* Adds an open store, and refuses it without the lock: a user without write permission, or stores
 * of one mount that can never fit there together. */
int store_group_add(struct store_group *group, const char *store, gmsfs_t *handle, uint64_t bytes);

/* Takes locks and memory, all or none. CLI_OK; CLI_TIMEOUT or CLI_FAILURE after the error. */
int store_group_connect(struct store_group *group);
/* The same for writers, with memory beside the committed layouts where locks and memory for both
 * are free now: then all can be rolled back. */
int store_group_connect_safely(struct store_group *group);

/* Finds the store that a failed gmsfs_commit_group is about: one with an ended session, or a
 * refused layout. */
size_t store_group_find_fault(const struct store_group *group, const uint8_t id[16], int error);
/* Prints that some were committed, if any was, and keeps these stores. */
void store_group_say_partial(const struct store_group *group, const uint8_t id[16]);
/* Aborts what was not committed with this id, and prints the state of each store after the failure
 * that made the status. */
void store_group_abort(const struct store_group *group, const uint8_t id[16], int status);
/* The same for one store that is no group. */
void store_abort(gmsfs_t *handle, const char *store, int status);

#endif
