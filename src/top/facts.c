/* SPDX-License-Identifier: Apache-2.0 */
/* The mounts, their stores, and their events. */
#include "top/internal.h"

#include "base/array.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS_PER_S 1000u

/* ---- stores -------------------------------------------------------------------------------- */

static void format_state(const json_t *store, char text[STATE_BYTES])
{
    if (json_object_get(store, "error"))
        snprintf(text, STATE_BYTES, "%s",
                 strcmp(json_get_text(store, "errno"), "EACCES") ? "UNKNOWN" : "NO ACCESS");
    else
        snprintf(text, STATE_BYTES, "%.20s%s%s%s%s", json_get_text(store, "state"),
                 json_get_flag(store, "suspect") ? " SUSPECT" : "",
                 json_get_flag(store, "fenced") ? " FENCED" : "",
                 !json_get_flag(store, "draining")    ? ""
                 : json_get_number(store, "held") > 0 ? " draining"
                                                      : " drained",
                 json_get_flag(store, "immutable") ? " immutable" : "");
}

/* The tiers that have its bytes, the fastest first, for a writer's the device; and the way of its
 * move. */
static void format_place(const json_t *store, char text[PLACE_BYTES])
{
    const json_t *tiers = json_object_get(store, "residency"), *tier,
                 *move = json_object_get(store, "moving");
    uint64_t all = json_get_number(move, "all_bytes"), done = json_get_number(move, "done_bytes");
    size_t i, used = 0;

    text[0] = '\0';
    json_array_foreach (tiers, i, tier)
        used += (size_t)snprintf(text + used, PLACE_BYTES - used, "%s%.6s", i ? "," : "",
                                 json_string_value(tier));
    if (used == 0)
        used = (size_t)snprintf(text, PLACE_BYTES, "%s",
                                json_get_flag(store, "committed")     ? "none"
                                : json_get_number(store, "bytes") > 0 ? "device"
                                                                      : "-");
    if (json_is_object(move))
        snprintf(text + used, PLACE_BYTES - used, ">%.6s %u%%", json_get_text(move, "to"),
                 all ? (unsigned)(done * 100 / all) : 0);
}

/* Of a store that sessions hold 0, NEVER if it was never used. */
static uint64_t get_idle_ms(const json_t *store, uint64_t now_ms)
{
    uint64_t last_ms = json_get_number(store, "last_used_ms");

    if (json_get_number(store, "held") > 0)
        return 0;
    if (last_ms == 0)
        return NEVER;
    return now_ms > last_ms ? now_ms - last_ms : 0;
}

/* Finds a store of the former look, which is sorted by name. */
static const json_t *find_before(const json_t *stores, const char *name)
{
    size_t at = 0, count = json_array_size(stores);

    ARRAY_SEARCH(at, count, strcmp(json_get_text(json_array_get(stores, at), "name"), name) < 0)
    return at < count && strcmp(json_get_text(json_array_get(stores, at), "name"), name) == 0
               ? json_array_get(stores, at)
               : NULL;
}

/* Notes in a store how fast its move is, by the former look. */
static void note_rate(json_t *store, const json_t *before, uint64_t passed_ms)
{
    json_t *move = json_object_get(store, "moving"), *former = json_object_get(before, "moving");
    uint64_t done = json_get_number(move, "done_bytes"),
             was = json_get_number(former, "done_bytes");

    if (json_is_object(move) && json_is_object(former) && done >= was && passed_ms > 0 &&
        strcmp(json_get_text(move, "to"), json_get_text(former, "to")) == 0)
        json_object_set_new(move, "rate",
                            json_integer((json_int_t)((done - was) * MS_PER_S / passed_ms)));
}

static void note_rates(json_t *look, const struct mount_facts *mount, uint64_t now_ms)
{
    json_t *stores = json_object_get(look, "stores"), *store;
    const json_t *former = json_object_get(mount->look, "stores");
    size_t i;

    json_array_foreach (stores, i, store)
        if (json_is_object(json_object_get(store, "moving")))
            note_rate(store, find_before(former, json_get_text(store, "name")),
                      now_ms > mount->looked_ms ? now_ms - mount->looked_ms : 0);
}

static void count_sessions(struct row *row)
{
    const json_t *session;
    size_t i;

    json_array_foreach (row->sessions, i, session) {
        if (strcmp(json_get_text(session, "status"), "held") == 0)
            row->holders++;
        else
            row->waiters++;
    }
}

static void add_row(struct top *top, size_t mount, const json_t *store)
{
    struct row *row = &top->rows[top->row_count++];

    *row = (struct row){
        .mount = mount,
        .json = store,
        .sessions = json_object_get(store, "sessions"),
        .name = json_get_text(store, "name"),
        .pool = json_get_text(store, "pool"),
        .bytes = json_get_number(store, "bytes"),
        .idle_ms = get_idle_ms(store, top->mounts[mount].looked_ms),
        .rate = json_get_number(json_object_get(store, "moving"), "rate"),
    };
    format_state(store, row->state);
    format_place(store, row->place);
    count_sessions(row);
}

/* Makes all rows anew; none when out of memory. */
static void make_rows(struct top *top)
{
    const json_t *store;
    size_t count = 0, j;

    for (size_t i = 0; i < top->mount_count; i++)
        count += json_array_size(json_object_get(top->mounts[i].look, "stores"));
    top->row_count = top->shown_count = 0;
    if (ARRAY_RESERVE(top->rows, top->row_room, count) != 0 ||
        ARRAY_RESERVE(top->shown, top->shown_room, count) != 0)
        return;
    for (size_t i = 0; i < top->mount_count; i++) {
        json_array_foreach (json_object_get(top->mounts[i].look, "stores"), j, store) {
            add_row(top, i, store);
        }
    }
    rows_arrange(top);
}

