/* SPDX-License-Identifier: Apache-2.0 */
#include "base/size.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define SIZE_STEP 1024u

static const char UNITS[] = "KMGTPE"; /* E only appears when formatting */

/* How many times 1024, or a negative errno. */
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

const char *size_format(uint64_t bytes, char text[SIZE_TEXT_BYTES])
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
    snprintf(text, SIZE_TEXT_BYTES, "%.1f %ciB", value, UNITS[unit]);
    return text;
}
