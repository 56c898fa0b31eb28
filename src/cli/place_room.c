/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/place_room.h"

#include "base/size.h"
#include "cli/store_file.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TOLD_MAX  3u
#define WHY_BYTES 256
#define MS_PER_S  1000u

/* What keeps a store on the device, in the order in which it is looked for. */
enum stay {
    STAY_HELD,
    STAY_PINNED,
    STAY_FENCED,
    STAY_LEAVING,
    STAY_MOVING,
    STAY_AWAITED,
    STAY_YOUNG,
    STAY_CLASS,
    STAY_MIN,
    STAY_NOWHERE,
    STAY_UNKNOWN,
    STAY_COUNT,
};

static const char *const ways_out[STAY_COUNT] = {
    [STAY_HELD] = "'gmsfs drain' asks who holds a store to leave it",
    [STAY_PINNED] = "'setfattr -x user.gmsfs.pin STORE' unpins one",
    [STAY_FENCED] = "the end of the fence lets it go ('gmsfs fence --status')",
    [STAY_LEAVING] = "try again in a moment",
    [STAY_MOVING] = "try again when it has ended",
    [STAY_YOUNG] = "wait so long, or 'gmsfs demote' it; mount with a smaller min_stay= for shorter",
    [STAY_CLASS] = "'gmsfs demote' moves it by order",
    [STAY_MIN] = "'gmsfs demote' moves it by order",
    [STAY_NOWHERE] =
        "'gmsfs demote --to none' gives its bytes up; a larger host_size= or spill_size= is room",
    [STAY_UNKNOWN] = "'gmsfs demote' moves it by order, or says why not",
};

struct look {
    const struct place_scene *scene;
    uint64_t now_ms, min_stay_ms;
};

static uint64_t get_bytes(const json_t *store)
{
    return store_json_number(store, "bytes");
}

/* ---- one store ------------------------------------------------------------------------------ */

static unsigned get_class(const struct look *look, const json_t *store)
{
    static const char *const classes[] = {"batch", "standard", "high", "critical"};
    const char *name = store_json_text(place_scene_pool(look->scene, store), "class");
    unsigned i = sizeof(classes) / sizeof(classes[0]);

    while (i > 0 && strcmp(name, classes[i - 1]) != 0)
        i--;
    return i;
}

static bool is_other_pool(const struct look *look, const json_t *store)
{
    return strcmp(store_json_text(store, "pool"), store_json_text(look->scene->store, "pool")) != 0;
}

/* What its pool has is guaranteed to that. */
static bool is_within_min(const struct look *look, const json_t *store)
{
    const json_t *pool = place_scene_pool(look->scene, store);
    uint64_t used_bytes = store_json_number(pool, "used");

    return is_other_pool(look, store) &&
           used_bytes - (used_bytes < get_bytes(store) ? used_bytes : get_bytes(store)) <
               store_json_number(pool, "min");
}

static uint64_t get_stay_ms(const struct look *look, const json_t *store)
{
    uint64_t until_ms = store_json_number(store, "moved_ms") + look->min_stay_ms;

    return store_json_number(store, "moved_ms") > 0 && until_ms > look->now_ms
               ? until_ms - look->now_ms
               : 0;
}

/* No slower place has a copy of it, or room for one. */
static bool has_nowhere_to_go(const struct look *look, const json_t *store)
{
    uint64_t host_bytes, disk_bytes, all_bytes;

    if (json_array_size(json_object_get(store, "residency")) > 1)
        return false;
    place_scene_count(look->scene, "host", &host_bytes, &all_bytes);
    place_scene_count(look->scene, "disk", &disk_bytes, &all_bytes);
    return get_bytes(store) > host_bytes && get_bytes(store) > disk_bytes;
}

static bool is_stay(const struct look *look, const json_t *store, enum stay stay)
{
    char who[PLACE_WHO_BYTES];

    switch (stay) {
    case STAY_HELD:
        return store_json_number(store, "held") > 0;
    case STAY_PINNED:
        return json_is_true(json_object_get(store, "pinned"));
    case STAY_FENCED:
        return json_is_true(json_object_get(store, "fenced"));
    case STAY_LEAVING:
        return place_scene_leaves(store);
    case STAY_MOVING:
        return json_is_object(json_object_get(store, "moving"));
    case STAY_AWAITED:
        return place_scene_who(store, "waiting", who) > 0;
    case STAY_YOUNG:
        return get_stay_ms(look, store) > 0;
    case STAY_CLASS:
        return get_class(look, store) > get_class(look, look->scene->store);
    case STAY_MIN:
        return is_within_min(look, store);
    case STAY_NOWHERE:
        return has_nowhere_to_go(look, store);
    default:
        return true;
    }
}

