/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clean.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

size_t clean_decode(const unsigned char *at, size_t left, uint32_t *character)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = *at < 0x80 ? 1 : *at < 0xc2 ? 0 : *at < 0xe0 ? 2 : *at < 0xf0 ? 3 : 4;

    if (length == 0 || length > left || *at > 0xf4)
        return 0;
    *character = length == 1 ? *at : *at & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((at[i] & 0xc0) != 0x80)
            return 0;
        *character = *character << 6 | (at[i] & 0x3fu);
    }
    if (*character < least[length] || *character > 0x10ffff ||
        (*character >= 0xd800 && *character <= 0xdfff))
        return 0;
    return length;
}

static bool are_ascii(const uint8_t at[8])
{
    uint64_t bytes;

    memcpy(&bytes, at, sizeof bytes);
    return !(bytes & UINT64_C(0x8080808080808080));
}

bool clean_is_utf8(const void *text, size_t bytes)
{
    const uint8_t *at = text;
    size_t left = bytes;

    while (left > 0) {
        uint32_t character;
        size_t length = 1;

        if (left >= 8 && are_ascii(at))
            length = 8;
        else if (*at >= 0x80)
            length = clean_decode(at, left, &character);
        if (length == 0)
            return false;
        at += length;
        left -= length;
    }
    return true;
}

/* True for characters that a terminal obeys (C0 and C1), and for characters that change the
 * direction of text: marks, embeddings and isolates, and the ends of lines and paragraphs. */
static bool is_harmful(uint32_t character)
{
    static const struct {
        uint32_t first, last;
    } ranges[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0x061c, 0x061c},
                  {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x2069}};

    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++)
        if (character >= ranges[i].first && character <= ranges[i].last)
            return true;
    return false;
}

void clean_bytes(void *bytes, size_t size_bytes, const char *kept)
{
    unsigned char *at = bytes, *end = at + size_bytes;
    uint32_t character = 0;

    while (at < end) {
        size_t length = clean_decode(at, (size_t)(end - at), &character);
        bool is_kept = length == 1 && *at && strchr(kept, *at);
        if (length == 0 || (is_harmful(character) && !is_kept))
            memset(at, '?', length ? length : 1);
        at += length ? length : 1;
    }
}

void clean_text(char *text)
{
    clean_bytes(text, strlen(text), "");
}

const char *clean_quoted(char *to, size_t size_bytes, const char *name, size_t name_bytes)
{
    size_t bytes = strnlen(name, name_bytes < size_bytes ? name_bytes : size_bytes - 1);

    for (size_t i = 0; i < bytes; i++)
        to[i] = name[i] == '\'' ? '?' : name[i];
    to[bytes] = '\0';
    return to;
}