/* ---- mounts -------------------------------------------------------------------------------- */

struct top *top_new(void)
{
    struct top *top = calloc(1, sizeof(*top));

    if (top)
        top->sort = COLUMN_BYTES;
    return top;
}

static void free_mount(struct mount_facts *mount)
{
    free(mount->path);
    free(mount->absent);
    json_decref(mount->look);
}

void top_free(struct top *top)
{
    if (!top)
        return;
    for (size_t i = 0; i < top->mount_count; i++)
        free_mount(&top->mounts[i]);
    for (size_t i = 0; i < MAX_EVENTS; i++)
        free(top->events[i].text);
    free(top->mounts);
    free(top->rows);
    free(top->shown);
    screen_free(&top->screen);
    free(top);
}

static struct mount_facts *find_mount(struct top *top, const char *path)
{
    for (size_t i = 0; i < top->mount_count; i++)
        if (strcmp(top->mounts[i].path, path) == 0 && !top->mounts[i].is_kept)
            return &top->mounts[i];
    return NULL;
}

/* Returns the last components of a path, so many of them; all of it if it has no more. */
static const char *find_tail(const char *path, unsigned components)
{
    const char *at = path + strlen(path);

    while (at > path && components > 0)
        if (*--at == '/')
            components--;
    return *at == '/' && at[1] && at > path ? at + 1 : at;
}

/* Makes labels of paths: the last component, or two where mounts have the same. */
static void make_labels(struct mount_facts *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const char *last = find_tail(list[i].path, 1);
        unsigned same = 0;

        for (size_t j = 0; j < count; j++)
            same += strcmp(find_tail(list[j].path, 1), last) == 0;
        snprintf(list[i].label, LABEL_BYTES, "%s", same > 1 ? find_tail(list[i].path, 2) : last);
    }
}

int top_set_mounts(struct top *top, const char *const *paths, size_t count)
{
    struct mount_facts *list = calloc(count + 1, sizeof(*list)), *known;
    int error = list ? 0 : -ENOMEM;

    for (size_t i = 0; !error && i < count; i++) {
        known = find_mount(top, paths[i]);
        if (known)
            known->is_kept = true;
        list[i].path = strdup(paths[i]);
        error = list[i].path ? 0 : -ENOMEM;
        if (!error && known) {
            list[i].look = json_incref(known->look);
            list[i].absent = known->absent ? strdup(known->absent) : NULL;
            list[i].looked_ms = known->looked_ms;
        }
    }
    if (error) {
        for (size_t i = 0; list && i < count; i++)
            free_mount(&list[i]);
        free(list);
        for (size_t i = 0; i < top->mount_count; i++)
            top->mounts[i].is_kept = false;
        return error;
    }
    for (size_t i = 0; i < top->mount_count; i++)
        free_mount(&top->mounts[i]);
    free(top->mounts);
    make_labels(list, count);
    top->mounts = list;
    top->mount_count = count;
    make_rows(top);
    return 0;
}

void top_take_look(struct top *top, size_t mount, json_t *look, const char *absent, uint64_t now_ms)
{
    struct mount_facts *facts = &top->mounts[mount];
    json_t *former = facts->look;

    note_rates(look, facts, now_ms);
    facts->look = look;
    facts->looked_ms = now_ms;
    free(facts->absent);
    facts->absent = absent ? strdup(absent) : NULL;
    make_rows(top);
    json_decref(former);
}

/* ---- events -------------------------------------------------------------------------------- */

/* Events that an operator should see among the others. */
static bool is_bad_event(const char *name)
{
    static const char *const bad[] = {"aborted",       "lost",      "move_failed", "over_quota",
                                      "out_of_memory", "recovered", "revoked",     "suspect"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (strcmp(name, bad[i]) == 0)
            return true;
    return false;
}

static char *format_event(const struct mount_facts *mount, const json_t *event)
{
    uint64_t ms = json_get_number(event, "time_ms"), session = json_get_number(event, "session"),
             pid = json_get_number(event, "pid"), s = ms / MS_PER_S;
    const char *store = json_get_text(event, "store");
    char *text = NULL, by[96] = "", number[40] = "";

    if (session)
        snprintf(number, sizeof(number), "  session %" PRIu64, session);
    if (pid)
        snprintf(by, sizeof(by), "  pid %" PRIu64 " %.64s", pid, json_get_text(event, "comm"));
    if (asprintf(&text, "%02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 "  %s%s%s  %s%s%s", s / 3600 % 24,
                 s / 60 % 60, s % 60, mount->label, *store ? "/" : "", store,
                 json_get_text(event, "event"), number, by) < 0)
        return NULL;
    return text;
}

void top_take_event(struct top *top, size_t mount, const char *line, size_t bytes)
{
    json_auto_t *event = json_loadb(line, bytes, 0, NULL);
    struct event_line *at = &top->events[top->event_count % MAX_EVENTS];

    if (!*json_get_text(event, "event"))
        return;
    char *text = format_event(&top->mounts[mount], event);
    if (!text)
        return;
    free(at->text);
    *at = (struct event_line){text, is_bad_event(json_get_text(event, "event"))};
    top->event_count++;
}

void top_set_message(struct top *top, const char *text, bool is_error)
{
    snprintf(top->message, sizeof(top->message), "%s", text);
    top->message_is_error = is_error;
}
