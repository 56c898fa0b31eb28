/* SPDX-License-Identifier: Apache-2.0 */
/* The screen as a whole: the lines of each part; the table; the help. */
#include "top/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_NAME    40u
#define MORE_STATE   20u /* columns for its words */
#define PANES_FROM   13u /* least lines of a screen with sessions, and with events */
#define EVENTS_FROM  18u
#define PART_OF_PANE 6u  /* of the lines of a screen */
#define PART_OF_BARS 3u  /* and of a message */
#define HELP_KEYS    13u /* columns */

/* ---- the table ----------------------------------------------------------------------------- */

/* Chooses the width of each column; 0: it does not fit. The rest is for the names, then for
 * states and pools. */
static void choose_widths(unsigned widths[COLUMNS], unsigned all)
{
    static const unsigned leave[] = {COLUMN_POOL,    COLUMN_IDLE,    COLUMN_PLACE,
                                     COLUMN_WAITERS, COLUMN_HOLDERS, COLUMN_BYTES};
    unsigned used = COLUMNS - 1, left;

    for (unsigned i = 0; i < COLUMNS; i++)
        used += widths[i] = table_columns[i].width;
    for (unsigned i = 0; i < sizeof(leave) / sizeof(leave[0]) && used > all; i++) {
        used -= widths[leave[i]] + 1;
        widths[leave[i]] = 0;
    }
    widths[COLUMN_NAME] += all > used ? all - used : 0;
    if (widths[COLUMN_NAME] > MOST_NAME && widths[COLUMN_POOL]) {
        left = widths[COLUMN_NAME] - MOST_NAME;
        widths[COLUMN_NAME] -= left;
        widths[COLUMN_STATE] += left > MORE_STATE ? MORE_STATE : left;
        widths[COLUMN_POOL] += left > MORE_STATE ? left - MORE_STATE : 0;
    }
}

static void put_titles(struct top *top, const unsigned widths[COLUMNS])
{
    struct screen *screen = &top->screen;

    for (unsigned i = 0; i < COLUMNS; i++) {
        bool is_down = table_columns[i].is_number != top->is_inverted;
        char title[24];

        if (!widths[i])
            continue;
        snprintf(title, sizeof(title), "%s%s", table_columns[i].title,
                 i != top->sort ? ""
                 : is_down      ? "v"
                                : "^");
        if (i > 0)
            screen_put(screen, STYLE_TITLE, " ");
        screen_field(screen, STYLE_TITLE, title, widths[i], table_columns[i].is_number);
    }
    screen_fill(screen, STYLE_TITLE, screen->columns);
    screen_next(screen);
}

static enum style style_of_state(const struct row *row)
{
    if (strstr(row->state, "SUSPECT") || strcmp(row->state, "UNKNOWN") == 0)
        return STYLE_BAD;
    if (row->waiters > 0 || strchr(row->state, ' '))
        return STYLE_WARNING;
    return row->holders > 0 ? STYLE_GOOD : STYLE_PLAIN;
}

static void put_row(struct top *top, const struct row *row, const unsigned widths[COLUMNS],
                    bool is_chosen)
{
    char name[FULL_NAME_BYTES], bytes[SIZE_TEXT_BYTES], age[AGE_BYTES], holders[16], waiters[16];
    const char *cells[COLUMNS] = {name,    row->state, bytes, row->place,
                                  holders, waiters,    age,   row->pool};
    struct screen *screen = &top->screen;

    rows_format_name(top, row, name);
    size_format(row->bytes, bytes);
    snprintf(holders, sizeof(holders), "%u", row->holders);
    snprintf(waiters, sizeof(waiters), "%u", row->waiters);
    if (row->idle_ms == NEVER || row->holders > 0)
        snprintf(age, sizeof(age), "-");
    else
        rows_format_age(row->idle_ms, age);
    for (unsigned i = 0; i < COLUMNS; i++) {
        enum style style = is_chosen           ? STYLE_CHOSEN
                           : i == COLUMN_STATE ? style_of_state(row)
                                               : STYLE_PLAIN;

        if (!widths[i])
            continue;
        if (i > 0)
            screen_put(screen, is_chosen ? STYLE_CHOSEN : STYLE_PLAIN, " ");
        screen_field(screen, style, cells[i], widths[i], table_columns[i].is_number);
    }
    if (is_chosen)
        screen_fill(screen, STYLE_CHOSEN, screen->columns);
    screen_next(screen);
}

/* True if a mount has neither told its stores nor why it does not. */
static bool is_awaited(const struct top *top)
{
    for (size_t i = 0; i < top->mount_count; i++)
        if (!top->mounts[i].look && !top->mounts[i].absent)
            return true;
    return false;
}

static void put_no_rows(struct top *top)
{
    const char *text = "no stores";

    if (top->mount_count == 0)
        text = "there is no gmsfs mount; 'gmsfs mount' makes one";
    else if (is_awaited(top))
        text = "the stores are being looked at";
    else if (*top->filter)
        text = "no store has this in name, state, place or pool";
    screen_put(&top->screen, STYLE_PLAIN, text);
}

static void draw_table(struct top *top, unsigned room)
{
    struct screen *screen = &top->screen;
    unsigned widths[COLUMNS], end = screen->at + room;

    choose_widths(widths, screen->columns);
    put_titles(top, widths);
    top->page = room - 1;
    if (top->first + top->page > top->shown_count)
        top->first = top->shown_count > top->page ? top->shown_count - top->page : 0;
    if (top->chosen < top->first)
        top->first = top->chosen;
    if (top->chosen >= top->first + top->page)
        top->first = top->chosen - top->page + 1;
    for (size_t i = top->first; i < top->shown_count && screen->at < end; i++)
        put_row(top, top->shown[i], widths, i == top->chosen);
    if (top->shown_count == 0)
        put_no_rows(top);
    screen_go(screen, end);
}

