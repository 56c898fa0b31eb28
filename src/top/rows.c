/* SPDX-License-Identifier: Apache-2.0 */
/* The table of stores: its columns, its order, its filter, and the chosen rows. */
#include "top/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- order --------------------------------------------------------------------------------- */

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_names(const struct row *a, const struct row *b)
{
    int order = compare_numbers(a->mount, b->mount);

    return order ? order : strcmp(a->name, b->name);
}

static int compare_states(const struct row *a, const struct row *b)
{
    return strcmp(a->state, b->state);
}

static int compare_bytes(const struct row *a, const struct row *b)
{
    return compare_numbers(b->bytes, a->bytes);
}

static int compare_places(const struct row *a, const struct row *b)
{
    return strcmp(a->place, b->place);
}

static int compare_holders(const struct row *a, const struct row *b)
{
    return compare_numbers(b->holders, a->holders);
}

static int compare_waiters(const struct row *a, const struct row *b)
{
    return compare_numbers(b->waiters, a->waiters);
}

static int compare_idle(const struct row *a, const struct row *b)
{
    return compare_numbers(b->idle_ms, a->idle_ms);
}

static int compare_pools(const struct row *a, const struct row *b)
{
    return strcmp(a->pool, b->pool);
}

const struct column table_columns[COLUMNS] = {
    {"STORE", 12, false, compare_names}, {"STATE", 11, false, compare_states},
    {"BYTES", 9, true, compare_bytes},   {"PLACE", 16, false, compare_places},
    {"HOLD", 5, true, compare_holders},  {"WAIT", 5, true, compare_waiters},
    {"IDLE", 6, true, compare_idle},     {"POOL", 8, false, compare_pools},
};

/* Rows that are alike in the column are in the order of mounts and names, also when inverted. */
static int compare_rows(const void *a_at, const void *b_at, void *context)
{
    const struct row *const *a = a_at, *const *b = b_at;
    const struct top *top = context;
    int order = table_columns[top->sort].compare(*a, *b);

    if (top->is_inverted)
        order = -order;
    return order ? order : compare_names(*a, *b);
}

/* ---- filter -------------------------------------------------------------------------------- */

/* True if the filter is a part of "MOUNT/STORE", of the state, the place or the pool; in ASCII in
 * either case. */
static bool is_wanted(const struct top *top, const struct row *row)
{
    char name[FULL_NAME_BYTES];

    snprintf(name, sizeof(name), "%s/%s", top->mounts[row->mount].label, row->name);
    return strcasestr(name, top->filter) || strcasestr(row->state, top->filter) ||
           strcasestr(row->place, top->filter) || strcasestr(row->pool, top->filter);
}

/* ---- the chosen rows ----------------------------------------------------------------------- */

static bool is_chosen(const struct top *top, const struct row *row)
{
    return strcmp(row->name, top->chosen_store) == 0 &&
           strcmp(top->mounts[row->mount].path, top->chosen_mount) == 0;
}

void rows_choose(struct top *top, size_t at)
{
    if (top->shown_count == 0)
        return;
    top->chosen = at < top->shown_count ? at : top->shown_count - 1;
    const struct row *row = top->shown[top->chosen];
    if (is_chosen(top, row))
        return;
    snprintf(top->chosen_mount, sizeof(top->chosen_mount), "%s", top->mounts[row->mount].path);
    snprintf(top->chosen_store, sizeof(top->chosen_store), "%s", row->name);
    rows_choose_session(top, 0);
}

const struct row *rows_chosen(const struct top *top)
{
    return top->shown_count > 0 ? top->shown[top->chosen] : NULL;
}

void rows_choose_session(struct top *top, size_t at)
{
    const struct row *row = rows_chosen(top);
    size_t count = row ? json_array_size(row->sessions) : 0;

    if (count > 0 && at >= count)
        at = count - 1;
    top->chosen_row = count > 0 ? at : 0;
    snprintf(top->chosen_session, sizeof(top->chosen_session), "%s",
             count > 0 ? json_get_text(json_array_get(row->sessions, at), "id") : "");
}

const json_t *rows_chosen_session(const struct top *top)
{
    const struct row *row = rows_chosen(top);

    return row ? json_array_get(row->sessions, top->chosen_row) : NULL;
}

/* Finds the chosen session again; if it has ended, the session that has its place now. */
static void find_session(struct top *top)
{
    const struct row *row = rows_chosen(top);
    const json_t *session;
    size_t i;

    json_array_foreach (row ? row->sessions : NULL, i, session) {
        if (strcmp(json_get_text(session, "id"), top->chosen_session) == 0) {
            top->chosen_row = i;
            return;
        }
    }
    rows_choose_session(top, top->chosen_row);
}

void rows_arrange(struct top *top)
{
    top->shown_count = 0;
    for (size_t i = 0; i < top->row_count; i++)
        if (is_wanted(top, &top->rows[i]))
            top->shown[top->shown_count++] = &top->rows[i];
    if (top->shown_count > 0)
        qsort_r(top->shown, top->shown_count, sizeof(struct row *), compare_rows, top);
    for (size_t i = 0; i < top->shown_count; i++) {
        if (is_chosen(top, top->shown[i])) {
            top->chosen = i;
            find_session(top);
            return;
        }
    }
    rows_choose(top, top->chosen);
}

/* ---- text --------------------------------------------------------------------------------- */

const char *rows_format_name(const struct top *top, const struct row *row,
                             char text[FULL_NAME_BYTES])
{
    if (top->mount_count > 1)
        snprintf(text, FULL_NAME_BYTES, "%s/%s", top->mounts[row->mount].label, row->name);
    else
        snprintf(text, FULL_NAME_BYTES, "%s", row->name);
    return text;
}

const char *rows_format_age(uint64_t ms, char text[AGE_BYTES])
{
    static const struct {
        uint64_t seconds;
        const char *unit;
    } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    uint64_t seconds = ms / 1000;
    size_t i = 0;

    while (units[i].seconds > 1 && seconds < units[i].seconds)
        i++;
    snprintf(text, AGE_BYTES, "%" PRIu64 " %s", seconds / units[i].seconds, units[i].unit);
    return text;
}
