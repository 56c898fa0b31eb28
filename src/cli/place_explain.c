/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/place_explain.h"

#include "base/size.h"
#include "cli/cli.h"
#include "cli/daemon_explain.h"
#include "cli/place_room.h"
#include "cli/place_scene.h"
#include "cli/store_explain.h"
#include "cli/store_fenced.h"
#include "cli/store_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ROOM_BYTES 2048

/* What a place is called, and the options of the mount that make it. */
static const char *get_noun(const char *place)
{
    return strcmp(place, "device") == 0 ? "the device"
           : strcmp(place, "host") == 0 ? "the host memory beside the device"
                                        : "the disk beside the device";
}

static const char *get_options(const char *place)
{
    return strcmp(place, "host") == 0 ? "host_size=SIZE" : "spill=DIRECTORY,spill_size=SIZE";
}

static uint64_t get_wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t get_bytes(const struct place_scene *scene)
{
    return store_json_number(scene->store, "bytes");
}

int place_explain(const char *path, const char *doing, int error)
{
    /* ESTALE comes as ENOENT where the kernel sends an open again. */
    if (error == -ESTALE || error == -ENOENT)
        cli_error("%s: there is no such store, or it was removed", path);
    else
        store_explain(path, doing, error);
    return CLI_FAILURE;
}

/* ---- who is in the way ----------------------------------------------------------------------- */

static void explain_busy(const struct place_scene *scene, const char *path)
{
    char who[PLACE_WHO_BYTES];
    size_t count = place_scene_who(scene->store, "held", who);

    if (store_explain_fence(path, "move it"))
        return;
    if (count == 0)
        cli_error(
            "cannot move: %s: somebody held it, or it was on its way, a moment ago; try again",
            path);
    else if (strcmp(store_json_text(scene->store, "state"), "RW") == 0)
        cli_error("cannot move: %s: its writer, %s, has its lock; it can move when that one has "
                  "committed",
                  path, who);
    else if (count == 1)
        cli_error("cannot move: %s: %s has its lock; it can move when that one has let go: 'gmsfs "
                  "drain --then demote' asks for that, and then moves it",
                  path, who);
    else
        cli_error("cannot move: %s: %s and %zu more have its lock; it can move when they have let "
                  "go: 'gmsfs drain --then demote' asks for that, and then moves it",
                  path, who, count - 1);
}

static void explain_scratch(const char *path)
{
    cli_error("cannot move: %s: it is memory of CUDA graphs, of which no copies are made; 'gmsfs "
              "demote --to none' gives it up, and who wakes on it makes it anew",
              path);
}

/* Of scratch it is known why. Else the mount knows other words than this command. */
static void explain_word(const struct place_scene *scene, const char *path, const char *place)
{
    if (json_is_true(json_object_get(scene->store, "scratch")))
        explain_scratch(path);
    else
        cli_error("cannot move: %s: the mount refuses '%s' (%s); 'residency' takes device, host, "
                  "disk and none, +host, +disk, -host and -disk for copies, and cancel (gmsfs(5))",
                  path, place, strerror(EINVAL));
}

static void explain_no_bytes(const struct place_scene *scene, const char *path)
{
    if (strcmp(store_json_text(scene->store, "state"), "EMPTY") == 0)
        cli_error("cannot move: %s: nothing is committed in it; 'gmsfs load' fills it", path);
    else
        cli_error("cannot move: %s: there are no bytes of it: they were given up; 'gmsfs load' "
                  "brings them",
                  path);
}

/* Who waits for a store that nobody has: for memory, that is. */
static const json_t *find_first_waiting(const struct place_scene *scene, char who[PLACE_WHO_BYTES])
{
    const json_t *store;
    size_t i;

    json_array_foreach (scene->stores, i, store)
        if (store_json_number(store, "held") == 0 && place_scene_who(store, "waiting", who) > 0)
            return store;
    return NULL;
}