static enum stay find_stay(const struct look *look, const json_t *store)
{
    enum stay stay = STAY_HELD;

    while (!is_stay(look, store, stay))
        stay++;
    return stay;
}

static void tell_why(const struct look *look, const json_t *store, enum stay stay,
                     char why[WHY_BYTES])
{
    char who[PLACE_WHO_BYTES];
    uint64_t left_ms = get_stay_ms(look, store);
    const json_t *pool = place_scene_pool(look->scene, store);

    switch (stay) {
    case STAY_HELD:
        snprintf(why, WHY_BYTES, "is held%s%s", place_scene_who(store, "held", who) ? " by " : "",
                 who);
        break;
    case STAY_AWAITED:
        place_scene_who(store, "waiting", who);
        snprintf(why, WHY_BYTES, "is waited for by %s", who);
        break;
    case STAY_YOUNG:
        snprintf(why, WHY_BYTES,
                 "came a moment ago and stays for min_stay=%" PRIu64 " s, %" PRIu64 ".%" PRIu64
                 " s more",
                 look->min_stay_ms / MS_PER_S, left_ms / MS_PER_S, left_ms % MS_PER_S / 100);
        break;
    case STAY_CLASS:
        snprintf(why, WHY_BYTES, "is more important (class=%s)", store_json_text(pool, "class"));
        break;
    case STAY_MIN:
        snprintf(why, WHY_BYTES, "is within what its pool %s is guaranteed (min=)",
                 store_json_text(pool, "name"));
        break;
    default: {
        static const char *const words[STAY_COUNT] = {
            [STAY_PINNED] = "is pinned",
            [STAY_FENCED] = "is fenced for a checkpoint",
            [STAY_LEAVING] = "is leaving",
            [STAY_MOVING] = "is being copied",
            [STAY_NOWHERE] = "has no place to go: what is beside the device is full",
            [STAY_UNKNOWN] = "did not leave ('events' in the mount may tell why)",
        };
        snprintf(why, WHY_BYTES, "%s", words[stay]);
    }
    }
}

/* ---- all of them ---------------------------------------------------------------------------- */

__attribute__((format(printf, 3, 4))) static void add(char *text, size_t room, const char *format,
                                                      ...)
{
    size_t used = strlen(text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + used, room - used, format, arguments);
    va_end(arguments);
}

static bool is_in_the_way(const struct place_scene *scene, const json_t *store, const char *pool)
{
    const char *at = place_scene_at(store);
    bool is_new = !*at && strcmp(store_json_text(store, "state"), "RW") == 0;

    return store != scene->store && (is_new || strcmp(at, "device") == 0) && get_bytes(store) > 0 &&
           (!pool || strcmp(store_json_text(store, "pool"), pool) == 0);
}

/* The largest of those that were not told. */
static const json_t *find_next(const struct place_scene *scene, const char *pool,
                               const json_t *const told[], size_t count)
{
    const json_t *best = NULL, *store;
    size_t i;

    json_array_foreach (scene->stores, i, store) {
        bool is_told = false;

        for (size_t at = 0; at < count; at++)
            is_told |= told[at] == store;
        if (!is_told && is_in_the_way(scene, store, pool) &&
            (!best || get_bytes(store) > get_bytes(best)))
            best = store;
    }
    return best;
}

static size_t count_all(const struct place_scene *scene, const char *pool)
{
    const json_t *store;
    size_t i, count = 0;

    json_array_foreach (scene->stores, i, store)
        count += is_in_the_way(scene, store, pool);
    return count;
}

void place_room_tell(const struct place_scene *scene, const char *pool, uint64_t now_ms, char *text,
                     size_t room)
{
    const struct look look = {.scene = scene,
                              .now_ms = now_ms,
                              .min_stay_ms = store_json_number(scene->device, "min_stay_ms")};
    const json_t *told[TOLD_MAX];
    bool is_out[STAY_COUNT] = {false};
    size_t count = 0, all = count_all(scene, pool);
    char why[WHY_BYTES], size[SIZE_TEXT_BYTES];

    text[0] = '\0';
    for (; count < TOLD_MAX && (told[count] = find_next(scene, pool, told, count)); count++) {
        enum stay stay = find_stay(&look, told[count]);

        tell_why(&look, told[count], stay, why);
        is_out[stay] = true;
        add(text, room, "; %s/%s (%s) %s", scene->mount, store_json_text(told[count], "name"),
            size_format(get_bytes(told[count]), size), why);
    }
    if (all > count)
        add(text, room,
            all - count == 1 ? "; and %zu smaller one stays" : "; and %zu smaller ones stay",
            all - count);
    for (size_t i = 0; i < STAY_COUNT; i++)
        if (is_out[i] && ways_out[i])
            add(text, room, "; %s", ways_out[i]);
}
