/* SPDX-License-Identifier: Apache-2.0 */
/* The pools against their budgets, and the moves under way: in the place of the table of stores. */
#include "top/internal.h"

#include <stdio.h>

#define NAME_WIDTH   18u
#define CLASS_WIDTH  9u
#define NUMBER_WIDTH 11u
#define BAR_WIDTH    12u
#define FULL_PERCENT 95u

/* Skips the lines above the first one that is shown, and ends with the room. */
struct lines {
    struct top *top;
    size_t at; /* number of the next line */
    unsigned end;
};

/* Returns true if the next line is to be written. */
static bool begin_line(struct lines *lines)
{
    return lines->at++ >= lines->top->first_pool && lines->top->screen.at < lines->end;
}

static void put_name(struct top *top, size_t mount, const char *name)
{
    char text[FULL_NAME_BYTES];

    rows_format_name(top, &(struct row){.mount = mount, .name = name}, text);
    screen_field(&top->screen, STYLE_PLAIN, text, NAME_WIDTH, false);
}

static void put_number(struct screen *screen, enum style style, const char *text)
{
    screen_put(screen, style, " ");
    screen_field(screen, style, text, NUMBER_WIDTH, true);
}

static void put_title(struct lines *lines, const char *const titles[], unsigned count)
{
    struct screen *screen = &lines->top->screen;

    if (!begin_line(lines))
        return;
    screen_field(screen, STYLE_TITLE, titles[0], NAME_WIDTH, false);
    screen_put(screen, STYLE_TITLE, " ");
    screen_field(screen, STYLE_TITLE, titles[1], CLASS_WIDTH, false);
    for (unsigned i = 2; i < count; i++)
        put_number(screen, STYLE_TITLE, titles[i]);
    screen_fill(screen, STYLE_TITLE, screen->columns);
    screen_next(screen);
}

/* ---- pools --------------------------------------------------------------------------------- */

static void put_use(struct screen *screen, enum style style, uint64_t used, uint64_t most)
{
    unsigned part =
        most > used ? (unsigned)((unsigned __int128)used * BAR_WIDTH / most) : BAR_WIDTH;

    part = part == 0 && used > 0 ? 1 : part;
    part = used == 0 ? 0 : part;
    screen_put(screen, STYLE_STRONG, " [");
    screen_repeat(screen, style, '#', part);
    screen_repeat(screen, STYLE_PLAIN, '.', BAR_WIDTH - part);
    screen_put(screen, STYLE_STRONG, "]");
}

static void put_pool(struct lines *lines, size_t mount, const json_t *pool)
{
    struct screen *screen = &lines->top->screen;
    uint64_t used = json_get_number(pool, "used"), least = json_get_number(pool, "min"),
             most = json_get_number(pool, "max");
    bool has_most = json_is_integer(json_object_get(pool, "max"));
    bool is_full =
        has_most && (unsigned __int128)used * 100 >= (unsigned __int128)most * FULL_PERCENT;
    char text[SIZE_TEXT_BYTES];

    if (!begin_line(lines))
        return;
    put_name(lines->top, mount, json_get_text(pool, "name"));
    screen_put(screen, STYLE_PLAIN, " ");
    screen_field(screen, STYLE_PLAIN, json_get_text(pool, "class"), CLASS_WIDTH, false);
    put_number(screen, is_full ? STYLE_WARNING : STYLE_PLAIN, size_format(used, text));
    put_number(screen, STYLE_PLAIN, least ? size_format(least, text) : "-");
    put_number(screen, STYLE_PLAIN, has_most ? size_format(most, text) : "no limit");
    if (has_most)
        put_use(screen, is_full ? STYLE_WARNING : STYLE_USED, used, most);
    screen_next(screen);
}

static void put_pools(struct lines *lines)
{
    static const char *const titles[] = {"POOL", "CLASS", "USED", "KEPT", "AT MOST"};
    const json_t *pool;
    size_t i;

    put_title(lines, titles, sizeof(titles) / sizeof(titles[0]));
    for (size_t mount = 0; mount < lines->top->mount_count; mount++) {
        json_array_foreach (json_object_get(lines->top->mounts[mount].look, "pools"), i, pool) {
            put_pool(lines, mount, pool);
        }
    }
}

/* ---- moves --------------------------------------------------------------------------------- */

static void put_move(struct lines *lines, const struct row *row, const json_t *move)
{
    struct screen *screen = &lines->top->screen;
    uint64_t done = json_get_number(move, "done_bytes"), all = json_get_number(move, "all_bytes");
    char text[SIZE_TEXT_BYTES], rate[SIZE_TEXT_BYTES + 2] = "-", left[AGE_BYTES] = "-";

    if (!begin_line(lines))
        return;
    if (row->rate > 0) {
        snprintf(rate, sizeof(rate), "%s/s", size_format(row->rate, text));
        rows_format_age((all > done ? all - done : 0) * 1000 / row->rate, left);
    }
    put_name(lines->top, row->mount, row->name);
    screen_put(screen, STYLE_PLAIN, " ");
    screen_field(screen, STYLE_PLAIN, json_get_text(move, "to"), CLASS_WIDTH, false);
    put_number(screen, STYLE_PLAIN, size_format(done, text));
    put_number(screen, STYLE_PLAIN, size_format(all, text));
    put_number(screen, STYLE_PLAIN, rate);
    put_number(screen, STYLE_PLAIN, left);
    screen_next(screen);
}

static void put_moves(struct lines *lines)
{
    static const char *const titles[] = {"MOVE", "TO", "DONE", "OF", "RATE", "LEFT"};
    struct top *top = lines->top;
    bool any = false;

    for (size_t i = 0; i < top->row_count; i++) {
        const json_t *move = json_object_get(top->rows[i].json, "moving");
        if (!json_is_object(move))
            continue;
        if (!any)
            put_title(lines, titles, sizeof(titles) / sizeof(titles[0]));
        any = true;
        put_move(lines, &top->rows[i], move);
    }
    if (!any && begin_line(lines))
        screen_put(&top->screen, STYLE_PLAIN, "no store moves");
}

/* Draws what fits into `room` lines, none if 0. Returns the number of all lines. */
static size_t put_lines(struct top *top, unsigned room)
{
    struct lines lines = {.top = top, .end = top->screen.at + room};

    put_pools(&lines);
    put_moves(&lines);
    return lines.at;
}

void draw_pools(struct top *top, unsigned room)
{
    unsigned end = top->screen.at + room;
    size_t count = put_lines(top, 0), last = count > room ? count - room : 0;

    top->page = room - 1;
    if (top->first_pool > last)
        top->first_pool = last;
    put_lines(top, room);
    screen_go(&top->screen, end);
}