static const json_t *find_leaving(const struct place_scene *scene)
{
    const json_t *store;
    size_t i;

    json_array_foreach (scene->stores, i, store)
        if (place_scene_leaves(store))
            return store;
    return NULL;
}

/* It was tried until the time was over. */
static void explain_turn(const struct place_scene *scene, const char *path)
{
    char who[PLACE_WHO_BYTES];
    const json_t *waits = find_first_waiting(scene, who), *leaves = find_leaving(scene);

    if (json_is_true(json_object_get(scene->device, "draining")))
        cli_error("cannot move: %s: the mount is drained; 'gmsfs drain --undo %s' lets it serve "
                  "again",
                  path, scene->mount);
    else if (leaves)
        cli_error("cannot move: %s: room is still being made for it: %s/%s is leaving the device; "
                  "give it more time (--timeout)",
                  path, scene->mount, store_json_text(leaves, "name"));
    else if (waits)
        cli_error("cannot move: %s: %s asked before, and waits for memory of the device for %s/%s; "
                  "'gmsfs status %s' shows who holds what",
                  path, who, scene->mount, store_json_text(waits, "name"), scene->mount);
    else
        cli_error("cannot move: %s: somebody waits for memory of the device for a new allocation, "
                  "or did a moment ago, and comes first; 'gmsfs status %s' shows who writes",
                  path, scene->mount);
}

/* ---- what lacks ------------------------------------------------------------------------------ */

static void format_room(uint64_t needed_bytes, char *needed, uint64_t free_bytes, char *left,
                        uint64_t all_bytes, char *all)
{
    size_format_apart(
        (struct size_text[]){{needed_bytes, needed}, {free_bytes, left}, {all_bytes, all}}, 3);
}

static void explain_no_device_room(const struct place_scene *scene, const char *path)
{
    char needed[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES], all[SIZE_TEXT_BYTES], why[ROOM_BYTES] = "";
    uint64_t free_bytes, all_bytes;
    bool evicts = strcmp(store_json_text(scene->device, "evict"), "none") != 0;

    place_scene_count(scene, "device", &free_bytes, &all_bytes);
    format_room(get_bytes(scene), needed, free_bytes, left, all_bytes, all);
    if (get_bytes(scene) > all_bytes) {
        cli_error("cannot move: %s: it never fits: it has %s, and the device %s in all", path,
                  needed, all);
        return;
    }
    if (evicts)
        place_room_tell(scene, NULL, get_wall_ms(), why, sizeof(why));
    cli_error("cannot move: %s: the device has no room for it: it needs %s, and %s of %s are "
              "free%s%s",
              path, needed, left, all, why,
              evicts ? ""
                     : "; nothing leaves by itself here (evict=none): 'gmsfs demote' makes room");
}

static void explain_no_room(const struct place_scene *scene, const char *path, const char *place)
{
    char needed[SIZE_TEXT_BYTES], left[SIZE_TEXT_BYTES], all[SIZE_TEXT_BYTES];
    const char *noun = get_noun(place), *elsewhere = strcmp(place, "host") == 0 ? "disk" : "host";
    uint64_t free_bytes, all_bytes, bytes = get_bytes(scene);

    place_scene_count(scene, place, &free_bytes, &all_bytes);
    format_room(bytes, needed, free_bytes, left, all_bytes, all);
    if (all_bytes == 0)
        cli_error("cannot move: %s: the mount has no %s; mount it with %s (gmsfs-mount(8))", path,
                  noun + strlen("the "), get_options(place));
    else if (bytes > all_bytes)
        cli_error("cannot move: %s: it never fits: it has %s, and %s %s in all; mount with more "
                  "(%s), or move it elsewhere ('--to %s')",
                  path, needed, noun, all, get_options(place), elsewhere);
    else if (bytes > free_bytes)
        cli_error("cannot move: %s: %s has no room for it: it needs %s, and %s of %s are free; "
                  "move others from there ('gmsfs demote --to %s', 'gmsfs promote'), or mount with "
                  "more (%s)",
                  path, noun, needed, left, all, strcmp(place, "host") == 0 ? "disk" : "none",
                  get_options(place));
    else
        cli_error("cannot move: %s: what is free of %s is promised to others that move there, or "
                  "the daemon lacked memory of its own; try again",
                  path, noun);
}

