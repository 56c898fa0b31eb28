/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_place - where the bytes of a store are, and orders to move them
 *
 * For the commands of src/cli, over the store's file `residency`. Takes no lock. Errors are printed
 * here, once.
 *
 * `dir` is the store's directory, open, which follows it through a rename; `path` is then only what
 * it is called. AT_FDCWD: the store that is at `path`.
 */
#ifndef GMSFS_CLI_STORE_PLACE_H
#define GMSFS_CLI_STORE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

/* `place`, here and below: device, host, disk or none. */

/* Begins the move. A move elsewhere that is under way is waited for first, for as long as
 * timeout_ms, of which *timeout_ms keeps what is left. `token`: that of the drain which it is
 * ordered by, and without which nothing is; NULL: none. CLI_OK, also where there is nothing to
 * move; CLI_FAILURE, CLI_TIMEOUT. */
int store_place_order(int dir, const char *path, const char *place, const uint8_t *token,
                      uint64_t *timeout_ms);

/* Until it is there. `ordered`: CLI_FAILURE once nothing moves there any more; else that is waited
 * for, too. CLI_OK, CLI_FAILURE, CLI_TIMEOUT. */
int store_place_wait(int dir, const char *path, const char *place, bool ordered,
                     uint64_t timeout_ms);

#endif
