/* SPDX-License-Identifier: Apache-2.0 */
#include "base/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SIZE_STEP    1024u
#define MAX_DECIMALS 3u

static const char UNITS[] = "KMGTPE"; /* E only for formatting */

/* Returns the power of 1024, or a negative errno. */
static int parse_unit(const char *text)
{
    if (*text == '\0')
        return 0;
    char letter = *text >= 'a' && *text <= 'z' ? (char)(*text - 'a' + 'A') : *text;
    const char *unit = memchr(UNITS, letter, 5);
    if (!unit || (text[1] != '\0' && strcmp(text + 1, "iB") != 0))
        return -EINVAL;
    return (int)(unit - UNITS) + 1;
}

int size_parse(const char *text, uint64_t *bytes)
{
    uint64_t value = 0;
    bool too_large = false;

    if (*text < '0' || *text > '9')
        return -EINVAL;
    for (; *text >= '0' && *text <= '9'; text++) {
        uint64_t digit = (uint64_t)(*text - '0');
        too_large |= value > (INT64_MAX - digit) / 10;
        value = too_large ? 0 : value * 10 + digit;
    }
    int steps = parse_unit(text);
    if (steps < 0)
        return steps;
    for (; steps > 0; steps--) {
        too_large |= value > INT64_MAX / SIZE_STEP;
        value *= SIZE_STEP;
    }
    if (too_large)
        return -ERANGE;
    *bytes = value;
    return 0;
}

static const char *format_decimals(uint64_t bytes, unsigned decimals, char text[SIZE_TEXT_BYTES])
{
    if (bytes < SIZE_STEP) {
        snprintf(text, SIZE_TEXT_BYTES, "%u B", (unsigned)bytes);
        return text;
    }
    size_t unit = 0;
    double value = (double)bytes / SIZE_STEP;
    while (value >= SIZE_STEP - 0.05 && UNITS[unit + 1] != '\0') {
        value /= SIZE_STEP;
        unit++;
    }
    snprintf(text, SIZE_TEXT_BYTES, "%.*f %ciB", (int)decimals, value, UNITS[unit]);
    return text;
}

const char *size_format(uint64_t bytes, char text[SIZE_TEXT_BYTES])
{
    return format_decimals(bytes, 1, text);
}

static bool look_alike(const struct size_text *sizes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t k = i + 1; k < count; k++)
            if (sizes[i].bytes != sizes[k].bytes && strcmp(sizes[i].text, sizes[k].text) == 0)
                return true;
    return false;
}

void size_format_apart(const struct size_text *sizes, size_t count)
{
    unsigned decimals = 0;

    do {
        decimals++;
        for (size_t i = 0; i < count; i++)
            format_decimals(sizes[i].bytes, decimals, sizes[i].text);
    } while (decimals < MAX_DECIMALS && look_alike(sizes, count));
    if (!look_alike(sizes, count))
        return;
    for (size_t i = 0; i < count; i++)
        snprintf(sizes[i].text, SIZE_TEXT_BYTES, "%" PRIu64 " B", sizes[i].bytes);
}
