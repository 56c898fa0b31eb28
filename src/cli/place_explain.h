/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place_explain - why a store does not move: who or what is in the way, and the way out
 *
 * For store_place.c. The daemon says no by an errno; what lacks is found by looking at the mount, a
 * moment later, so what has changed by then is told as it is now. Printed here, once.
 *
 * dir and path as in store_place.h; `place` is device, host, disk or none.
 */
#ifndef GMSFS_CLI_PLACE_EXPLAIN_H
#define GMSFS_CLI_PLACE_EXPLAIN_H

/* An order was refused with `error`. CLI_FAILURE; CLI_TIMEOUT: others came first for as long as it
 * was waited. */
int place_explain_order(int dir, const char *path, const char *place, int error);

/* A move has ended, and the store is still where it was. CLI_FAILURE */
int place_explain_end(int dir, const char *path, const char *place);

/* Whatever else cannot be done (as "read where it is") with a store's place. CLI_FAILURE */
int place_explain(const char *path, const char *doing, int error);

#endif
