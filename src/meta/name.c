/* SPDX-License-Identifier: Apache-2.0 */
#include "name.h"

#include "base/clean.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

/* Returns the escape of a byte at this index of a key; NULL if it is written as it is. */
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
    if (!clean_is_utf8(key, key_bytes))
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

#define BLOCK_BYTES 16u

/* A vector of a common register size; compilers emulate it on processors without one. */
typedef uint8_t block __attribute__((vector_size(BLOCK_BYTES)));

/* Sets the bytes that are not ASCII, or are escaped at every index, to all ones. */
static inline block mark_odd(const char *text)
{
    block bytes;

    memcpy(&bytes, text, sizeof bytes);
    return (block)(bytes >= 0x80) | (block)(bytes == '%') | (block)(bytes == '/') |
           (block)(bytes == 0);
}

/* True if no byte needs an escape; the text has at least a block. */
static bool is_plain(const char *text, size_t bytes)
{
    block odd = mark_odd(text + bytes - BLOCK_BYTES); /* may overlap the last full block */
    uint64_t halves[BLOCK_BYTES / sizeof(uint64_t)];

    for (size_t at = 0; at < bytes - BLOCK_BYTES; at += BLOCK_BYTES)
        odd |= mark_odd(text + at);
    memcpy(halves, &odd, sizeof halves);
    return (halves[0] | halves[1]) == 0;
}

static int check_by_encoding(const void *key, size_t key_bytes)
{
    char name[NAME_MAX_BYTES + 1];
    int length = name_encode_key(key, key_bytes, name);

    return length < 0 ? length : 0;
}

int name_check_key(const void *key, size_t key_bytes)
{
    const char *text = key;

    if (key_bytes >= BLOCK_BYTES && key_bytes <= NAME_MAX_BYTES && text[0] != '.' &&
        is_plain(text, key_bytes))
        return 0;
    return check_by_encoding(key, key_bytes);
}

/* Returns the byte of an escape at this index of a key, or -EINVAL. */
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
    if (!clean_is_utf8(key, length))
        return -EINVAL;
    key[length] = '\0';
    return (int)length;
}

#define TEMPORARY_SUFFIX "XXXXXX" /* as in mkstemp(3) */

bool name_is_temporary(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    size_t suffix = strlen(TEMPORARY_SUFFIX), bytes = strnlen(name, NAME_MAX_BYTES + 1);
    char inner[NAME_MAX_BYTES + 1] = "", key[NAME_MAX_BYTES + 1];

    if (bytes > NAME_MAX_BYTES || bytes < suffix + 3 || name[0] != '.' ||
        name[bytes - suffix - 1] != '.' || strspn(name + bytes - suffix, allowed) != suffix)
        return false;
    memcpy(inner, name + 1, bytes - suffix - 2);
    return name_decode_key(inner, key) > 0;
}
