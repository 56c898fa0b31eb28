/* SPDX-License-Identifier: Apache-2.0 */
/* The mounts of `gmsfs top`: looks and events, by children that may hang in a mount. */
#include "cli/cli.h"
#include "cli/mount_events.h"
#include "cli/mount_look.h"
#include "cli/status.h"
#include "cli/top_view.h"

#include "base/scope.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REST_AFTER 4u   /* times that a look took, until the next one: a fifth of the time */
#define HURRY_MS   100u /* least time between two looks */
#define LINE_BYTES 4096 /* of an event */
#define MOST_LOOK  10u  /* times the time to answer that a look may take with thousands of stores */

/* A mount, its look under way, and its events. */
struct watched {
    struct mount mount; /* texts of its own */
    struct mount_look look;
    bool is_looking, is_silent, is_kept;
    uint64_t began_ms;   /* the look */
    uint64_t may_ms;     /* earliest next look */
    uint64_t due_ms;     /* next look */
    struct child *child; /* of the events; NULL: none */
    int events;          /* -1: none */
    char line[LINE_BYTES];
    size_t used;
};

struct top_mounts {
    struct top *top;
    char **paths; /* none: all mounts */
    size_t path_count;
    uint64_t delay_ms, due_ms; /* next reading of the list of mounts */
    struct watched **list;
    size_t count;
};

/* ---- one mount ----------------------------------------------------------------------------- */

static void end_watched(struct watched *watched)
{
    if (watched->is_looking)
        json_decref(mount_look_end(&watched->look, &watched->mount, false));
    mount_events_end(&watched->child, &watched->events);
    free(watched->mount.path);
    free(watched->mount.source);
    free(watched);
}

static struct watched *start_watched(const struct mount *mount)
{
    struct watched *watched = cli_need(calloc(1, sizeof(*watched)));

    watched->mount = (struct mount){.id = mount->id,
                                    .path = cli_need(strdup(mount->path)),
                                    .source = cli_need(strdup(mount->source))};
    watched->events = -1;
    /* Without events, for want of a process, it is still looked at. */
    if (mount_events_start(mount->path, &watched->child, &watched->events) != 0)
        watched->child = NULL;
    return watched;
}

/* Shows a mount as silent; its look goes on, and is taken when the mount answers: no second process
 * goes into a mount that hangs. */
static void show_silence(struct top_mounts *mounts, size_t number)
{
    struct watched *watched = mounts->list[number];
    json_t *look = cli_need(json_pack("{s:s}", "health", "silent"));
    SCOPED_FREE char *absent = status_format_absent(look, watched->mount.path);

    top_take_look(mounts->top, number, look, absent, clock_wall_ms());
    watched->is_silent = true;
}

/* Takes a look that has ended. */
static void end_look(struct top_mounts *mounts, size_t number)
{
    struct watched *watched = mounts->list[number];
    uint64_t now_ms = clock_now_ms(), took_ms = now_ms - watched->began_ms;
    json_t *look = mount_look_end(&watched->look, &watched->mount, true);
    SCOPED_FREE char *absent = NULL;

    watched->is_looking = watched->is_silent = false;
    watched->may_ms = now_ms + (took_ms * REST_AFTER > HURRY_MS ? took_ms * REST_AFTER : HURRY_MS);
    watched->due_ms = watched->began_ms + mounts->delay_ms;
    if (!json_is_object(json_object_get(look, "device")))
        absent = status_format_absent(look, watched->mount.path);
    else if (json_object_get(look, "error"))
        absent = status_format_unknown(look, "its stores cannot be listed");
    top_take_look(mounts->top, number, look, absent, clock_wall_ms());
}

/* Returns the time from which on a look under way means that the mount is silent. */
static uint64_t get_silent_ms(const struct watched *watched)
{
    bool has_answered = watched->look.used > 0;

    return watched->began_ms + MOUNT_LOOK_TIMEOUT_MS * (has_answered ? MOST_LOOK : 1);
}

