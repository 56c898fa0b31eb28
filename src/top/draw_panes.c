/* SPDX-License-Identifier: Apache-2.0 */
/* The chosen store with its sessions; the events. */
#include "top/internal.h"

#include <inttypes.h>
#include <stdio.h>

#define TEXT_BYTES 64

/* "moving to host 45%, 0.9 GiB of 2.0 GiB, 800.0 MiB/s" */
static void put_move(struct screen *screen, const struct row *row)
{
    const json_t *move = json_object_get(row->json, "moving");
    char done[SIZE_TEXT_BYTES], all[SIZE_TEXT_BYTES], rate[SIZE_TEXT_BYTES];

    if (!json_is_object(move))
        return;
    screen_print(screen, STYLE_TITLE, "  %s to %s: %s of %s",
                 json_get_flag(move, "spare") ? "copied" : "moving", json_get_text(move, "to"),
                 size_format(json_get_number(move, "done_bytes"), done),
                 size_format(json_get_number(move, "all_bytes"), all));
    if (row->rate > 0)
        screen_print(screen, STYLE_TITLE, ", %s/s", size_format(row->rate, rate));
}

static void put_store_title(struct top *top, const struct row *row)
{
    struct screen *screen = &top->screen;

    if (!row) {
        screen_put(screen, STYLE_TITLE, " no store");
        return;
    }
    screen_print(screen, STYLE_TITLE, " %s  %u holder%s, %u waiter%s", row->name, row->holders,
                 row->holders == 1 ? "" : "s", row->waiters, row->waiters == 1 ? "" : "s");
    put_move(screen, row);
    screen_print(screen, STYLE_TITLE,
                 "  generation %" PRIu64 ", allocations %" PRIu64 ", entries %" PRIu64,
                 json_get_number(row->json, "generation"),
                 json_get_number(row->json, "allocations"), json_get_number(row->json, "entries"));
}

static void put_session(struct top *top, const json_t *session, bool is_chosen, uint64_t now_ms)
{
    struct screen *screen = &top->screen;
    uint64_t since_ms = look_parse_time(json_get_text(session, "since"));
    enum style style = is_chosen ? STYLE_CHOSEN : STYLE_PLAIN;
    char number[TEXT_BYTES], age[AGE_BYTES];

    screen_field(screen, style, json_get_text(session, "id"), 7, true);
    screen_put(screen, style, " ");
    screen_field(screen, style, json_get_text(session, "mode"), 7, false);
    screen_put(screen, style, " ");
    screen_field(screen, style, json_get_text(session, "status"), 7, false);
    snprintf(number, sizeof(number), " pid %" PRIu64, json_get_number(session, "pid"));
    screen_field(screen, style, number, 12, false);
    snprintf(number, sizeof(number), " uid %" PRIu64, json_get_number(session, "uid"));
    screen_field(screen, style, number, 10, false);
    rows_format_age(now_ms > since_ms ? now_ms - since_ms : 0, age);
    screen_field(screen, style, age, 8, true);
    screen_print(screen, style, " %s", json_get_text(session, "comm"));
    if (is_chosen)
        screen_fill(screen, style, screen->columns);
}

static void put_trouble(struct screen *screen, unsigned end, const char *title, const char *text)
{
    if (!*text || screen->at >= end)
        return;
    screen_print(screen, STYLE_WARNING, " %s: %s", title, text);
    screen_next(screen);
}

/* Writes the mount's reasons why a store does not get on. */
static void put_troubles(struct screen *screen, const json_t *store, unsigned end)
{
    const json_t *obstacle = json_object_get(store, "obstacle");
    char title[TEXT_BYTES];

    put_trouble(screen, end, "cannot be read", json_get_text(store, "error"));
    put_trouble(screen, end, "waits for memory behind", json_get_text(store, "behind"));
    snprintf(title, sizeof(title), "not moved to %.16s", json_get_text(obstacle, "to"));
    put_trouble(screen, end, title, json_get_text(obstacle, "text"));
    put_trouble(screen, end, "last commit refused", json_get_text(store, "last_error"));
}

/* Returns the first row to show, so that the chosen one is among `room`. */
static size_t scroll(size_t first, size_t chosen, size_t room, size_t count)
{
    if (first + room > count)
        first = count > room ? count - room : 0;
    if (chosen < first)
        first = chosen;
    if (room > 0 && chosen >= first + room)
        first = chosen - room + 1;
    return first;
}

void draw_sessions(struct top *top, unsigned room, uint64_t now_ms)
{
    const struct row *row = rows_chosen(top);
    struct screen *screen = &top->screen;
    unsigned end = screen->at + room;
    size_t count = row ? json_array_size(row->sessions) : 0;
    bool has_keys = top->pane == PANE_SESSIONS;

    put_store_title(top, row);
    screen_fill(screen, STYLE_TITLE, screen->columns);
    screen_next(screen);
    top->first_session = scroll(top->first_session, top->chosen_row, room - 1, count);
    for (size_t i = top->first_session; i < count && screen->at < end; i++) {
        put_session(top, json_array_get(row->sessions, i), has_keys && i == top->chosen_row,
                    now_ms);
        screen_next(screen);
    }
    if (row && screen->at < end)
        put_troubles(screen, row->json, end);
    screen_go(screen, end);
}

void draw_events(struct top *top, unsigned room)
{
    struct screen *screen = &top->screen;
    unsigned end = screen->at + room;
    size_t shown = room - 1, from;

    screen_put(screen, STYLE_TITLE, " events (UTC)");
    screen_fill(screen, STYLE_TITLE, screen->columns);
    screen_next(screen);
    if (shown > MAX_EVENTS)
        shown = MAX_EVENTS;
    from = top->event_count > shown ? top->event_count - shown : 0;
    for (size_t i = from; i < top->event_count; i++) {
        const struct event_line *event = &top->events[i % MAX_EVENTS];
        screen_print(screen, event->is_bad ? STYLE_WARNING : STYLE_PLAIN, " %s", event->text);
        screen_next(screen);
    }
    screen_go(screen, end);
}
