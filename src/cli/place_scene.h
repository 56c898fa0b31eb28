/* SPDX-License-Identifier: Apache-2.0 */
/*
 * place_scene - what a mount tells of a store that does not move, and of those around it
 *
 * For place_explain.c. Looks once, through mount_look, and so never hangs; prints nothing. What an
 * older daemon does not tell is not there.
 */
#ifndef GMSFS_CLI_PLACE_SCENE_H
#define GMSFS_CLI_PLACE_SCENE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#define PLACE_WHO_BYTES 128

struct place_scene {
    char path[PATH_MAX];      /* of the store; its mount's is what is before `name` */
    const char *mount, *name; /* parts of `path` */
    json_t *look;             /* NULL: there is nothing to look at */
    const json_t *device, *store, *stores, *pools; /* of the look; NULL where it has none */
};

/* dir and path as in store_place.h. place_scene_free(), whatever it found. */
void place_scene_look(int dir, const char *path, struct place_scene *scene);
void place_scene_free(struct place_scene *scene);

/* The pool of a store. NULL: unknown. */
const json_t *place_scene_pool(const struct place_scene *scene, const json_t *store);

/* Where a store is; "": it has no bytes. */
const char *place_scene_at(const json_t *store);

/* Is it on its way from the device? */
bool place_scene_leaves(const json_t *store);

/* Free bytes of a place, as the account has them, and all of it; 0, 0: there is no such place. */
void place_scene_count(const struct place_scene *scene, const char *place, uint64_t *free_bytes,
                       uint64_t *all_bytes);

/* The first who holds the store (status "held") or waits for it ("waiting"), as "vllm (pid 12)".
 * How many there are. */
size_t place_scene_who(const json_t *store, const char *status, char who[PLACE_WHO_BYTES]);

/* The last event of moves that names the store, json_decref it. NULL: none is remembered. */
json_t *place_scene_event(const struct place_scene *scene);

#endif
