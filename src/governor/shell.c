/* SPDX-License-Identifier: Apache-2.0 */
#include "governor/shell.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char PLAIN[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                            "_-./:,+@%=";
static const char QUOTE[] = "'\\''";

char *shell_quote(const char *word)
{
    size_t bytes = strlen(word);
    char *quoted, *to;

    if (bytes > 0 && strspn(word, PLAIN) == bytes)
        return strdup(word);
    to = quoted = malloc((sizeof(QUOTE) - 1) * bytes + 3);
    if (!quoted)
        return NULL;
    *to++ = '\'';
    for (; *word; word++) {
        size_t more = *word == '\'' ? sizeof(QUOTE) - 1 : 1;

        memcpy(to, *word == '\'' ? QUOTE : word, more);
        to += more;
    }
    *to++ = '\'';
    *to = '\0';
    return quoted;
}

char *shell_format(const char *format, ...)
{
    va_list arguments;
    char *text;

    va_start(arguments, format);
    int bytes = vasprintf(&text, format, arguments);
    va_end(arguments);
    return bytes < 0 ? NULL : text;
}
