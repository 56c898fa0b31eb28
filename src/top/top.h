/* SPDX-License-Identifier: Apache-2.0 */
/*
 * top - the screen of `gmsfs top` as text, and its keys
 *
 * For src/cli. Pure: the caller brings looks at mounts (cli/mount_look.h), events, keys and the
 * time, draws the screen, and carries out orders. Widths are those of wcwidth(3), so the caller
 * sets LC_CTYPE first. Out of memory, the table is empty until the next look. For one thread.
 */
#ifndef GMSFS_TOP_TOP_H
#define GMSFS_TOP_TOP_H

#include "top/screen.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define TOP_LEAST_ROWS    10u
#define TOP_LEAST_COLUMNS 40u

struct top;

/* NULL: out of memory. */
struct top *top_new(void);
void top_free(struct top *top);

/* Sets the mounts that are shown, in this order; looks and events of the mounts that stay are kept.
 * 0 or -ENOMEM, with the mounts as they were. */
int top_set_mounts(struct top *top, const char *const *paths, size_t count);

/* Takes a look at mount number `mount`, and frees it once the next one comes. absent: text about a
 * mount without a device, or about stores that cannot be listed; NULL if none. now_ms: since 1970
 */
void top_take_look(struct top *top, size_t mount, json_t *look, const char *absent,
                   uint64_t now_ms);

/* Takes a line of the file `events`; a line that is no event is dropped. */
void top_take_event(struct top *top, size_t mount, const char *line, size_t bytes);

/* Shows a message instead of the line of keys until the next key. */
void top_set_message(struct top *top, const char *text, bool is_error);

/* Makes the screen of that size; valid until the next call. NULL: out of memory. */
const struct screen *top_draw(struct top *top, unsigned rows, unsigned columns, uint64_t now_ms);

/* ---- keys ---------------------------------------------------------------------------------- */

/* Keys beyond bytes of UTF-8. */
enum top_key {
    TOP_ESCAPE = 0x1b,
    TOP_UP = 0x100,
    TOP_DOWN,
    TOP_PAGE_UP,
    TOP_PAGE_DOWN,
    TOP_HOME,
    TOP_END,
    TOP_ENTER,
    TOP_TAB,
    TOP_BACKSPACE,
    TOP_F1, /* and the others behind it */
    TOP_F12 = TOP_F1 + 11,
    TOP_OTHER, /* a key without a meaning here */
};

/* A row of the table of keys, for help and manual. */
struct top_help {
    const char *keys, *text;
};

/* Returns the rows; the last has no keys. */
const struct top_help *top_get_help(void);

enum top_deed {
    TOP_NOTHING,
    TOP_QUIT,
    TOP_REDRAW,
    TOP_REVOKE,
    TOP_PROMOTE,
    TOP_DEMOTE,
    TOP_DRAIN,   /* then demote to `place`, if there is one */
    TOP_UNDRAIN, /* ends another drain */
};

/* A deed that the user has agreed to. The texts are valid until the next call of this module. */
struct top_order {
    enum top_deed deed;
    const char *mount, *store; /* path, name */
    const char *session;       /* number of the session or waiter to revoke */
    const char *place;         /* to demote to: host or disk; NULL: none */
};

/* Carries out a key, and returns a deed for the caller. */
struct top_order top_press(struct top *top, unsigned key);

#endif
