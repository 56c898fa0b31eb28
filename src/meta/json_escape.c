/* SPDX-License-Identifier: Apache-2.0 */
#include "meta/json_escape.h"

#include "base/clean.h"

#include <stdbool.h>
#include <string.h>

/* True if the text needs no escapes. */
static bool is_plain(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < ' ' || c >= 0x80 || c == '"' || c == '\\')
            return false;
    }
    return true;
}

/* Writes one escaped byte; returns the length. */
static size_t escape_byte(unsigned char c, char out[JSON_ESCAPE_MAX_BYTES])
{
    static const char plain[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt",
                      hex[] = "0123456789ABCDEF";
    const char *at = c ? strchr(plain, c) : NULL;

    if (at) {
        memcpy(out, (char[]){'\\', letters[at - plain]}, 2);
        return 2;
    }
    if (c < ' ') {
        memcpy(out, (char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6);
        return 6;
    }
    out[0] = (char)c;
    return 1;
}

size_t json_escape(const char *text, size_t bytes, char *out)
{
    char escaped[JSON_ESCAPE_MAX_BYTES];
    size_t size = 0;

    if (is_plain(text, bytes)) {
        if (out)
            memcpy(out, text, bytes);
        return bytes;
    }
    bool is_utf8 = clean_is_utf8(text, bytes);
    for (size_t i = 0; i < bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        size_t more = escape_byte(c >= 0x80 && !is_utf8 ? '?' : c, escaped);
        if (out)
            memcpy(out + size, escaped, more);
        size += more;
    }
    return size;
}
