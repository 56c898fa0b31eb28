/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/wire_json.h"

#include "base/hex.h"

#include <errno.h>
#include <string.h>

/* Tokens that may come next. */
enum {
    WANT_VALUE = 1 << 0,
    WANT_KEY = 1 << 1,
    WANT_COMMA = 1 << 2,
    WANT_CLOSE = 1 << 3,
    WANT_END = 1 << 4,
    WANT_NOTHING = 0, /* after an error */
};

void wire_json_begin(struct wire_json *json, char *bytes, size_t size)
{
    *json = (struct wire_json){.bytes = bytes, .size = size, .wanted = WANT_VALUE};
}

static enum wire_json_token fail(struct wire_json *json, const char *error)
{
    json->wanted = WANT_NOTHING;
    json->error = error;
    return WIRE_JSON_ERROR;
}

static void skip_space(struct wire_json *json)
{
    while (json->offset < json->size && json->bytes[json->offset] != '\0' &&
           strchr(" \t\r\n", json->bytes[json->offset]))
        json->offset++;
}

static bool take(struct wire_json *json, char byte)
{
    if (json->offset == json->size || json->bytes[json->offset] != byte)
        return false;
    json->offset++;
    return true;
}

static bool is_in_array(const struct wire_json *json)
{
    return json->arrays >> (json->depth - 1) & 1;
}

/* Sets the tokens that may follow a complete value. */
static void value_ended(struct wire_json *json)
{
    json->wanted = json->depth == 0 ? WANT_END : WANT_COMMA | WANT_CLOSE;
}

static enum wire_json_token open_value(struct wire_json *json, bool is_array)
{
    if (json->depth == WIRE_JSON_MAX_DEPTH)
        return fail(json, "it is nested too deeply");
    json->arrays &= ~(1u << json->depth);
    json->arrays |= (uint32_t)is_array << json->depth;
    json->depth++;
    json->wanted = WANT_CLOSE | (is_array ? WANT_VALUE : WANT_KEY);
    return is_array ? WIRE_JSON_ARRAY : WIRE_JSON_OBJECT;
}

static enum wire_json_token close_value(struct wire_json *json, bool is_array)
{
    if (!(json->wanted & WANT_CLOSE) || is_in_array(json) != is_array)
        return fail(json, "a bracket closes nothing");
    json->depth--;
    value_ended(json);
    return is_array ? WIRE_JSON_ARRAY_END : WIRE_JSON_OBJECT_END;
}

/* Takes four hex digits. -1: invalid. */
static int32_t take_unit(struct wire_json *json)
{
    int32_t unit = 0;

    if (json->size - json->offset < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int value = hex_digit((char)json->bytes[json->offset + (size_t)i]);
        if (value < 0)
            return -1;
        unit = unit << 4 | value;
    }
    json->offset += 4;
    return unit;
}

