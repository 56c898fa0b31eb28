/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/pools_line.h"

#include "base/size.h"

#include <errno.h>
#include <string.h>

#define WORD_BYTES 128u
#define BLANKS     " \t"

/* Parses bytes, or the word for no limit. */
static int parse_bytes(const char *text, uint64_t none, uint64_t *bytes)
{
    if (strcmp(text, "max") != 0)
        return size_parse(text, bytes) ? -EINVAL : 0;
    *bytes = none;
    return 0;
}

static int parse_number(const char *text, uint64_t most, uint64_t *number)
{
    uint64_t value = 0;
    size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 10 || text[digits])
        return -EINVAL;
    for (size_t i = 0; i < digits; i++)
        value = value * 10 + (uint64_t)(text[i] - '0');
    *number = value;
    return value == 0 || value > most ? -EINVAL : 0;
}

static int set_min(struct service_budget *pool, const char *text)
{
    return size_parse(text, &pool->min_bytes) ? -EINVAL : 0;
}

static int set_max(struct service_budget *pool, const char *text)
{
    return parse_bytes(text, CORE_NO_LIMIT, &pool->max_bytes);
}

static int set_slots(struct service_budget *pool, const char *text)
{
    if (strcmp(text, "max") != 0)
        return parse_number(text, CORE_MOST_SLOTS, &pool->slots);
    pool->slots = 0;
    return 0;
}

static int set_class(struct service_budget *pool, const char *text)
{
    for (unsigned class = 0; class < POOL_CLASS_COUNT; class ++) {
        pool->class = (enum pool_class) class;
        if (strcmp(text, core_pool_class_name(pool->class)) == 0)
            return 0;
    }
    return -EINVAL;
}

static int set_sm(struct service_budget *pool, const char *text)
{
    uint64_t percent = 0;
    int error = parse_number(text, 100, &percent);
    pool->sm_percent = (uint32_t)percent;
    return error;
}

static const struct {
    const char *name;
    uint32_t flag;
    int (*set)(struct service_budget *pool, const char *text);
} KEYS[] = {
    {"min", CORE_POOL_MIN, set_min},       {"max", CORE_POOL_MAX, set_max},
    {"slots", CORE_POOL_SLOTS, set_slots}, {"class", CORE_POOL_CLASS, set_class},
    {"sm", CORE_POOL_SM, set_sm},
};

/* Sets a key, which may come once. */
static int set_key(struct service_budget *pool, const char *word)
{
    const char *value = strchr(word, '=');
    size_t bytes = value ? (size_t)(value - word) : 0;
    for (size_t i = 0; value && i < sizeof KEYS / sizeof KEYS[0]; i++) {
        if (strlen(KEYS[i].name) != bytes || memcmp(KEYS[i].name, word, bytes) != 0)
            continue;
        if (pool->flags & KEYS[i].flag)
            return -EINVAL;
        pool->flags |= KEYS[i].flag;
        return KEYS[i].set(pool, value + 1);
    }
    return -EINVAL;
}

/* Takes the next word of the line. False: there is none, or (bytes > 0) it is too long. */
static bool take_word(const char **at, size_t *bytes, char word[WORD_BYTES])
{
    size_t length = 0;
    while (*bytes > 0 && strchr(BLANKS, **at) && **at) {
        (*at)++;
        (*bytes)--;
    }
    while (length < *bytes && !((*at)[length] && strchr(BLANKS, (*at)[length])))
        length++;
    if (length == 0 || length >= WORD_BYTES)
        return false;
    memcpy(word, *at, length);
    word[length] = '\0';
    *at += length;
    *bytes -= length;
    return true;
}

int pools_line_parse(const char *line, size_t bytes, struct service_budget *pool)
{
    char word[WORD_BYTES];
    int error = 0;
    *pool = (struct service_budget){0};
    if (bytes > 0 && memchr(line, '\0', bytes))
        return -EINVAL;
    if (!take_word(&line, &bytes, word))
        return bytes > 0 ? -EINVAL : -ENODATA;
    if (!core_is_pool_name(word))
        return -EINVAL;
    memcpy(pool->name, word, strlen(word) + 1);
    while (!error && take_word(&line, &bytes, word)) {
        if (pool->flags & CORE_POOL_REMOVE)
            return -EINVAL;
        if (strcmp(word, "-") != 0)
            error = set_key(pool, word);
        else if (pool->flags)
            error = -EINVAL;
        else
            pool->flags = CORE_POOL_REMOVE;
    }
    return error || bytes > 0 ? -EINVAL : 0;
}