/* ---- first and last line ------------------------------------------------------------------- */

static void draw_head(struct top *top, uint64_t now_ms)
{
    struct screen *screen = &top->screen;
    uint64_t s = now_ms / 1000;

    screen_print(screen, STYLE_STRONG, "gmsfs top  %02" PRIu64 ":%02" PRIu64 ":%02" PRIu64 " UTC",
                 s / 3600 % 24, s / 60 % 60, s % 60);
    screen_print(screen, STYLE_PLAIN, "  %zu mount%s, %zu store%s", top->mount_count,
                 top->mount_count == 1 ? "" : "s", top->row_count, top->row_count == 1 ? "" : "s");
    if (*top->filter)
        screen_print(screen, STYLE_WARNING, "  %zu with '%s'", top->shown_count, top->filter);
    screen_next(screen);
}

/* Returns the lines of a message or a question; most: its bound. */
static unsigned count_bottom(const struct top *top, unsigned most)
{
    unsigned lines = screen_count_lines(top->message, top->screen.columns - 1);

    if (top->mode != MODE_MAIN || !*top->message)
        return 1;
    return lines < most ? lines : most;
}

/* A question, cut where it is too long: its end has to be read. */
static void put_question(struct top *top)
{
    static const char end[] = "? y/N ";
    struct screen *screen = &top->screen;
    unsigned room = screen->columns - (unsigned)sizeof(end);

    screen_put(screen, STYLE_WARNING, " ");
    if (screen_width(top->asked.text) > room)
        screen_field(screen, STYLE_WARNING, top->asked.text, room, false);
    else
        screen_put(screen, STYLE_WARNING, top->asked.text);
    screen_put(screen, STYLE_WARNING, end);
}

static void draw_bottom(struct top *top, unsigned lines)
{
    struct screen *screen = &top->screen;

    screen_go(screen, screen->rows - lines);
    if (top->mode == MODE_QUESTION) {
        put_question(top);
    } else if (top->mode == MODE_FILTER) {
        screen_print(screen, STYLE_STRONG, " filter: %s", top->filter);
    } else if (*top->message) {
        screen_put(screen, STYLE_PLAIN, " ");
        screen_wrap(screen, top->message_is_error ? STYLE_BAD : STYLE_GOOD, top->message, lines);
    } else {
        screen_put(screen, STYLE_PLAIN,
                   " ? help q quit / filter <> sort Tab sessions r revoke p promote d demote D "
                   "drain");
    }
    if (top->mode == MODE_QUESTION || top->mode == MODE_FILTER) {
        screen->cursor_row = (int)screen->at;
        screen->cursor_column = screen->lines[screen->at].width;
    }
}

/* ---- other screens ------------------------------------------------------------------------- */

static void draw_help(struct top *top)
{
    static const char *const texts[] = {
        "",
        "Bars: # used by stores, + reserved for writers, ~ leaving (being given back),",
        "= given up but still mapped, o held by other programs, . free.",
        "HOLD and WAIT count sessions and waiters, IDLE is the time since the last use.",
        "Deeds have your rights: a store's owner and root revoke, move and drain.",
    };
    struct screen *screen = &top->screen;
    const struct top_help *help = top_get_help();
    size_t at = 0;

    screen_put(screen, STYLE_TITLE, " keys; Up and Down move this text, another key ends it");
    screen_fill(screen, STYLE_TITLE, screen->columns);
    screen_next(screen);
    for (; help->keys; help++) {
        if (at++ < top->help_first)
            continue;
        screen_put(screen, STYLE_PLAIN, " ");
        screen_field(screen, STYLE_STRONG, help->keys, HELP_KEYS, false);
        screen_put(screen, STYLE_PLAIN, help->text);
        screen_next(screen);
    }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (at++ < top->help_first)
            continue;
        screen_print(screen, STYLE_PLAIN, " %s", texts[i]);
        screen_next(screen);
    }
    if (top->help_first >= at)
        top->help_first = at - 1;
}

static void draw_main(struct top *top, uint64_t now_ms)
{
    unsigned rows = top->screen.rows, pane = rows / PART_OF_PANE + 1,
             sessions = rows >= PANES_FROM ? pane : 0, events = rows >= EVENTS_FROM ? pane : 0,
             bottom = count_bottom(top, rows / PART_OF_BARS), bars;

    draw_head(top, now_ms);
    bars = draw_bars(top, rows / PART_OF_BARS);
    if (bottom > 1) /* a long message takes the place of events */
        events = events > bottom ? events - bottom + 1 : 0;
    if (top->shows_pools)
        draw_pools(top, rows - 1 - bars - sessions - events - bottom);
    else
        draw_table(top, rows - 1 - bars - sessions - events - bottom);
    if (sessions > 0)
        draw_sessions(top, sessions, now_ms);
    if (events > 0)
        draw_events(top, events);
    draw_bottom(top, bottom);
}

const struct screen *top_draw(struct top *top, unsigned rows, unsigned columns, uint64_t now_ms)
{
    struct screen *screen = &top->screen;

    screen_begin(screen, rows, columns);
    if (screen->failed)
        return NULL;
    if (rows < TOP_LEAST_ROWS || columns < TOP_LEAST_COLUMNS)
        screen_print(screen, STYLE_BAD, "needs %u x %u, has %u x %u", TOP_LEAST_COLUMNS,
                     TOP_LEAST_ROWS, columns, rows);
    else if (top->mode == MODE_HELP)
        draw_help(top);
    else
        draw_main(top, now_ms);
    return screen->failed ? NULL : screen;
}