/* Of its pool, or what is another pool's. */
static void explain_budget(const struct place_scene *scene, const char *path)
{
    const json_t *pool = place_scene_pool(scene, scene->store);
    const char *name = store_json_text(pool, "name");
    uint64_t max_bytes = store_json_number(pool, "max"), used_bytes;
    uint64_t slots = store_json_number(pool, "slots");
    char needed[SIZE_TEXT_BYTES], most[SIZE_TEXT_BYTES], used[SIZE_TEXT_BYTES], why[ROOM_BYTES];

    used_bytes = store_json_number(pool, "used");
    format_room(get_bytes(scene), needed, used_bytes, used, max_bytes, most);
    place_room_tell(scene, name, get_wall_ms(), why, sizeof(why));
    if (slots > 0 && store_json_number(pool, "resident") >= slots)
        cli_error("cannot move: %s: its pool %s has room for %" PRIu64 " store%s on the device "
                  "(slots=), and all is taken%s; 'echo \"%s slots=N\" >%s/pools' gives it more",
                  path, name, slots, slots == 1 ? "" : "s", why, name, scene->mount);
    else if (max_bytes > 0 && get_bytes(scene) > max_bytes)
        cli_error("cannot move: %s: it never fits: it has %s, and its pool %s may have %s of the "
                  "device (max=); 'echo \"%s max=SIZE\" >%s/pools' gives it more",
                  path, needed, name, most, name, scene->mount);
    else if (max_bytes > 0 && get_bytes(scene) + used_bytes > max_bytes)
        cli_error("cannot move: %s: its pool %s has no room for it: it needs %s, and %s of the "
                  "pool's %s are used (max=)%s; 'echo \"%s max=SIZE\" >%s/pools' gives it more",
                  path, name, needed, used, most, why, name, scene->mount);
    else
        cli_error("cannot move: %s: it needs %s, and what is free is kept for other pools, which "
                  "have not used what they are guaranteed (min= in %s/pools)",
                  path, needed, scene->mount);
}

/* ---- orders ---------------------------------------------------------------------------------- */

static int explain_order(const struct place_scene *scene, const char *path, const char *place,
                         int error)
{
    switch (error) {
    case -EBUSY:
        explain_busy(scene, path);
        break;
    case -ENODATA:
        explain_no_bytes(scene, path);
        break;
    case -EINVAL:
        explain_word(scene, path, place);
        break;
    case -EAGAIN:
        explain_turn(scene, path);
        return CLI_TIMEOUT;
    case -EDQUOT:
        explain_budget(scene, path);
        break;
    default:
        if (strcmp(place, "device") == 0)
            explain_no_device_room(scene, path);
        else
            explain_no_room(scene, path, place);
    }
    return CLI_FAILURE;
}

/* Where nothing could be seen. */
static int explain_blindly(const struct place_scene *scene, const char *path, const char *place,
                           int error)
{
    switch (error) {
    case -EBUSY:
        cli_error("cannot move: %s: somebody has its lock, or it is on its way", path);
        break;
    case -ENODATA:
        cli_error("cannot move: %s: there are no bytes of it; 'gmsfs load' brings them", path);
        break;
    case -EINVAL:
        explain_word(scene, path, place);
        break;
    case -EAGAIN:
        cli_error("cannot move: %s: others come first", path);
        return CLI_TIMEOUT;
    case -EDQUOT:
        cli_error("cannot move: %s: its pool has no room for it ('pools' in the mount)", path);
        break;
    default:
        cli_error("cannot move: %s: %s has no room for it, or the mount has no such place", path,
                  get_noun(place));
    }
    return CLI_FAILURE;
}

