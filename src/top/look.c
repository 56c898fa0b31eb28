/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the JSON of looks. */
#include "top/internal.h"

#include <stdio.h>

#define MS_PER_S 1000u

const json_t *look_device(const struct mount_facts *mount)
{
    const json_t *device = json_object_get(mount->look, "device");

    return json_is_object(device) ? device : NULL;
}

/* Days since 1970 of a day of the Gregorian calendar: years begin in March, so that the leap day is
 * the last. */
static int64_t count_days(int year, int month, int day)
{
    int64_t y = month > 2 ? year : year - 1, from_march = (month + 9) % 12;

    return y * 365 + y / 4 - y / 100 + y / 400 + (from_march * 153 + 2) / 5 + day - 1 - 719468;
}

uint64_t look_parse_time(const char *text)
{
    int year, month, day, hour, minute, second;

    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2dZ", &year, &month, &day, &hour, &minute, &second) !=
            6 ||
        year < 1970 || month < 1 || month > 12)
        return 0;
    return (uint64_t)(count_days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second) *
           MS_PER_S;
}
