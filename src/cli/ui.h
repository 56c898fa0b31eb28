/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ui - output of the commands: safe text, tables, bars
 *
 * For the commands of src/cli. Names of tensors, stores and processes come from strangers, so they
 * reach a terminal only through clean_text, a line or a table, and JSON only through ui_json_text.
 */
#ifndef GMSFS_CLI_UI_H
#define GMSFS_CLI_UI_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jansson.h>

#define UI_MAX_COLUMNS 12u

/* Prints one line, cleaned as a whole, and a newline. Without memory it cuts a long line. */
void ui_line(FILE *to, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns the columns of the terminal behind fd; 0 if it is none. */
unsigned ui_width(int fd);

/*
 * A usage bar "[####------]" of `width` characters altogether, NUL-terminated. It is full only when
 * part reaches whole, and empty only when part is 0. room: at least width + 1; width: 3 or more.
 */
void ui_bar(char *text, size_t room, unsigned width, uint64_t part, uint64_t whole);

/* part of whole in percent, rounded down; 0 of 0 is 0. */
unsigned ui_percent(uint64_t part, uint64_t whole);

/* Makes a string for JSON; bytes that are not UTF-8 become '?'. */
json_t *ui_json_text(const char *text);

/* Returns flags of json_dumps for stdout: on a terminal all but ASCII is escaped, which is the same
 * JSON. */
size_t ui_json_flags(void);

/* Appends the value to the array, and takes the reference. Ends the process if memory is short,
 * also if an argument is NULL. */
void ui_json_append(json_t *array, json_t *value);

/* Prints to stdout, indented, and frees the value. Ends the process if memory is short, also if
 * json is NULL; output_end() reports a write error. */
void ui_json_print(json_t *json);

/* Rows of text in aligned columns. Two spaces stand between columns; nothing after the last. */
struct ui_table {
    unsigned columns;
    size_t rows, room;
    char **cells;   /* rows * columns, row by row */
    unsigned right; /* bit i: column i is aligned to the right */
};

/* alignment: characters 'l' and 'r', one a column, as many as UI_MAX_COLUMNS. */
void ui_table_begin(struct ui_table *table, const char *alignment);

/* One row; as many texts as columns. They are copied. */
void ui_table_add(struct ui_table *table, const char *const *texts);

/* Prints with every line indented, and frees. */
void ui_table_end(struct ui_table *table, FILE *to, unsigned indent);

#endif
