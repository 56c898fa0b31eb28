/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_place - finds the place of a store's bytes, and orders moves
 *
 * For the commands of src/cli, over the store's file `residency`. Takes no lock. Errors are printed
 * here, once.
 *
 * `dir` is the store's directory, open, which follows it through a rename; `path` is then only for
 * messages. AT_FDCWD: the store that is at `path`.
 */
#ifndef GMSFS_CLI_STORE_PLACE_H
#define GMSFS_CLI_STORE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

/* `place`, here and below: device, host, disk or none. */

/* Begins the move. Waits first for a running move to another place, for at most *timeout_ms, which
 * then holds the remaining time. `token`: of the drain that the move needs to be running; NULL:
 * none. CLI_OK, also if there is nothing to move; CLI_FAILURE, CLI_TIMEOUT. */
int store_place_order(int dir, const char *path, const char *place, const uint8_t *token,
                      uint64_t *timeout_ms);

/* Waits until the bytes are there. `ordered`: CLI_FAILURE once no move to there is running; else
 * waits for one, too. CLI_OK, CLI_FAILURE, CLI_TIMEOUT. */
int store_place_wait(int dir, const char *path, const char *place, bool ordered,
                     uint64_t timeout_ms);

#endif
