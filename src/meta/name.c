/* SPDX-License-Identifier: Apache-2.0 */
#include "name.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

/* The length of the well-formed sequence at `at` (Unicode 15, table 3-7), or 0. */
static size_t utf8_sequence(const uint8_t *at, size_t left)
{
    uint8_t lowest = 0x80, highest = 0xbf; /* of the second byte */
    size_t length;

    if (at[0] < 0x80)
        return 1;
    if (at[0] >= 0xc2 && at[0] <= 0xdf) {
        length = 2;
    } else if (at[0] >= 0xe0 && at[0] <= 0xef) {
        length = 3;
        if (at[0] == 0xe0)
            lowest = 0xa0; /* below: overlong */
        if (at[0] == 0xed)
            highest = 0x9f; /* above: surrogates */
    } else if (at[0] >= 0xf0 && at[0] <= 0xf4) {
        length = 4;
        if (at[0] == 0xf0)
            lowest = 0x90; /* below: overlong */
        if (at[0] == 0xf4)
            highest = 0x8f; /* above: beyond U+10FFFF */
    } else {
        return 0;
    }
    if (left < length || at[1] < lowest || at[1] > highest)
        return 0;
    for (size_t i = 2; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    }
    return length;
}

bool name_is_utf8(const void *text, size_t bytes)
{
    const uint8_t *at = text;
    size_t left = bytes;

    while (left > 0) {
        size_t length = utf8_sequence(at, left);
        if (length == 0)
            return false;
        at += length;
        left -= length;
    }
    return true;
}

/* How a byte at this place of a key is written, or NULL if as it is. */
static const char *escape_of(char byte, size_t index)
{
    switch (byte) {
    case '%':
        return "%25";
    case '/':
        return "%2F";
    case '\0':
        return "%00";
    case '.':
        return index == 0 ? "%2E" : NULL;
    default:
        return NULL;
    }
}

int name_encode_key(const void *key, size_t key_bytes, char name[NAME_MAX_BYTES + 1])
{
    const char *from = key;
    size_t length = 0;

    if (key_bytes == 0)
        return -EINVAL;
    if (key_bytes > NAME_MAX_BYTES)
        return -ENAMETOOLONG;
    if (!name_is_utf8(key, key_bytes))
        return -EINVAL;
    for (size_t i = 0; i < key_bytes; i++) {
        const char *escape = escape_of(from[i], i);
        size_t width = escape ? 3 : 1;
        if (length + width > NAME_MAX_BYTES)
            return -ENAMETOOLONG;
        memcpy(name + length, escape ? escape : &from[i], width);
        length += width;
    }
    name[length] = '\0';
    return (int)length;
}

#define BLOCK_BYTES 16u /* as many as compilers look at in one go */

/* Notes where a byte is not ASCII, or is escaped wherever it stands. */
static void mark_odd(uint8_t odd[BLOCK_BYTES], const char *text)
{
    uint8_t block[BLOCK_BYTES];

    memcpy(block, text, sizeof block);
    for (size_t i = 0; i < BLOCK_BYTES; i++)
        odd[i] |=
            (uint8_t)((block[i] >= 0x80) | (block[i] == '%') | (block[i] == '/') | (block[i] == 0));
}

/* Of a text of a block at least. */
static bool is_plain(const char *text, size_t bytes)
{
    static const uint8_t none[BLOCK_BYTES];
    uint8_t odd[BLOCK_BYTES] = {0};

    for (size_t at = 0; at < bytes - BLOCK_BYTES; at += BLOCK_BYTES)
        mark_odd(odd, text + at);
    mark_odd(odd, text + bytes - BLOCK_BYTES); /* some of them once more */
    return memcmp(odd, none, sizeof odd) == 0;
}

int name_check_key(const void *key, size_t key_bytes)
{
    char name[NAME_MAX_BYTES + 1];
    const char *text = key;
    int length;

    if (key_bytes >= BLOCK_BYTES && key_bytes <= NAME_MAX_BYTES && text[0] != '.' &&
        is_plain(text, key_bytes))
        return 0;
    length = name_encode_key(key, key_bytes, name);
    return length < 0 ? length : 0;
}

/* The byte that an escape at this place of a key stands for, or -EINVAL. */
static int unescape(const char *escape, size_t index)
{
    static const char escaped[] = {'%', '/', '\0', '.'};

    for (size_t i = 0; i < sizeof escaped; i++) {
        const char *spelling = escape_of(escaped[i], index);
        if (spelling && strncmp(escape, spelling, 3) == 0)
            return escaped[i];
    }
    return -EINVAL;
}

int name_decode_key(const char *name, char key[NAME_MAX_BYTES + 1])
{
    size_t name_bytes = strnlen(name, NAME_MAX_BYTES + 1);
    size_t length = 0;

    if (name_bytes == 0)
        return -EINVAL;
    if (name_bytes > NAME_MAX_BYTES)
        return -ENAMETOOLONG;
    for (size_t i = 0; i < name_bytes; i++) {
        int byte = (unsigned char)name[i];
        if (byte == '%') {
            byte = unescape(name + i, length);
            if (byte < 0)
                return byte;
            i += 2;
        } else if (escape_of(name[i], length)) {
            return -EINVAL;
        }
        key[length++] = (char)byte;
    }
    if (!name_is_utf8(key, length))
        return -EINVAL;
    key[length] = '\0';
    return (int)length;
}
