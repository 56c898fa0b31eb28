/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hex - bytes as hex digits, and back
 *
 * Pure and header-only, so that the library can use it.
 */
#ifndef GMSFS_BASE_HEX_H
#define GMSFS_BASE_HEX_H

#include <stddef.h>
#include <stdint.h>

#define HEX_UUID_TEXT_BYTES 37u /* 8-4-4-4-12 */

/* Returns the value of a digit in either case; -1 if it is not a hex digit. */
static inline int hex_digit(char c)
{
    char lower = (char)(c | 0x20);

    if (c >= '0' && c <= '9')
        return c - '0';
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

/* Writes two digits per byte, and a NUL. */
static inline void hex_format(const uint8_t *bytes, size_t count, char *text)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < count; i++) {
        *text++ = digits[bytes[i] >> 4];
        *text++ = digits[bytes[i] & 15];
    }
    *text = '\0';
}

/* Parses the first 2 * count digits of the text; -1 if one is not a hex digit. */
static inline int hex_parse(const char *text, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int high = hex_digit(text[2 * i]), low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);

        if (low < 0)
            return -1;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return 0;
}

static inline void hex_format_uuid(const uint8_t uuid[16], char text[HEX_UUID_TEXT_BYTES])
{
    static const size_t parts[] = {4, 2, 2, 2, 6};

    for (size_t i = 0, at = 0; i < sizeof(parts) / sizeof(parts[0]); at += parts[i++]) {
        hex_format(uuid + at, parts[i], text);
        text += 2 * parts[i];
        *text++ = '-';
    }
    text[-1] = '\0';
}

#endif
