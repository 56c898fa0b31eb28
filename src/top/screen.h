/* SPDX-License-Identifier: Apache-2.0 */
/*
 * screen - lines of text with styles, no wider than a terminal
 *
 * For src/top, and for the drawing of src/cli. Pure. Text from strangers is made harmless here, and
 * measured by wcwidth(3).
 */
#ifndef GMSFS_TOP_SCREEN_H
#define GMSFS_TOP_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

#define SCREEN_MAX_SPANS 48u

enum style {
    STYLE_PLAIN,
    STYLE_TITLE, /* reversed */
    STYLE_CHOSEN,
    STYLE_STRONG,
    STYLE_GOOD,
    STYLE_WARNING,
    STYLE_BAD,
    STYLE_USED, /* parts of bars */
    STYLE_RESERVED,
    STYLE_FREEING,
    STYLE_MAPPED,
    STYLE_OTHERS,
    STYLES,
};

struct span {
    enum style style;
    size_t from; /* byte of the text; ends where the next one begins */
};

struct line {
    char *text; /* UTF-8, no control characters */
    size_t used, room;
    unsigned width; /* columns */
    struct span spans[SCREEN_MAX_SPANS];
    unsigned span_count;
};

struct screen {
    struct line *lines;
    unsigned rows, columns;
    size_t row_room;
    unsigned at;    /* line that is written */
    int cursor_row; /* -1: no cursor */
    unsigned cursor_column;
    bool failed; /* out of memory */
};

/* Begins an empty screen; reuses memory. */
void screen_begin(struct screen *screen, unsigned rows, unsigned columns);
void screen_free(struct screen *screen);

/* Appends text to the present line, cut at the end of the screen. */
void screen_put(struct screen *screen, enum style style, const char *text);
void screen_print(struct screen *screen, enum style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Appends a field of exactly `width` columns: text that is longer is cut, with '~' at its end. */
void screen_field(struct screen *screen, enum style style, const char *text, unsigned width,
                  bool to_right);
/* Appends a character so often. */
void screen_repeat(struct screen *screen, enum style style, char character, unsigned times);
/* Fills the line up to a column with blanks. */
void screen_fill(struct screen *screen, enum style style, unsigned column);
/* Goes to the next line; beyond the last one nothing is written. */
void screen_next(struct screen *screen);
void screen_go(struct screen *screen, unsigned row);

/* Returns the columns of a text. */
unsigned screen_width(const char *text);

/* Returns how many bytes of a text go on a line of that width, which is broken behind a blank where
 * it has one; all that is left, if it fits. */
size_t screen_break(const char *text, unsigned width);
/* Returns the lines that a text takes so. */
unsigned screen_count_lines(const char *text, unsigned width);
/* Writes a text on lines that begin at the present column; at most `lines` of them, and goes behind
 * the last one. */
void screen_wrap(struct screen *screen, enum style style, const char *text, unsigned lines);

#endif