int place_explain_order(int dir, const char *path, const char *place, int error)
{
    struct place_scene scene;
    int status;

    switch (error) {
    case -EPERM:
    case -EACCES:
        return daemon_explain_rights(path, "move it");
    case -ECANCELED:
        cli_error("%s: somebody undid the drain; it lets in again, and was not moved", path);
        return CLI_FAILURE;
    case -EBUSY:
    case -EINVAL:
    case -ENODATA:
    case -ENOMEM:
    case -EAGAIN:
    case -EDQUOT:
        break;
    default:
        return place_explain(path, "move it", error);
    }
    place_scene_look(dir, path, &scene);
    status = scene.store ? explain_order(&scene, path, place, error)
                         : explain_blindly(&scene, path, place, error);
    place_scene_free(&scene);
    return status;
}

/* ---- moves that failed ----------------------------------------------------------------------- */

static const char *explain_lack(const char *tier)
{
    if (strcmp(tier, "device") == 0)
        return "the device itself lacks memory that gmsfs counts as free: other programs have it "
               "('other_bytes' in 'device'); it fits when they have given it back";
    if (strcmp(tier, "host") == 0)
        return "the machine lacks the memory that host_size= promises, or the daemon's cgroup "
               "does: free some, raise its limit (MemoryMax=), or mount with a smaller host_size=";
    return "the daemon, or the machine, lacks memory; free some, or raise its limit (MemoryMax=)";
}

/* What an event `move_failed` says. */
static const char *explain_failure(const char *error, const char *tier)
{
    if (strcmp(error, "ENOMEM") == 0)
        return explain_lack(tier);
    if (strcmp(error, "ENFILE") == 0)
        return "the daemon may open no more files, of which each allocation takes one; raise its "
               "limit and mount anew (LimitNOFILE= of its unit, or 'ulimit -Hn' before the mount)";
    if (strcmp(error, "ENOSPC") == 0 || strcmp(error, "EDQUOT") == 0)
        return "the disk of spill= is full, though spill_size= is not reached; free some of it, or "
               "mount with another directory, or a smaller spill_size=";
    if (strcmp(error, "ECANCELED") == 0)
        return "it was cancelled: somebody wrote 'cancel' to 'residency', or a writer came";
    if (strcmp(error, "ENODEV") == 0)
        return "the device was lost; 'device' in the mount tells";
    if (strcmp(error, "EIO") == 0)
        return "its bytes could not be copied: an error of the GPU or the disk, of which the "
               "kernel's log and 'device' in the mount tell";
    return "see 'events' in the mount";
}

/* Empty where the move was not seen. */
static void tell_end(const struct place_scene *scene, const char *place, char *text, size_t room)
{
    char who[PLACE_WHO_BYTES];
    json_t *event = place_scene_event(scene);
    const char *word = store_json_text(event, "event"), *tier = store_json_text(event, "tier");
    const char *error = store_json_text(event, "error");
    bool is_held = place_scene_who(scene->store, "held", who) > 0;

    if (strcmp(word, "move_failed") == 0)
        snprintf(text, room, "the move failed (%s): %s", error, explain_failure(error, tier));
    else if (strcmp(word, "copied") == 0 && strcmp(tier, place) == 0)
        snprintf(text, room,
                 "%s took it meanwhile; what was copied stays as a spare, so a later demotion is "
                 "at once: try again when it is let go",
                 is_held ? who : "somebody");
    else
        snprintf(text, room, "somebody moved it elsewhere meanwhile ('events' in the mount tells)");
    json_decref(event);
}

int place_explain_end(int dir, const char *path, const char *place)
{
    char why[ROOM_BYTES];
    struct place_scene scene;
    const char *at;

    place_scene_look(dir, path, &scene);
    at = place_scene_at(scene.store);
    tell_end(&scene, place, why, sizeof(why));
    cli_error("%s: it stays at %s: %s", path, *at ? at : "its device", why);
    place_scene_free(&scene);
    return CLI_FAILURE;
}
