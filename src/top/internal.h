/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal - the parts of top
 *
 * For src/top. look.c reads looks, facts.c has the mounts and their stores, rows.c the table's
 * order and filter, keys.c the keys, draw*.c the screen. Pure.
 */
#ifndef GMSFS_TOP_INTERNAL_H
#define GMSFS_TOP_INTERNAL_H

#include "base/json_get.h"
#include "base/size.h"
#include "top/top.h"

#define LABEL_BYTES   64
#define STATE_BYTES   64
#define PLACE_BYTES   48
#define FILTER_BYTES  64
#define MESSAGE_BYTES 512
#define SESSION_BYTES 24
#define NAME_BYTES    256 /* of a store, with NUL */
#define MAX_EVENTS    64u

#define FULL_NAME_BYTES (LABEL_BYTES + NAME_BYTES)

#define NEVER UINT64_MAX /* idle time of a store that was never used */

struct mount_facts {
    char *path;
    char label[LABEL_BYTES]; /* last component of the path */
    json_t *look;            /* NULL: none yet */
    char *absent;
    uint64_t looked_ms; /* since 1970 */
    bool is_kept;       /* while the list is matched */
};

/* A store as a row. Its texts lie in the look, or in itself. */
struct row {
    size_t mount;
    const json_t *json, *sessions;
    const char *name, *pool;
    char state[STATE_BYTES], place[PLACE_BYTES];
    uint64_t bytes, idle_ms;
    uint64_t rate; /* bytes a second of its move; 0: none, or not known yet */
    unsigned holders, waiters;
};

struct event_line {
    char *text;
    bool is_bad;
};

enum pane {
    PANE_STORES,
    PANE_SESSIONS,
};

enum mode {
    MODE_MAIN,
    MODE_HELP,
    MODE_FILTER,   /* the filter is typed */
    MODE_QUESTION, /* `asked` is done after 'y' */
};

/* A question, and the texts of its order. */
struct question {
    struct top_order order;
    char mount[4096], store[NAME_BYTES], name[FULL_NAME_BYTES], session[SESSION_BYTES],
        text[MESSAGE_BYTES];
};

struct top {
    struct mount_facts *mounts;
    size_t mount_count, mount_room;

    struct row *rows; /* all stores */
    size_t row_count, row_room;
    struct row **shown; /* sorted and filtered; points into `rows` */
    size_t shown_count, shown_room;

    struct event_line events[MAX_EVENTS]; /* a ring */
    size_t event_count;                   /* that came so far */

    unsigned sort; /* number of a column */
    bool is_inverted;
    char filter[FILTER_BYTES];

    enum mode mode;
    enum pane pane;
    /* The chosen store by its name, as rows come and go; and the session. */
    char chosen_mount[4096], chosen_store[NAME_BYTES], chosen_session[SESSION_BYTES];
    size_t chosen, first;             /* row in `shown`; first on the screen */
    size_t chosen_row, first_session; /* the same among its sessions */
    size_t page;                      /* rows that fit */
    size_t help_first;                /* first line of the help on the screen */
    bool shows_pools;                 /* in the place of the table of stores */
    size_t first_pool;                /* first line of pools and moves on the screen */
    char message[MESSAGE_BYTES];
    bool message_is_error;
    struct question asked;
    struct screen screen;
};

/* ---- look.c ---- */
/* A look's device; NULL if the mount did not answer. */
const json_t *look_device(const struct mount_facts *mount);
/* Milliseconds since 1970 of "2026-11-28T19:33:49Z"; 0 if it is no such time. */
uint64_t look_parse_time(const char *text);

/* ---- rows.c ---- */
struct column {
    const char *title;
    unsigned width;                                           /* least one */
    bool is_number;                                           /* largest first, on the right */
    int (*compare)(const struct row *a, const struct row *b); /* NULL: by mount and name */
};

enum {
    COLUMN_NAME,
    COLUMN_STATE,
    COLUMN_BYTES,
    COLUMN_PLACE,
    COLUMN_HOLDERS,
    COLUMN_WAITERS,
    COLUMN_IDLE,
    COLUMN_POOL,
    COLUMNS,
};

extern const struct column table_columns[COLUMNS];

/* Sorts and filters all rows anew, and finds the chosen ones again. */
void rows_arrange(struct top *top);
/* Returns the chosen store and session; NULL: none. */
const struct row *rows_chosen(const struct top *top);
const json_t *rows_chosen_session(const struct top *top);
void rows_choose(struct top *top, size_t at);
void rows_choose_session(struct top *top, size_t at);

/* Formats "weights", or "gpu0/weights" where there are several mounts. */
const char *rows_format_name(const struct top *top, const struct row *row,
                             char text[FULL_NAME_BYTES]);
/* Formats a time as "12 s", "5 min", "3 h" or "2 d". */
#define AGE_BYTES 24
const char *rows_format_age(uint64_t ms, char text[AGE_BYTES]);

/* ---- draw_bars.c ---- */
/* Writes the bars of the mounts into at most `room` lines; returns how many. */
unsigned draw_bars(struct top *top, unsigned room);

/* ---- draw_pools.c ---- */
/* Writes pools and moves into `room` lines. */
void draw_pools(struct top *top, unsigned room);

/* ---- draw_panes.c ---- */
void draw_sessions(struct top *top, unsigned room, uint64_t now_ms);
void draw_events(struct top *top, unsigned room);

#endif
