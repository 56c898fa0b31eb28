/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place_room - why there is no room for a store on the device, in words: who stays there, and why
 *
 * For place_explain.c. Pure: it goes by what was seen, and prints into a text.
 */
#ifndef GMSFS_CLI_PLACE_ROOM_H
#define GMSFS_CLI_PLACE_ROOM_H

#include "cli/place_scene.h"

#include <stddef.h>

/* Who of `pool` (NULL: of all) is on the device and does not leave it for the store, each with its
 * reason, and what to do: clauses that begin with "; ". now_ms: of the wall clock. "": nobody. */
void place_room_tell(const struct place_scene *scene, const char *pool, uint64_t now_ms, char *text,
                     size_t room);

#endif
