/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_contents - the id of a store's contents, for the commands that print or compare it
 *
 * gmsfs(5), CONTENTS ID, has the definition. Functions that return an exit status print errors
 * here, once; the caller only passes them on.
 */
#ifndef GMSFS_CLI_STORE_CONTENTS_H
#define GMSFS_CLI_STORE_CONTENTS_H

#include "base/digest.h"
#include "gmsfs.h"

#include <stdbool.h>
#include <stdint.h>

/* Parses an id, for cli_option.take: const char *. */
void store_take_id(const char *name, const char *text, void *at);

/* Waits for the reader's lock, and has the daemon sum the bytes if it has to. CLI_OK, CLI_TIMEOUT
 * or CLI_FAILURE. */
int store_get_contents_id(const char *store, uint64_t timeout_ms, bool quiet,
                          char id[DIGEST_TEXT_BYTES]);

/* Compares the id of a store or an image with the wanted one. CLI_OK, or CLI_FAILURE after an error
 * that names both. */
int store_check_contents_id(const char *object, const char *id, const char *wanted);

/* Returns true if the store is known to have these contents: looks only, and never waits. */
bool store_is_known_to_have(const char *path, const uint8_t id[DIGEST_BYTES]);

/*
 * Returns true if the store has these contents, whose layout has this hash in it. Has the store
 * sum its bytes if their id is not known, and only if the layout's hash is right. Sets *generation
 * to the generation that has other contents; leaves it, if a writer changes the store.
 */
bool store_has_contents(const char *path, gmsfs_t *handle, const uint8_t id[DIGEST_BYTES],
                        const char *layout_hash, uint64_t *generation);

/* Prints that the store has them already. Returns CLI_OK; CLI_FAILURE after the error if
 * `immutable` is wanted and the layout is not. */
int store_say_has_contents(const char *path, const uint8_t id[DIGEST_BYTES], bool immutable,
                           bool quiet);

#endif
