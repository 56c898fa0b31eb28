/* SPDX-License-Identifier: Apache-2.0 */
#include "top/screen.h"

#include "base/array.h"
#include "base/clean.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#define TEXT_BYTES 1024 /* of one text: names have 255 bytes at most */

void screen_begin(struct screen *screen, unsigned rows, unsigned columns)
{
    size_t known = screen->row_room;

    screen->failed = ARRAY_RESERVE(screen->lines, screen->row_room, rows) != 0;
    for (size_t i = known; i < screen->row_room; i++)
        screen->lines[i] = (struct line){0};
    screen->rows = screen->failed ? 0 : rows;
    screen->columns = columns;
    screen->at = 0;
    screen->cursor_row = -1;
    for (unsigned i = 0; i < screen->rows; i++) {
        struct line *line = &screen->lines[i];

        line->used = 0;
        line->width = line->span_count = 0;
        if (ARRAY_RESERVE(line->text, line->room, 1) == 0)
            line->text[0] = '\0';
        else
            screen->failed = true;
    }
}

void screen_free(struct screen *screen)
{
    for (size_t i = 0; i < screen->row_room; i++)
        free(screen->lines[i].text);
    free(screen->lines);
    *screen = (struct screen){0};
}

/* ---- characters ---------------------------------------------------------------------------- */

struct character {
    char bytes[5];
    size_t count;   /* of its bytes */
    unsigned width; /* columns */
};

/* Reads the character at *text, and goes behind it. A character that a terminal would obey, or
 * whose width is not known, becomes '?'. */
static struct character read_character(const char **text)
{
    struct character read = {.count = 1, .width = 1};
    uint32_t code = 0;
    size_t bytes = clean_decode((const unsigned char *)*text, strlen(*text), &code);
    int width = bytes ? wcwidth((wchar_t)code) : -1;

    memcpy(read.bytes, *text, bytes);
    clean_text(read.bytes);
    if (width < 0 || read.bytes[0] == '?') {
        strcpy(read.bytes, "?");
    } else {
        read.count = bytes;
        read.width = (unsigned)width;
    }
    *text += bytes ? bytes : 1;
    return read;
}

unsigned screen_width(const char *text)
{
    unsigned width = 0;

    while (*text)
        width += read_character(&text).width;
    return width;
}

size_t screen_break(const char *text, unsigned width)
{
    const char *at = text, *blank = NULL, *next = text;
    unsigned used = 0;

    while (*at) {
        if (*at == ' ')
            blank = at + 1;
        used += read_character(&next).width;
        if (used > width)
            break;
        at = next;
    }
    if (*at && blank)
        at = blank;
    return at > text ? (size_t)(at - text) : strlen(text);
}

unsigned screen_count_lines(const char *text, unsigned width)
{
    unsigned lines = 1;

    for (text += screen_break(text, width); *text; text += screen_break(text, width))
        lines++;
    return lines;
}

/* ---- lines --------------------------------------------------------------------------------- */

static struct line *get_line(struct screen *screen)
{
    return screen->at < screen->rows && !screen->failed ? &screen->lines[screen->at] : NULL;
}

static void begin_span(struct line *line, enum style style)
{
    bool goes_on = line->span_count == SCREEN_MAX_SPANS ||
                   (line->span_count > 0 && line->spans[line->span_count - 1].style == style);

    if (!goes_on)
        line->spans[line->span_count++] = (struct span){style, line->used};
}

/* Appends at most `width` columns of a text. */
static void append(struct screen *screen, enum style style, const char *text, unsigned width)
{
    struct line *line = get_line(screen);

    if (!line || !*text)
        return;
    if (width > screen->columns - line->width)
        width = screen->columns - line->width;
    begin_span(line, style);
    while (*text) {
        struct character next = read_character(&text);
        if (next.width > width)
            break;
        if (ARRAY_RESERVE(line->text, line->room, line->used + next.count + 1) != 0) {
            screen->failed = true;
            return;
        }
        memcpy(line->text + line->used, next.bytes, next.count);
        line->used += next.count;
        line->text[line->used] = '\0';
        line->width += next.width;
        width -= next.width;
    }
}

void screen_put(struct screen *screen, enum style style, const char *text)
{
    append(screen, style, text, screen->columns);
}

void screen_print(struct screen *screen, enum style style, const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    screen_put(screen, style, text);
}

void screen_repeat(struct screen *screen, enum style style, char character, unsigned times)
{
    const char text[] = {character, '\0'};

    for (unsigned i = 0; i < times && i < screen->columns; i++)
        screen_put(screen, style, text);
}

void screen_field(struct screen *screen, enum style style, const char *text, unsigned width,
                  bool to_right)
{
    struct line *line = get_line(screen);
    unsigned length = screen_width(text), begin;

    if (!line || width == 0)
        return;
    if (to_right && length < width)
        screen_repeat(screen, style, ' ', width - length);
    begin = line->width;
    if (length <= width) {
        append(screen, style, text, width);
    } else {
        append(screen, style, text, width - 1);
        screen_put(screen, style, "~");
    }
    if (!to_right || length > width)
        screen_fill(screen, style, begin + width);
}

void screen_fill(struct screen *screen, enum style style, unsigned column)
{
    const struct line *line = get_line(screen);

    if (line && line->width < column)
        screen_repeat(screen, style, ' ', column - line->width);
}

void screen_next(struct screen *screen)
{
    screen->at++;
}

void screen_go(struct screen *screen, unsigned row)
{
    screen->at = row;
}

void screen_wrap(struct screen *screen, enum style style, const char *text, unsigned lines)
{
    const struct line *line = get_line(screen);
    unsigned column = line ? line->width : 0;
    char piece[TEXT_BYTES];

    for (; lines > 0; lines--) {
        size_t bytes = lines > 1 ? screen_break(text, screen->columns - column) : strlen(text);
        screen_fill(screen, style, column);
        snprintf(piece, sizeof(piece), "%.*s", (int)bytes, text);
        screen_put(screen, style, piece);
        screen_next(screen);
        text += bytes;
    }
}
