/* SPDX-License-Identifier: Apache-2.0 */
#include "source/url.h"

#include "base/hex.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

char *url_encode(char *to, const char *text, enum url_keep keep)
{
    static const char digits[] = "0123456789ABCDEF";

    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        const bool is_letter = (c | 0x20u) >= 'a' && (c | 0x20u) <= 'z';

        if (is_letter || (c >= '0' && c <= '9') || strchr("-._~", c) ||
            (c == '/' && keep == URL_KEEP_SLASHES)) {
            *to++ = (char)c;
            continue;
        }
        *to++ = '%';
        *to++ = digits[c >> 4];
        *to++ = digits[c & 15];
    }
    *to = '\0';
    return to;
}

bool url_decode(char *text)
{
    char *to = text;

    for (; *text; text++) {
        if (*text != '%') {
            *to++ = *text;
            continue;
        }
        int high = hex_digit(text[1]);
        int low = high < 0 ? -1 : hex_digit(text[2]);
        if (low < 0 || high + low == 0)
            return false;
        *to++ = (char)(high << 4 | low);
        text += 2;
    }
    *to = '\0';
    return true;
}

bool url_trim_endpoint(char *endpoint)
{
    for (size_t end = strlen(endpoint); end > 0 && endpoint[end - 1] == '/'; end--)
        endpoint[end - 1] = '\0';
    return strncasecmp(endpoint, "https://", 8) == 0 || strncasecmp(endpoint, "http://", 7) == 0;
}

char *url_join(const char *folder, const char *name)
{
    const size_t bytes = strlen(folder);
    char *url = malloc(bytes + 1 + 3 * strlen(name) + 1), *end;

    if (!url)
        return NULL;
    end = stpcpy(url, folder);
    if (bytes > 0 && folder[bytes - 1] != '/')
        *end++ = '/';
    url_encode(end, name, URL_KEEP_SLASHES);
    return url;
}