/* True if something is to be shown. */
static bool turn_watched(struct top_mounts *mounts, size_t number)
{
    struct watched *watched = mounts->list[number];
    uint64_t now_ms = clock_now_ms();

    if (watched->is_looking) {
        if (watched->is_silent || now_ms < get_silent_ms(watched))
            return false;
        show_silence(mounts, number);
        return true;
    }
    if (now_ms < watched->due_ms || now_ms < watched->may_ms)
        return false;
    mount_look_start(&watched->look, &watched->mount);
    watched->is_looking = true;
    watched->began_ms = now_ms;
    if (watched->look.fd < 0)
        end_look(mounts, number);
    return false;
}

/* Takes the whole lines out of the bytes that have come; a line that is too long is dropped. */
static void take_lines(struct top_mounts *mounts, size_t number)
{
    struct watched *watched = mounts->list[number];
    char *at = watched->line, *end = watched->line + watched->used, *newline;

    while ((newline = memchr(at, '\n', (size_t)(end - at)))) {
        top_take_event(mounts->top, number, at, (size_t)(newline - at));
        at = newline + 1;
    }
    watched->used = at == watched->line && watched->used == LINE_BYTES ? 0 : (size_t)(end - at);
    memmove(watched->line, at, watched->used);
}

/* Reads once: the others have their turn too. */
static bool take_events(struct top_mounts *mounts, size_t number)
{
    struct watched *watched = mounts->list[number];
    ssize_t got = read(watched->events, watched->line + watched->used, LINE_BYTES - watched->used);

    if (got > 0) {
        watched->used += (size_t)got;
        take_lines(mounts, number);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        mount_events_end(&watched->child, &watched->events);
    }
    return got > 0;
}

/* ---- the list ------------------------------------------------------------------------------ */

/* Selects the mounts to watch. Returns how many; *missing is a path that is in no mount. */
static size_t select_mounts(const struct top_mounts *mounts, const struct mounts *all,
                            const struct mount **selected, const char **missing)
{
    size_t count = 0;

    *missing = NULL;
    for (size_t i = 0; i < mounts->path_count; i++) {
        const struct mount *mount = mounts_find(all, mounts->paths[i], true);
        if (mount)
            selected[count++] = mount;
        else
            *missing = mounts->paths[i];
    }
    if (mounts->path_count == 0)
        for (; count < all->count; count++)
            selected[count] = &all->list[count];
    return count;
}

static bool is_same(const struct watched *watched, const struct mount *mount)
{
    return watched->mount.id == mount->id && strcmp(watched->mount.path, mount->path) == 0;
}

static struct watched *find_watched(const struct top_mounts *mounts, const struct mount *mount)
{
    for (size_t i = 0; i < mounts->count; i++)
        if (!mounts->list[i]->is_kept && is_same(mounts->list[i], mount))
            return mounts->list[i];
    return NULL;
}

static bool is_unchanged(const struct top_mounts *mounts, const struct mount *const *selected,
                         size_t count)
{
    bool same = count == mounts->count;

    for (size_t i = 0; same && i < count; i++)
        same = is_same(mounts->list[i], selected[i]);
    return same;
}

/* Frees a list, and ends its mounts that another list does not keep. */
static void end_others(struct watched **list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!list[i]->is_kept)
            end_watched(list[i]);
        else
            list[i]->is_kept = false;
    }
    free(list);
}

/* Watches these mounts, known and new ones, from now on. */
static void match(struct top_mounts *mounts, const struct mount *const *selected, size_t count)
{
    struct watched **list = cli_need(calloc(count + 1, sizeof(struct watched *)));
    SCOPED_FREE const char **paths = cli_need(calloc(count + 1, sizeof(char *)));

    for (size_t i = 0; i < count; i++) {
        list[i] = find_watched(mounts, selected[i]);
        if (list[i])
            list[i]->is_kept = true;
        else
            list[i] = start_watched(selected[i]);
        paths[i] = list[i]->mount.path;
    }
    if (top_set_mounts(mounts->top, paths, count) != 0)
        cli_out_of_memory();
    end_others(mounts->list, mounts->count);
    mounts->list = list;
    mounts->count = count;
}

