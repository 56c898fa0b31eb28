/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ui.h"

#include "base/array.h"
#include "base/clean.h"
#include "base/scope.h"
#include "cli/cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LINE_BYTES 4096

void ui_line(FILE *to, const char *format, ...)
{
    char small[LINE_BYTES], *text = small;
    va_list arguments;

    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0) { /* no memory: as much as there is room for */
        va_start(arguments, format);
        vsnprintf(small, sizeof(small), format, arguments);
        va_end(arguments);
        text = small;
    }
    clean_text(text);
    fprintf(to, "%s\n", text);
    if (text != small)
        free(text);
}

unsigned ui_width(int fd)
{
    struct winsize size;

    if (!isatty(fd))
        return 0;
    if (ioctl(fd, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
        return 80;
    return size.ws_col;
}

/* part * by / whole without overflow; part is held to whole. */
static uint64_t ui_scale(uint64_t part, uint64_t whole, uint64_t by)
{
    if (whole == 0)
        return 0;
    if (part >= whole)
        return by;
    return (uint64_t)((unsigned __int128)part * by / whole);
}

void ui_bar(char *text, size_t room, unsigned width, uint64_t part, uint64_t whole)
{
    if (room == 0)
        return;
    text[0] = '\0';
    if (width < 3 || room < (size_t)width + 1)
        return;
    unsigned inner = width - 2;
    unsigned full = (unsigned)ui_scale(part, whole, inner);
    if (full == 0 && part > 0 && whole > 0)
        full = 1;
    text[0] = '[';
    memset(text + 1, '#', full);
    memset(text + 1 + full, '-', inner - full);
    text[width - 1] = ']';
    text[width] = '\0';
}

unsigned ui_percent(uint64_t part, uint64_t whole)
{
    return (unsigned)ui_scale(part, whole, 100);
}

json_t *ui_json_text(const char *text)
{
    json_t *json = json_string(text);
    SCOPED_FREE char *copy = NULL;

    if (json)
        return json;
    copy = cli_need(strdup(text));
    for (char *at = copy; *at; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    return cli_need(json_string(copy));
}

size_t ui_json_flags(void)
{
    return isatty(STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0;
}

void ui_json_append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) != 0)
        cli_out_of_memory();
}

void ui_json_print(json_t *json)
{
    if (json_dumpf(json, stdout, JSON_INDENT(2) | ui_json_flags()) != 0 && !ferror(stdout))
        cli_out_of_memory();
    json_decref(json);
    putchar('\n');
}

/* ---- tables -------------------------------------------------------------------------------- */

void ui_table_begin(struct ui_table *table, const char *alignment)
{
    memset(table, 0, sizeof(*table));
    for (; alignment[table->columns] && table->columns < UI_MAX_COLUMNS; table->columns++)
        if (alignment[table->columns] == 'r')
            table->right |= 1u << table->columns;
}

void ui_table_add(struct ui_table *table, const char *const *texts)
{
    if (ARRAY_RESERVE(table->cells, table->room, (table->rows + 1) * table->columns) != 0)
        cli_out_of_memory();
    char **row = table->cells + table->rows * table->columns;
    for (unsigned i = 0; i < table->columns; i++) {
        row[i] = cli_need(strdup(texts[i] ? texts[i] : ""));
        clean_text(row[i]);
    }
    table->rows++;
}

/* Characters, not bytes; good enough for text without combining or wide ones. */
static size_t ui_length(const char *text)
{
    size_t length = 0;

    for (; *text; text++)
        length += ((unsigned char)*text & 0xc0) != 0x80;
    return length;
}

static void ui_table_widths(const struct ui_table *table, size_t widths[UI_MAX_COLUMNS])
{
    memset(widths, 0, UI_MAX_COLUMNS * sizeof(*widths));
    for (size_t i = 0; i < table->rows * table->columns; i++) {
        size_t length = ui_length(table->cells[i]);
        if (length > widths[i % table->columns])
            widths[i % table->columns] = length;
    }
}

static void ui_spaces(FILE *to, size_t count)
{
    fprintf(to, "%*s", (int)count, "");
}

void ui_table_end(struct ui_table *table, FILE *to, unsigned indent)
{
    size_t widths[UI_MAX_COLUMNS];

    ui_table_widths(table, widths);
    for (size_t row = 0; row < table->rows; row++) {
        ui_spaces(to, indent);
        for (unsigned i = 0; i < table->columns; i++) {
            const char *cell = table->cells[row * table->columns + i];
            size_t gap = widths[i] - ui_length(cell);
            if (table->right & 1u << i)
                ui_spaces(to, gap);
            fputs(cell, to);
            if (i + 1 == table->columns)
                break;
            if (!(table->right & 1u << i))
                ui_spaces(to, gap);
            fputs("  ", to);
        }
        fputc('\n', to);
    }
    for (size_t i = 0; i < table->rows * table->columns; i++)
        free(table->cells[i]);
    free(table->cells);
    memset(table, 0, sizeof(*table));
}
