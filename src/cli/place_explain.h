/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place_explain - why a store does not move: what is in the way, and the way out
 *
 * For store_place.c. The daemon notes the cause when it refuses an order or a move ends, and `info`
 * of the store has it as `obstacle`; here it becomes a sentence, printed once.
 *
 * dir and path as in store_place.h; `place` is device, host, disk or none.
 */
#ifndef GMSFS_CLI_PLACE_EXPLAIN_H
#define GMSFS_CLI_PLACE_EXPLAIN_H

#include <jansson.h>

/* Returns `info` of the store, or NULL. */
json_t *place_read_info(int dir, const char *path);

/* An order was refused with `error`. CLI_FAILURE; CLI_TIMEOUT: others came first for as long as it
 * was waited. */
int place_explain_order(int dir, const char *path, const char *place, int error);

/* A move has ended, and the store is still where it was. CLI_FAILURE */
int place_explain_end(int dir, const char *path, const char *place);

/* Whatever else cannot be done (as "read where it is") with a store's place. CLI_FAILURE */
int place_explain(const char *path, const char *doing, int error);

#endif
