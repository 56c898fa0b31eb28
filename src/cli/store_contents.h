/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_contents - the id of a store's contents
 *
 * For the commands that compare contents. gmsfs(5), CONTENTS ID, has the definition.
 */
#ifndef GMSFS_CLI_STORE_CONTENTS_H
#define GMSFS_CLI_STORE_CONTENTS_H

#include "gmsfs.h"

#include <stdbool.h>
#include <stdint.h>

#define STORE_CONTENTS_BYTES 16u

/* Returns true if the store is known to have these contents: looks only, and never waits. */
bool store_is_known_to_have(const char *path, const uint8_t id[STORE_CONTENTS_BYTES]);

/*
 * Returns true if the store has these contents, whose layout has this hash in it. Has the store
 * sum its bytes if their id is not known, and only if the layout's hash is right. Sets *generation
 * to the generation that has other contents; leaves it, if a writer changes the store.
 */
bool store_has_contents(const char *path, gmsfs_t *handle, const uint8_t id[STORE_CONTENTS_BYTES],
                        const char *layout_hash, uint64_t *generation);

/* Prints that the store has them already. CLI_OK */
int store_say_has_contents(const char *path, const uint8_t id[STORE_CONTENTS_BYTES], bool quiet);

#endif
