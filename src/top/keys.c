/* SPDX-License-Identifier: Apache-2.0 */
/* The keys and their functions. */
#include "top/internal.h"

#include <stdio.h>
#include <string.h>

#define CONTROL_L 0x0c

/* ---- moving about -------------------------------------------------------------------------- */

/* Goes `by` rows further in the pane with the keyboard. */
static void go(struct top *top, long by)
{
    bool in_sessions = top->pane == PANE_SESSIONS;
    size_t at = in_sessions ? top->chosen_row : top->shows_pools ? top->first_pool : top->chosen;

    at = by < 0 && (size_t)-by > at ? 0 : at + (size_t)by;
    if (in_sessions)
        rows_choose_session(top, at);
    else if (top->shows_pools)
        top->first_pool = at;
    else
        rows_choose(top, at);
}

static void press_up(struct top *top)
{
    go(top, -1);
}

static void press_down(struct top *top)
{
    go(top, 1);
}

static void press_page_up(struct top *top)
{
    go(top, -(long)top->page);
}

static void press_page_down(struct top *top)
{
    go(top, (long)top->page);
}

static void press_home(struct top *top)
{
    go(top, -(1L << 30));
}

static void press_end(struct top *top)
{
    go(top, 1L << 30);
}

static void press_tab(struct top *top)
{
    top->pane = top->pane == PANE_STORES ? PANE_SESSIONS : PANE_STORES;
}

static void press_pools(struct top *top)
{
    top->shows_pools = !top->shows_pools;
    top->first_pool = 0;
}

/* ---- order and filter ---------------------------------------------------------------------- */

static void press_next_column(struct top *top)
{
    top->sort = (top->sort + 1) % COLUMNS;
    rows_arrange(top);
}

static void press_former_column(struct top *top)
{
    top->sort = (top->sort + COLUMNS - 1) % COLUMNS;
    rows_arrange(top);
}

static void press_invert(struct top *top)
{
    top->is_inverted = !top->is_inverted;
    rows_arrange(top);
}

static void press_filter(struct top *top)
{
    top->mode = MODE_FILTER;
}

static void press_escape(struct top *top)
{
    top->filter[0] = '\0';
    rows_arrange(top);
}

static void press_help(struct top *top)
{
    top->mode = MODE_HELP;
    top->help_first = 0;
}

/* ---- deeds --------------------------------------------------------------------------------- */

/* Begins a question about the chosen store; NULL after a message: there is none. */
static struct question *begin_question(struct top *top, enum top_deed deed)
{
    const struct row *row = rows_chosen(top);
    struct question *asked = &top->asked;

    if (!row) {
        top_set_message(top, "no store is chosen", true);
        return NULL;
    }
    snprintf(asked->mount, sizeof(asked->mount), "%s", top->mounts[row->mount].path);
    snprintf(asked->store, sizeof(asked->store), "%s", row->name);
    rows_format_name(top, row, asked->name);
    asked->order = (struct top_order){.deed = deed, .mount = asked->mount, .store = asked->store};
    return asked;
}

#define ASK(top, ...)                                                        \
    do {                                                                     \
        snprintf((top)->asked.text, sizeof((top)->asked.text), __VA_ARGS__); \
        (top)->mode = MODE_QUESTION;                                         \
    } while (0)

/* Returns the next slower tier that the mount has: host or disk; NULL: none. */
static const char *find_tier(const struct top *top)
{
    const struct row *row = rows_chosen(top);
    const json_t *device = row ? look_device(&top->mounts[row->mount]) : NULL;
    bool is_on_host = row && strncmp(row->place, "host", 4) == 0;

    if (json_get_number(device, "host_total_bytes") > 0 && !is_on_host)
        return "host";
    return json_get_number(device, "spill_total_bytes") > 0 ? "disk" : NULL;
}

static void press_revoke(struct top *top)
{
    const json_t *session = rows_chosen_session(top);
    struct question *asked = begin_question(top, TOP_REVOKE);
    bool waits = strcmp(json_get_text(session, "status"), "held") != 0;

    if (!asked)
        return;
    if (!session) {
        top_set_message(top, "no session holds the store or waits for it", true);
        return;
    }
    if (top->pane != PANE_SESSIONS && json_array_size(rows_chosen(top)->sessions) > 1) {
        top->pane = PANE_SESSIONS;
        top_set_message(top, "several sessions: choose one, then r again", false);
        return;
    }
    snprintf(asked->session, sizeof(asked->session), "%s", json_get_text(session, "id"));
    asked->order.session = asked->session;
    ASK(top, "revoke %s %s (%s, pid %lld %.32s)%s of %s", waits ? "waiter" : "session",
        asked->session, json_get_text(session, "mode"), (long long)json_get_number(session, "pid"),
        json_get_text(session, "comm"),
        waits || json_get_text(session, "mode")[1] != 'W' ? "" : ", which loses its work,",
        asked->name);
}

static void press_promote(struct top *top)
{
    struct question *asked = begin_question(top, TOP_PROMOTE);

    if (asked)
        ASK(top, "promote %s to its device", asked->name);
}

static void press_demote(struct top *top)
{
    struct question *asked = begin_question(top, TOP_DEMOTE);

    if (!asked)
        return;
    asked->order.place = find_tier(top);
    if (asked->order.place)
        ASK(top, "demote %s to %s", asked->name, asked->order.place);
    else
        top_set_message(top,
                        "the mount has no slower tier (host_size=, spill=); 'gmsfs demote --to "
                        "none' gives up the bytes",
                        true);
}

