/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/place_scene.h"

#include "cli/mount_look.h"
#include "cli/store_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- looking -------------------------------------------------------------------------------- */

/* Its path by now: it may have been renamed since `dir` was opened. */
static bool find_path(int dir, const char *path, char real[PATH_MAX])
{
    char itself[sizeof("/proc/self/fd/") + 3 * sizeof(int)];
    ssize_t bytes;

    if (dir == AT_FDCWD)
        return realpath(path, real) != NULL;
    snprintf(itself, sizeof(itself), "/proc/self/fd/%d", dir);
    bytes = readlink(itself, real, PATH_MAX - 1);
    real[bytes > 0 ? bytes : 0] = '\0';
    return bytes > 0;
}

static const json_t *find_named(const json_t *rows, const char *name)
{
    const json_t *row;
    size_t i;

    json_array_foreach (rows, i, row)
        if (strcmp(store_json_text(row, "name"), name) == 0)
            return row;
    return NULL;
}

void place_scene_look(int dir, const char *path, struct place_scene *scene)
{
    char top[] = "/", source[] = "";
    struct mount mount = {.path = scene->path, .source = source};
    const struct mounts one = {.list = &mount, .count = 1};
    json_t **looks;
    char *slash;

    *scene = (struct place_scene){.mount = "", .name = ""};
    if (!find_path(dir, path, scene->path) || !(slash = strrchr(scene->path, '/')))
        return;
    *slash = '\0';
    scene->mount = *scene->path ? scene->path : "/";
    scene->name = slash + 1;
    if (!*scene->path)
        mount.path = top;
    if (mount_look(&one, &looks) != 0)
        return;
    scene->look = looks[0];
    free(looks);
    scene->device = json_object_get(scene->look, "device");
    scene->stores = json_object_get(scene->look, "stores");
    scene->pools = json_object_get(scene->look, "pools");
    scene->store = find_named(scene->stores, scene->name);
}

void place_scene_free(struct place_scene *scene)
{
    json_decref(scene->look);
    *scene = (struct place_scene){0};
}

/* ---- what was seen --------------------------------------------------------------------------- */

const json_t *place_scene_pool(const struct place_scene *scene, const json_t *store)
{
    return find_named(scene->pools, store_json_text(store, "pool"));
}

const char *place_scene_at(const json_t *store)
{
    const char *at = json_string_value(json_array_get(json_object_get(store, "residency"), 0));

    return at ? at : "";
}

bool place_scene_leaves(const json_t *store)
{
    const json_t *moving = json_object_get(store, "moving");

    return json_is_object(moving) && !json_is_true(json_object_get(moving, "spare")) &&
           strcmp(place_scene_at(store), "device") == 0;
}

void place_scene_count(const struct place_scene *scene, const char *place, uint64_t *free_bytes,
                       uint64_t *all_bytes)
{
    const json_t *device = scene->device;
    uint64_t used_bytes;

    if (strcmp(place, "device") == 0) {
        *all_bytes = store_json_number(device, "total_bytes");
        used_bytes =
            store_json_number(device, "used_bytes") + store_json_number(device, "reserved_bytes");
    } else if (strcmp(place, "host") == 0) {
        *all_bytes = store_json_number(device, "host_total_bytes");
        used_bytes = store_json_number(device, "host_used_bytes");
    } else {
        *all_bytes = store_json_number(device, "spill_total_bytes");
        used_bytes = store_json_number(device, "spill_used_bytes");
    }
    *free_bytes = used_bytes < *all_bytes ? *all_bytes - used_bytes : 0;
}

size_t place_scene_who(const json_t *store, const char *status, char who[PLACE_WHO_BYTES])
{
    const json_t *rows = json_object_get(store, "sessions"), *row;
    size_t i, count = 0;

    who[0] = '\0';
    json_array_foreach (rows, i, row) {
        if (strcmp(store_json_text(row, "status"), status) != 0)
            continue;
        if (count++ == 0)
            snprintf(who, PLACE_WHO_BYTES, "%.64s (pid %llu)", store_json_text(row, "comm"),
                     (unsigned long long)store_json_number(row, "pid"));
    }
    return count;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* `evicted` begins a move, and all others end one. */
static bool ends_move(const json_t *event)
{
    static const char *const words[] = {"move_failed", "copied", "promoted", "demoted", "healed"};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(store_json_text(event, "event"), words[i]) == 0)
            return true;
    return false;
}

json_t *place_scene_event(const struct place_scene *scene)
{
    char *path = store_file_path(scene->mount, "events"), *text = NULL, *rest = NULL, *line;
    json_t *last = NULL;

    if (path && store_read_text(path, &text) == 0) {
        for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            json_t *event = json_loads(line, 0, NULL);

            if (strcmp(store_json_text(event, "store"), scene->name) != 0 || !ends_move(event)) {
                json_decref(event);
                continue;
            }
            json_decref(last);
            last = event;
        }
    }
    free(text);
    free(path);
    return last;
}
