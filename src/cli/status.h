/* SPDX-License-Identifier: Apache-2.0 */
/*
 * status - the parts of `gmsfs status`
 *
 * For cmd_status.c and status_watch.c. status.c looks at all requested mounts once, by mount_look,
 * and prints them; --watch repeats that. Takes no lock.
 */
#ifndef GMSFS_CLI_STATUS_H
#define GMSFS_CLI_STATUS_H

#include "cli/mounts.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

struct status_look {
    char **paths; /* as given; none: all mounts */
    size_t path_count;
    const char *pool; /* show only the stores of this pool; NULL: all */

    struct mounts all, mounts; /* existing ones; those looked at, which share the texts of `all` */
    json_t **looks;            /* one for each of `mounts` */
};

/* Looks again. CLI_OK, or CLI_FAILURE after the error; status_look_free() in any case. */
int status_look(struct status_look *look);
void status_look_free(struct status_look *look);

/* Makes the JSON of --json: a new array. */
json_t *status_make_json(const struct status_look *look);

/* Prints a look for a screen of `width` columns (0: none). */
void status_print(const struct status_look *look, FILE *to, unsigned width);

/* True if each mount answered, and each of its stores could be read. */
bool status_is_whole(const struct status_look *look);

/* status_format.c: of one store, for its line */
/* Formats its state; whether its layout is immutable; the place of its bytes, unless that is the
 * device, and of a move; and whether they may be damaged or a checkpoint has fenced it. */
#define STATUS_STATE_BYTES 72
char *status_format_state(const json_t *store, char *text, size_t room);

/* "RO 1234 python, waiting RW 1300 trainer", free(3). */
char *status_format_holders(const json_t *store);

/* status_format.c: of a look without a device: "DEAD: ...", with the way out; of its error, behind
 * the subject. free(3). */
char *status_format_absent(const json_t *look, const char *path);
char *status_format_unknown(const json_t *look, const char *subject);

/* status_pool.c: of look->pool */
/* Drops the other stores. CLI_FAILURE after the error: no mount has it. */
int status_pool_select(struct status_look *look);
void status_pool_print_budget(const json_t *look, const char *name, FILE *to);
void status_pool_print_stores(const json_t *stores, FILE *to);

/* status_watch.c: until SIGINT, SIGTERM or SIGHUP, which are its proper end. Exit status. */
int status_watch(struct status_look *look, uint64_t interval_ms, bool as_json);

#endif