static void press_drain(struct top *top)
{
    struct question *asked = begin_question(top, TOP_DRAIN);
    unsigned holders;

    if (!asked)
        return;
    if (json_get_flag(rows_chosen(top)->json, "draining")) {
        asked->order.deed = TOP_UNDRAIN;
        ASK(top, "end the drain of %s", asked->name);
        return;
    }
    holders = rows_chosen(top)->holders;
    asked->order.place = find_tier(top);
    ASK(top, "drain %s: tell its %u holder%s to leave%s%s", asked->name, holders,
        holders == 1 ? "" : "s", asked->order.place ? ", then demote it to " : "",
        asked->order.place ? asked->order.place : "");
}

/* ---- the table ----------------------------------------------------------------------------- */

/* A row of the help, the keys that it is about, and their function. */
struct binding {
    struct top_help help;
    unsigned keys[3];
    void (*press)(struct top *top); /* NULL: a deed for the caller */
    enum top_deed deed;
};

static const struct binding bindings[] = {
    {{"Up, k", "one row up"}, {TOP_UP, 'k'}, press_up, 0},
    {{"Down, j", "one row down"}, {TOP_DOWN, 'j'}, press_down, 0},
    {{"PgUp", "one page up"}, {TOP_PAGE_UP}, press_page_up, 0},
    {{"PgDn", "one page down"}, {TOP_PAGE_DOWN}, press_page_down, 0},
    {{"Home, g", "to the first row"}, {TOP_HOME, 'g'}, press_home, 0},
    {{"End, G", "to the last row"}, {TOP_END, 'G'}, press_end, 0},
    {{"Tab, Enter", "from the stores to the sessions of the chosen one, and back"},
     {TOP_TAB, TOP_ENTER},
     press_tab,
     0},
    {{"P", "show pools and moves under way, or the stores again"}, {'P'}, press_pools, 0},
    {{">, F6", "sort by the next column"}, {'>', TOP_F1 + 5}, press_next_column, 0},
    {{"<", "sort by the column before"}, {'<'}, press_former_column, 0},
    {{"I", "invert the order"}, {'I'}, press_invert, 0},
    {{"/, F4", "filter by a part of name, state, place or pool; Enter keeps it"},
     {'/', TOP_F1 + 3},
     press_filter,
     0},
    {{"Esc", "drop the filter"}, {TOP_ESCAPE}, press_escape, 0},
    {{"r", "revoke the chosen session or waiter"}, {'r'}, press_revoke, 0},
    {{"p", "promote the store to its device"}, {'p'}, press_promote, 0},
    {{"d", "demote the store to the host, or to the disk"}, {'d'}, press_demote, 0},
    {{"D", "drain the store of its holders, then demote it; or end its drain"},
     {'D'},
     press_drain,
     0},
    {{"Ctrl-L", "draw the screen anew"}, {CONTROL_L}, NULL, TOP_REDRAW},
    {{"?, h, F1", "show the keys"}, {'?', 'h', TOP_F1}, press_help, 0},
    {{"q, F10", "quit"}, {'q', TOP_F1 + 9}, NULL, TOP_QUIT},
};

#define BINDINGS (sizeof(bindings) / sizeof(bindings[0]))

const struct top_help *top_get_help(void)
{
    static struct top_help rows[BINDINGS + 1];

    for (size_t i = 0; i < BINDINGS; i++)
        rows[i] = bindings[i].help;
    return rows;
}

static struct top_order press_main(struct top *top, unsigned key)
{
    top->message[0] = '\0';
    for (size_t i = 0; i < BINDINGS; i++) {
        for (size_t j = 0; j < 3; j++) {
            if (bindings[i].keys[j] != key)
                continue;
            if (bindings[i].press)
                bindings[i].press(top);
            return (struct top_order){.deed = bindings[i].deed};
        }
    }
    return (struct top_order){0};
}

/* ---- other modes --------------------------------------------------------------------------- */

static void press_in_help(struct top *top, unsigned key)
{
    if (key == TOP_DOWN || key == 'j' || key == TOP_PAGE_DOWN)
        top->help_first++;
    else if (key != TOP_UP && key != 'k' && key != TOP_PAGE_UP)
        top->mode = MODE_MAIN;
    else if (top->help_first > 0)
        top->help_first--;
}

/* Removes the last character, which may have several bytes. */
static void shorten(char *text)
{
    size_t bytes = strlen(text);

    while (bytes > 0 && ((unsigned char)text[bytes - 1] & 0xc0) == 0x80)
        bytes--;
    text[bytes > 0 ? bytes - 1 : 0] = '\0';
}

static void press_in_filter(struct top *top, unsigned key)
{
    size_t bytes = strlen(top->filter);

    if (key == TOP_ENTER || key == TOP_ESCAPE)
        top->mode = MODE_MAIN;
    if (key == TOP_ESCAPE)
        top->filter[0] = '\0';
    else if (key == TOP_BACKSPACE)
        shorten(top->filter);
    else if (key >= ' ' && key <= 0xff && key != 0x7f && bytes + 1 < sizeof(top->filter)) {
        top->filter[bytes] = (char)key;
        top->filter[bytes + 1] = '\0';
    }
    rows_arrange(top);
}

static struct top_order press_in_question(struct top *top, unsigned key)
{
    top->mode = MODE_MAIN;
    return key == 'y' || key == 'Y' ? top->asked.order : (struct top_order){0};
}

struct top_order top_press(struct top *top, unsigned key)
{
    struct top_order nothing = {0};

    switch (top->mode) {
    case MODE_HELP:
        press_in_help(top, key);
        return nothing;
    case MODE_FILTER:
        press_in_filter(top, key);
        return nothing;
    case MODE_QUESTION:
        return press_in_question(top, key);
    case MODE_MAIN:
        return press_main(top, key);
    }
    return nothing;
}
