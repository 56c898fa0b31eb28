/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status - the parts of `gmsfs status`
 *
 * For cmd_status.c and status_watch.c, which goes by what status.c has. One look is taken of all
 * mounts that were asked for, by mount_look, and printed; --watch does so again and again. Takes no
 * lock.
 */
#ifndef GMSFS_CLI_STATUS_H
#define GMSFS_CLI_STATUS_H

#include "cli/mounts.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

struct status_look {
    char **paths; /* as asked for; none: all mounts */
    size_t path_count;
    const char *pool; /* only the stores of this one; NULL: all */

    struct mounts all, mounts; /* those there are; those looked at, with the texts of `all` */
    json_t **looks;            /* of each */
};

/* Looks anew. CLI_OK, or CLI_FAILURE after the error; status_look_free() in any case. */
int status_look(struct status_look *look);
void status_look_free(struct status_look *look);

/* What --json prints: a new array, NULL when out of memory. */
json_t *status_make_json(const struct status_look *look);

/* As on a screen of `width` columns (0: none). */
void status_print(const struct status_look *look, FILE *to, unsigned width);

/* Whether everything that was to be looked at was seen: each mount answered, each of its stores. */
bool status_is_whole(const struct status_look *look);

/* status_format.c: of one store, for its line */
/* Its state; where its bytes are, unless that is the device, and where they move; and whether they
 * may be damaged or a checkpoint has fenced it. */
#define STATUS_STATE_BYTES 72
char *status_format_state(const json_t *store, char *text, size_t room);

/* "RO 1234 python, waiting RW 1300 trainer", free(3); NULL: out of memory. */
char *status_format_holders(const json_t *store);

/* status_pool.c: of look->pool */
/* Drops the other stores. CLI_FAILURE after the error: no mount has it. */
int status_pool_select(struct status_look *look);
void status_pool_print_budget(const json_t *look, const char *name, FILE *to);
void status_pool_print_stores(const json_t *stores, FILE *to);

/* status_watch.c: until SIGINT, SIGTERM or SIGHUP, which are its proper end. Exit status. */
int status_watch(struct status_look *look, uint64_t interval_ms, bool as_json);

#endif