/* Reads the list of mounts. 0 or a negative errno; *changed: it is another one. */
static int read_mounts(struct top_mounts *mounts, bool *changed, const char **missing)
{
    SCOPED_FREE const struct mount **selected = NULL;
    SCOPED_MOUNTS struct mounts all = {0};
    size_t count;
    int error = mounts_read_for(mounts->paths, mounts->path_count, &all);

    *changed = false;
    *missing = NULL;
    if (error)
        return error;
    selected = cli_need(calloc(all.count + mounts->path_count + 1, sizeof(*selected)));
    count = select_mounts(mounts, &all, selected, missing);
    *changed = !is_unchanged(mounts, selected, count);
    if (*changed)
        match(mounts, selected, count);
    return 0;
}

int top_mounts_open(struct top_mounts **opened, struct top *top, char **paths, size_t count,
                    uint64_t delay_ms)
{
    struct top_mounts *mounts = cli_need(calloc(1, sizeof(*mounts)));
    const char *missing;
    bool changed;

    *mounts =
        (struct top_mounts){.top = top, .paths = paths, .path_count = count, .delay_ms = delay_ms};
    *opened = mounts;
    int error = read_mounts(mounts, &changed, &missing);
    if (error)
        return mounts_explain(error);
    if (!missing)
        return CLI_OK;
    return cli_error("%s: not in a gmsfs mount; 'gmsfs status' lists the mounts", missing);
}

void top_mounts_close(struct top_mounts *mounts)
{
    if (!mounts)
        return;
    for (size_t i = 0; i < mounts->count; i++)
        end_watched(mounts->list[i]);
    free(mounts->list);
    free(mounts);
}

/* ---- turns --------------------------------------------------------------------------------- */

/* Follows the list of mounts. A list that cannot be read stays as it was. */
static bool turn_list(struct top_mounts *mounts)
{
    const char *missing;
    bool changed;
    char text[512];

    if (clock_now_ms() < mounts->due_ms)
        return false;
    mounts->due_ms = clock_now_ms() + mounts->delay_ms;
    if (read_mounts(mounts, &changed, &missing) == 0 && changed && missing) {
        snprintf(text, sizeof(text), "%.400s: it was unmounted", missing);
        top_set_message(mounts->top, text, true);
    }
    return changed;
}

bool top_mounts_turn(struct top_mounts *mounts)
{
    bool changed = turn_list(mounts);

    for (size_t i = 0; i < mounts->count; i++)
        changed |= turn_watched(mounts, i);
    return changed;
}

void top_mounts_hurry(struct top_mounts *mounts)
{
    for (size_t i = 0; i < mounts->count; i++)
        mounts->list[i]->due_ms = 0;
}

int top_mounts_left_ms(const struct top_mounts *mounts)
{
    uint64_t now_ms = clock_now_ms(), next_ms = mounts->due_ms;

    for (size_t i = 0; i < mounts->count; i++) {
        const struct watched *watched = mounts->list[i];
        uint64_t at_ms = watched->due_ms > watched->may_ms ? watched->due_ms : watched->may_ms;

        if (watched->is_looking)
            at_ms = watched->is_silent ? next_ms : get_silent_ms(watched);
        next_ms = at_ms < next_ms ? at_ms : next_ms;
    }
    return next_ms > now_ms ? (int)(next_ms - now_ms) : 0;
}

size_t top_mounts_poll(const struct top_mounts *mounts, struct pollfd *polls, size_t room)
{
    size_t count = 0;

    for (size_t i = 0; i < mounts->count && count + 2 <= room; i++) {
        const struct watched *watched = mounts->list[i];
        if (watched->is_looking)
            polls[count++] = (struct pollfd){.fd = watched->look.fd, .events = POLLIN};
        if (watched->events >= 0)
            polls[count++] = (struct pollfd){.fd = watched->events, .events = POLLIN};
    }
    return count;
}

static bool is_ready(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};

    return poll(&ready, 1, 0) > 0;
}

bool top_mounts_take(struct top_mounts *mounts)
{
    bool changed = false;

    for (size_t i = 0; i < mounts->count; i++) {
        struct watched *watched = mounts->list[i];
        if (watched->events >= 0)
            changed |= take_events(mounts, i);
        if (watched->is_looking && is_ready(watched->look.fd) &&
            mount_look_gather(&watched->look)) {
            end_look(mounts, i);
            changed = true;
        }
    }
    return changed;
}
