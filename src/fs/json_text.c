/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/json_text.h"

#include "base/array.h"
#include "meta/json_escape.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_BYTES  2048u /* more than most texts need */
#define INDENT       2u
#define NUMBER_BYTES 20u /* of the largest number, in decimal */

/* Returns the place for this many more bytes. NULL: no memory. */
static char *reserve(struct json_text *json, size_t bytes)
{
    size_t wanted = json->size + bytes;

    if (wanted < FIRST_BYTES)
        wanted = FIRST_BYTES;
    if (!json->failed)
        json->failed = ARRAY_RESERVE(json->bytes, json->room, wanted) != 0;
    return json->failed ? NULL : json->bytes + json->size;
}

static void put(struct json_text *json, const char *bytes, size_t count)
{
    char *at = reserve(json, count);

    if (!at)
        return;
    memcpy(at, bytes, count);
    json->size += count;
}

static void put_line(struct json_text *json)
{
    char *at = reserve(json, 1 + INDENT * json->depth);

    if (!at)
        return;
    at[0] = '\n';
    memset(at + 1, ' ', INDENT * json->depth);
    json->size += 1 + INDENT * json->depth;
}

static void put_quoted(struct json_text *json, const char *text)
{
    size_t bytes = strlen(text);
    char *at = reserve(json, JSON_ESCAPE_MAX_BYTES * bytes + 2);

    if (!at)
        return;
    at[0] = '"';
    size_t written = json_escape(text, bytes, at + 1);
    at[1 + written] = '"';
    json->size += written + 2;
}

static void begin_item(struct json_text *json, const char *key)
{
    if (json->has_items)
        put(json, ",", 1);
    json->has_items = true;
    put_line(json);
    if (!key)
        return;
    put_quoted(json, key);
    put(json, ": ", 2);
}

static void open_item(struct json_text *json, char begin, char end)
{
    assert(json->depth < JSON_TEXT_DEPTH);
    put(json, &begin, 1);
    json->ends[json->depth++] = end;
    json->has_items = false;
}

void json_text_begin(struct json_text *json)
{
    *json = (struct json_text){0};
    open_item(json, '{', '}');
}

void json_text_number(struct json_text *json, const char *key, uint64_t value)
{
    char digits[NUMBER_BYTES];
    size_t at = sizeof digits;

    if (value > INT64_MAX)
        value = INT64_MAX;
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    begin_item(json, key);
    put(json, digits + at, sizeof digits - at);
}

void json_text_bool(struct json_text *json, const char *key, bool value)
{
    begin_item(json, key);
    put(json, value ? "true" : "false", value ? 4 : 5);
}

void json_text_string(struct json_text *json, const char *key, const char *text)
{
    begin_item(json, key);
    if (text)
        put_quoted(json, text);
    else
        put(json, "null", 4);
}

void json_text_object(struct json_text *json, const char *key)
{
    begin_item(json, key);
    open_item(json, '{', '}');
}

void json_text_list(struct json_text *json, const char *key)
{
    begin_item(json, key);
    open_item(json, '[', ']');
}

void json_text_close(struct json_text *json)
{
    assert(json->depth > 0);
    json->depth--;
    if (json->has_items)
        put_line(json);
    put(json, &json->ends[json->depth], 1);
    json->has_items = true;
}

int json_text_end(struct json_text *json, char **bytes, size_t *size)
{
    json_text_close(json);
    assert(json->depth == 0);
    put(json, "\n", 1);
    if (json->failed) {
        free(json->bytes);
        return -ENOMEM;
    }
    char *exact = realloc(json->bytes, json->size);
    if (exact)
        json->bytes = exact;
    *bytes = json->bytes;
    *size = json->size;
    return 0;
}