/* Writes no more bytes than the escape had. */
static size_t put_utf8(char *to, uint32_t point)
{
    if (point < 0x80) {
        to[0] = (char)point;
        return 1;
    }
    if (point < 0x800) {
        to[0] = (char)(0xc0 | point >> 6);
        to[1] = (char)(0x80 | (point & 0x3f));
        return 2;
    }
    if (point < 0x10000) {
        to[0] = (char)(0xe0 | point >> 12);
        to[1] = (char)(0x80 | (point >> 6 & 0x3f));
        to[2] = (char)(0x80 | (point & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | point >> 18);
    to[1] = (char)(0x80 | (point >> 12 & 0x3f));
    to[2] = (char)(0x80 | (point >> 6 & 0x3f));
    to[3] = (char)(0x80 | (point & 0x3f));
    return 4;
}

/* Takes the digits after "\u". 0: not a character. */
static size_t take_point(struct wire_json *json, char *to)
{
    int32_t unit = take_unit(json), low;

    if (unit < 0 || (unit >= 0xdc00 && unit <= 0xdfff))
        return 0;
    if (unit < 0xd800 || unit > 0xdbff)
        return put_utf8(to, (uint32_t)unit);
    if (!take(json, '\\') || !take(json, 'u'))
        return 0;
    low = take_unit(json);
    if (low < 0xdc00 || low > 0xdfff)
        return 0;
    return put_utf8(to, 0x10000 + ((uint32_t)(unit - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
}

/* Takes the rest of an escape after its backslash. 0: invalid. */
static size_t take_escape(struct wire_json *json, char *to)
{
    static const char escapes[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";

    if (json->offset == json->size)
        return 0;
    char letter = json->bytes[json->offset++];
    if (letter == 'u')
        return take_point(json, to);
    const char *at = letter ? strchr(escapes, letter) : NULL;
    if (!at)
        return 0;
    *to = meant[at - escapes];
    return 1;
}

/* Takes the rest of a string after its first quote, and unescapes it in place. */
static bool take_string(struct wire_json *json)
{
    size_t begin = json->offset, to = begin;

    for (;;) {
        if (json->offset == json->size)
            return fail(json, "a string does not end"), false;
        char byte = json->bytes[json->offset++];
        if (byte == '"')
            break;
        if ((uint8_t)byte < ' ')
            return fail(json, "a control character is in a string"), false;
        if (byte != '\\') {
            json->bytes[to++] = byte;
            continue;
        }
        size_t put = take_escape(json, json->bytes + to);
        if (put == 0)
            return fail(json, "a string has an escape that is none"), false;
        to += put;
    }
    json->text = (struct wire_text){json->bytes + begin, to - begin};
    if (!wire_text_is_utf8(json->text))
        return fail(json, "a string is not UTF-8"), false;
    return true;
}

static size_t take_digits(struct wire_json *json)
{
    size_t begin = json->offset;

    while (json->offset < json->size && json->bytes[json->offset] >= '0' &&
           json->bytes[json->offset] <= '9')
        json->offset++;
    return json->offset - begin;
}

static enum wire_json_token take_number(struct wire_json *json)
{
    size_t begin = json->offset;

    take(json, '-');
    bool good = take(json, '0') || take_digits(json) > 0;
    if (good && take(json, '.'))
        good = take_digits(json) > 0;
    if (good && (take(json, 'e') || take(json, 'E'))) {
        if (!take(json, '+'))
            take(json, '-');
        good = take_digits(json) > 0;
    }
    if (!good)
        return fail(json, "a value is expected");
    json->text = (struct wire_text){json->bytes + begin, json->offset - begin};
    value_ended(json);
    return WIRE_JSON_NUMBER;
}

static enum wire_json_token take_word(struct wire_json *json)
{
    static const struct {
        const char *word;
        enum wire_json_token token;
    } words[] = {{"true", WIRE_JSON_TRUE}, {"false", WIRE_JSON_FALSE}, {"null", WIRE_JSON_NULL}};
    struct wire_text rest = {json->bytes + json->offset, json->size - json->offset};

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!wire_text_cut_front(&rest, words[i].word))
            continue;
        json->offset = json->size - rest.bytes;
        value_ended(json);
        return words[i].token;
    }
    return take_number(json);
}

static enum wire_json_token take_value(struct wire_json *json)
{
    if (take(json, '{'))
        return open_value(json, false);
    if (take(json, '['))
        return open_value(json, true);
    if (!take(json, '"'))
        return take_word(json);
    if (!take_string(json))
        return WIRE_JSON_ERROR;
    value_ended(json);
    return WIRE_JSON_TEXT;
}

static enum wire_json_token take_key(struct wire_json *json)
{
    if (!take(json, '"'))
        return fail(json, "a key is expected");
    if (!take_string(json))
        return WIRE_JSON_ERROR;
    skip_space(json);
    if (!take(json, ':'))
        return fail(json, "a colon is expected");
    json->wanted = WANT_VALUE;
    return WIRE_JSON_KEY;
}

enum wire_json_token wire_json_next(struct wire_json *json)
{
    if (json->wanted == WANT_NOTHING)
        return WIRE_JSON_ERROR;
    skip_space(json);
    if (json->wanted == WANT_END)
        return json->offset == json->size ? WIRE_JSON_END : fail(json, "more follows its end");
    if (json->offset == json->size)
        return fail(json, json->depth == 0 ? "it is empty" : "it is cut off");
    if (json->wanted & WANT_CLOSE) {
        if (take(json, '}'))
            return close_value(json, false);
        if (take(json, ']'))
            return close_value(json, true);
    }
    if (json->wanted & WANT_COMMA) {
        if (!take(json, ','))
            return fail(json, "a comma is expected");
        json->wanted = is_in_array(json) ? WANT_VALUE : WANT_KEY;
        skip_space(json);
    }
    return json->wanted & WANT_KEY ? take_key(json) : take_value(json);
}

bool wire_json_skip(struct wire_json *json, enum wire_json_token token)
{
    unsigned depth = json->depth;

    if (token == WIRE_JSON_ERROR)
        return false;
    if (token != WIRE_JSON_OBJECT && token != WIRE_JSON_ARRAY)
        return true;
    while (json->depth >= depth) {
        if (wire_json_next(json) == WIRE_JSON_ERROR)
            return false;
    }
    return true;
}

int wire_json_uint64(const struct wire_json *json, uint64_t *number)
{
    return wire_text_number(json->text, number);
}

int wire_json_int64(const struct wire_json *json, int64_t *number)
{
    struct wire_text digits = json->text;
    bool is_negative = wire_text_cut_front(&digits, "-");
    uint64_t magnitude;
    int error = wire_text_number(digits, &magnitude);

    if (error)
        return error;
    if (magnitude > (uint64_t)INT64_MAX + is_negative)
        return -ERANGE;
    *number = is_negative ? (int64_t)-magnitude : (int64_t)magnitude;
    return 0;
}

/* Returns the size of the first character; 0: invalid UTF-8. */
static size_t character_bytes(struct wire_text text)
{
    for (size_t bytes = 1; bytes <= 4 && bytes <= text.bytes; bytes++) {
        if (wire_text_is_utf8((struct wire_text){text.at, bytes}))
            return bytes;
    }
    return 0;
}

void wire_json_put_text(struct wire_buffer *buffer, struct wire_text text)
{
    wire_put(buffer, "\"", 1);
    while (text.bytes > 0) {
        size_t bytes = character_bytes(text);
        if (bytes == 0)
            wire_print(buffer, "\xef\xbf\xbd");
        else if (*text.at == '"' || *text.at == '\\')
            wire_print(buffer, "\\%c", *text.at);
        else if ((uint8_t)*text.at < ' ' || *text.at == 0x7f)
            wire_print(buffer, "\\u%04x", (unsigned)(uint8_t)*text.at);
        else
            wire_put(buffer, text.at, bytes);
        bytes += bytes == 0;
        text.at += bytes;
        text.bytes -= bytes;
    }
    wire_put(buffer, "\"", 1);
}
