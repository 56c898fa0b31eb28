/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/wire_text.h"

#include "base/array.h"
#include "base/clean.h"
#include "base/hex.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct wire_text wire_text_of(const char *text)
{
    return (struct wire_text){text, text ? strlen(text) : 0};
}

bool wire_text_is_same(struct wire_text text, struct wire_text other)
{
    return text.bytes == other.bytes &&
           (text.bytes == 0 || memcmp(text.at, other.at, text.bytes) == 0);
}

bool wire_text_is(struct wire_text text, const char *other)
{
    return wire_text_is_same(text, wire_text_of(other));
}

bool wire_text_is_header(struct wire_text text, const char *other)
{
    return text.bytes == strlen(other) && strncasecmp(text.at, other, text.bytes) == 0;
}

bool wire_text_cut_front(struct wire_text *text, const char *front)
{
    size_t bytes = strlen(front);

    if (text->bytes < bytes || memcmp(text->at, front, bytes) != 0)
        return false;
    text->at += bytes;
    text->bytes -= bytes;
    return true;
}

bool wire_text_cut_back(struct wire_text *text, const char *back)
{
    size_t bytes = strlen(back);

    if (text->bytes < bytes || memcmp(text->at + text->bytes - bytes, back, bytes) != 0)
        return false;
    text->bytes -= bytes;
    return true;
}

bool wire_text_is_utf8(struct wire_text text)
{
    return clean_is_utf8(text.at, text.bytes);
}

int wire_text_number(struct wire_text text, uint64_t *number)
{
    uint64_t value = 0;

    if (text.bytes == 0)
        return -EINVAL;
    for (size_t i = 0; i < text.bytes; i++) {
        if (text.at[i] < '0' || text.at[i] > '9')
            return -EINVAL;
    }
    for (size_t i = 0; i < text.bytes; i++) {
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(text.at[i] - '0'), &value))
            return -ERANGE;
    }
    *number = value;
    return 0;
}

int wire_unquote(char *text, size_t *bytes)
{
    size_t to = 0;

    for (size_t from = 0; from < *bytes; from++, to++) {
        text[to] = text[from];
        if (text[from] != '%')
            continue;
        uint8_t byte;
        if (*bytes - from < 3 || hex_parse(text + from + 1, &byte, 1) < 0)
            return -EINVAL;
        text[to] = (char)byte;
        from += 2;
    }
    *bytes = to;
    return 0;
}

/* Returns room for `bytes` more, which the caller fills and adds to `size`. NULL: the buffer has
 * failed. */
static uint8_t *wire_reserve(struct wire_buffer *buffer, size_t bytes)
{
    if (buffer->has_failed || bytes > buffer->limit_bytes - buffer->size) {
        buffer->has_failed = true;
        return NULL;
    }
    if (ARRAY_RESERVE(buffer->bytes, buffer->room, buffer->size + bytes) != 0) {
        buffer->has_failed = true;
        return NULL;
    }
    return buffer->bytes ? buffer->bytes + buffer->size : NULL;
}

void wire_put(struct wire_buffer *buffer, const void *bytes, size_t size)
{
    if (size == 0)
        return;
    uint8_t *to = wire_reserve(buffer, size);
    if (to) {
        memcpy(to, bytes, size);
        buffer->size += size;
    }
}

void wire_put_text(struct wire_buffer *buffer, struct wire_text text)
{
    wire_put(buffer, text.at, text.bytes);
}

void wire_print(struct wire_buffer *buffer, const char *format, ...)
{
    va_list arguments, again;

    va_start(arguments, format);
    va_copy(again, arguments);
    int bytes = vsnprintf(NULL, 0, format, arguments);
    uint8_t *to = wire_reserve(buffer, (size_t)bytes + 1);
    if (to) {
        vsnprintf((char *)to, (size_t)bytes + 1, format, again);
        buffer->size += (size_t)bytes;
    }
    va_end(again);
    va_end(arguments);
}

void wire_put_quoted(struct wire_buffer *buffer, struct wire_text text)
{
    for (size_t i = 0; i < text.bytes; i++) {
        uint8_t byte = (uint8_t)text.at[i];
        if (byte < ' ' || byte > '~' || byte == '%')
            wire_print(buffer, "%%%02X", byte);
        else
            wire_put(buffer, &byte, 1);
    }
}

void wire_buffer_free(struct wire_buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct wire_buffer){.limit_bytes = buffer->limit_bytes};
}

static int base64_value(char digit)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = digit ? strchr(digits, digit) : NULL;

    return at ? (int)(at - digits) : -1;
}

/* Decodes four digits; returns 0 if they are invalid. Padding is allowed at the very end alone. */
static size_t base64_group(const char *group, bool is_last, uint8_t bytes[3])
{
    size_t count = group[3] != '=' ? 3 : group[2] != '=' ? 2 : 1;
    uint32_t bits = 0;

    if (count < 3 && !is_last)
        return 0;
    for (size_t i = 0; i < 4; i++) {
        int value = i <= count ? base64_value(group[i]) : 0;
        if (value < 0)
            return 0;
        bits = bits << 6 | (uint32_t)value;
    }
    if (bits & (0xffffffu >> 8 * count) & 0xffffffu) /* bits that belong to no byte */
        return 0;
    for (size_t i = 0; i < 3; i++)
        bytes[i] = (uint8_t)(bits >> (16 - 8 * i));
    return count;
}

int wire_base64_decode(struct wire_text text, uint8_t *bytes, size_t room, size_t *size)
{
    size_t put = 0;

    if (text.bytes % 4 != 0)
        return -EINVAL;
    for (size_t from = 0; from < text.bytes; from += 4) {
        uint8_t group[3];
        size_t count = base64_group(text.at + from, from + 4 == text.bytes, group);
        if (count == 0)
            return -EINVAL;
        if (count > room - put)
            return -EMSGSIZE;
        memcpy(bytes + put, group, count);
        put += count;
    }
    *size = put;
    return 0;
}
