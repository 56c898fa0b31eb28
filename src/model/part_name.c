/* SPDX-License-Identifier: Apache-2.0 */
#include "part_name.h"

#include <stdio.h>
#include <string.h>

#define MAX_DIGITS   9u /* of a number, which then fits 32 bits */
#define SHOWN_PARTS  4u
#define SHOWN_BYTES  400 /* of a path */
#define SEPARATORS   "-_."
#define WITHOUT_PART "*"

/* ---- one name ------------------------------------------------------------------------------ */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads the digits that end at `end`, backwards; 0 if there are none, or too many. */
static size_t digits_before(const char *name, size_t end, uint32_t *number)
{
    size_t at = end, place = 1;

    *number = 0;
    while (at > 0 && is_digit(name[at - 1])) {
        if (end - at == MAX_DIGITS)
            return 0;
        *number += (uint32_t)((size_t)(name[--at] - '0') * place);
        place *= 10;
    }
    return end - at;
}

/* Reads NUMBER-of-COUNT, with the count's last digit before `end`. */
static bool read_part(struct part_name *part, size_t end)
{
    uint32_t number, count;
    size_t count_digits = digits_before(part->name, end, &count), at = end - count_digits, digits;

    if (count_digits == 0 || count == 0 || at < 4)
        return false;
    at -= 4;
    if (memcmp(part->name + at, "-of-", 4) != 0 && memcmp(part->name + at, "_of_", 4) != 0)
        return false;
    digits = digits_before(part->name, at, &number);
    at -= digits;
    if (digits == 0 || at == 0 || !strchr(SEPARATORS, part->name[at - 1]))
        return false;
    part->digits = part->name[at] == '0' ? (uint32_t)digits : 1;
    part->stem_bytes = at;
    part->tail_at = end;
    part->number = number;
    part->count = count;
    return true;
}

struct part_name part_name_read(const char *path)
{
    size_t length = strlen(path);
    struct part_name part = {.name = path, .stem_bytes = length, .tail_at = length};

    for (size_t i = length; i > 0 && path[i - 1] != '/'; i--)
        if (path[i - 1] == '.' && read_part(&part, i - 1))
            break;
    return part;
}

bool part_name_ends_with(const char *path, const char *suffix)
{
    size_t length = strlen(path), end = strlen(suffix);

    return length >= end && strcmp(path + length - end, suffix) == 0;
}

/* ---- sets ---------------------------------------------------------------------------------- */

static int bytes_compare(const char *left, size_t left_bytes, const char *right, size_t right_bytes)
{
    size_t common = left_bytes < right_bytes ? left_bytes : right_bytes;
    int order = memcmp(left, right, common);

    return order ? order : (left_bytes > right_bytes) - (left_bytes < right_bytes);
}

static int set_compare(const struct part_name *left, const struct part_name *right)
{
    int order = bytes_compare(left->name, left->stem_bytes, right->name, right->stem_bytes);

    if (order == 0)
        order = strcmp(left->name + left->tail_at, right->name + right->tail_at);
    return order ? order : (left->count > right->count) - (left->count < right->count);
}

int part_name_compare(const void *left, const void *right)
{
    const struct part_name *a = left, *b = right;
    int order = set_compare(a, b);

    if (order == 0)
        order = (a->number > b->number) - (a->number < b->number);
    return order ? order : strcmp(a->name, b->name);
}

size_t part_set_length(const struct part_name *parts, size_t count)
{
    size_t length = count > 0;

    while (length > 0 && length < count && set_compare(&parts[0], &parts[length]) == 0)
        length++;
    return length;
}

/* Returns the number of the first part: tools count from 1, some from 0. */
static uint32_t first_number(const struct part_name *set)
{
    return set[0].number > 0;
}

/* Finds a part that has the number of another one, or a number that the model does not have. */
static const struct part_name *find_stranger(const struct part_name *set, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if ((i > 0 && set[i].number == set[i - 1].number) ||
            set[i].number - first_number(set) >= set[0].count)
            return &set[i];
    return NULL;
}

bool part_set_is_whole(const struct part_name *set, size_t length)
{
    if (set[0].count == 0)
        return length == 1;
    return length == set[0].count && !find_stranger(set, length);
}

/* ---- words --------------------------------------------------------------------------------- */

void part_set_pattern(const struct part_name *set, char text[PART_TEXT_BYTES])
{
    size_t number_bytes = 0;

    if (set->count > 0)
        while (is_digit(set->name[set->stem_bytes + number_bytes]))
            number_bytes++;
    snprintf(text, PART_TEXT_BYTES, "%.*s%s%.*s", (int)set->stem_bytes, set->name,
             set->count > 0 ? WITHOUT_PART : "", SHOWN_BYTES,
             set->name + set->stem_bytes + number_bytes);
}

/* Appends the name of the part of that number. */
static void put_name(const struct part_name *set, size_t length, uint32_t number, bool is_first,
                     char text[PART_TEXT_BYTES])
{
    size_t used = strlen(text), number_bytes = 0;
    uint32_t digits = 1;

    for (size_t i = 0; i < length; i++)
        digits = set[i].digits > digits ? set[i].digits : digits;
    while (is_digit(set->name[set->stem_bytes + number_bytes]))
        number_bytes++;
    snprintf(text + used, PART_TEXT_BYTES - used, "%s'%.*s%0*u%.*s'", is_first ? "" : ", ",
             (int)set->stem_bytes, set->name, (int)digits, number, SHOWN_BYTES,
             set->name + set->stem_bytes + number_bytes);
}

static void put_missing(const struct part_name *set, size_t length, char text[PART_TEXT_BYTES])
{
    uint32_t first = first_number(set), shown = 0, missing = set->count - (uint32_t)length;
    size_t at = 0;

    for (uint32_t number = first; shown < missing && shown < SHOWN_PARTS; number++) {
        while (at < length && set[at].number < number)
            at++;
        if (at < length && set[at].number == number)
            continue;
        put_name(set, length, number, shown == 0, text);
        shown++;
    }
    if (shown < missing) {
        size_t used = strlen(text);
        snprintf(text + used, PART_TEXT_BYTES - used, " and %u more", missing - shown);
    }
}

void part_set_fault(const struct part_name *set, size_t length, const char *lack,
                    char text[PART_TEXT_BYTES])
{
    const struct part_name *stranger = find_stranger(set, length);

    if (stranger && stranger > set && stranger->number == stranger[-1].number) {
        snprintf(text, PART_TEXT_BYTES, "'%.*s' and '%.*s' are both part %u of %u", SHOWN_BYTES,
                 stranger[-1].name, SHOWN_BYTES, stranger->name, stranger->number, set->count);
        return;
    }
    if (stranger) {
        snprintf(text, PART_TEXT_BYTES,
                 "'%.*s' has a number that a model of %u parts does not have", SHOWN_BYTES,
                 stranger->name, set->count);
        return;
    }
    snprintf(text, PART_TEXT_BYTES, "of %u parts these %s: ", set->count, lack);
    put_missing(set, length, text);
}
