/* SPDX-License-Identifier: Apache-2.0 */
#include "governor/config_words.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct config_shown config_show(const char *word)
{
    struct config_shown shown = {""};
    size_t length = strnlen(word, CONFIG_SHOWN_BYTES + 1);
    bool is_cut = length > CONFIG_SHOWN_BYTES;

    length = is_cut ? CONFIG_SHOWN_BYTES : length;
    for (size_t i = 0; i < length; i++)
        shown.text[i] = (unsigned char)word[i] < ' ' || word[i] == 0x7f ? '?' : word[i];
    if (is_cut)
        memcpy(shown.text + length, "...", 4);
    return shown;
}

int config_refuse(const struct config_words *words, const char *format, ...)
{
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return failure_set(words->failure, -EINVAL, "line %u: %s", words->line, text);
}

int config_words_begin(struct config_words *words, const char *text, size_t len,
                       struct failure *failure)
{
    words->at = text;
    words->end = text + len;
    words->line = 1;
    words->failure = failure;
    if (len > GOVERNOR_MAX_CONFIG)
        return failure_set(failure, -E2BIG, "has %zu bytes, and at most %u are read", len,
                           GOVERNOR_MAX_CONFIG);
    for (const char *at = text; at < words->end; at++) {
        if (*at == '\n')
            words->line++;
        else if (((unsigned char)*at < ' ' && *at != '\t') || *at == 0x7f)
            return config_refuse(words,
                                 "has a byte 0x%02x; a line has only text, blanks and tabs%s",
                                 (unsigned)*at, *at == '\r' ? ", and ends with 0x0a alone" : "");
    }
    words->line = 1;
    return 0;
}

static bool at_end_of_statement(const struct config_words *words)
{
    return words->at == words->end || *words->at == '\n' || *words->at == ';' || *words->at == '#';
}

static void skip_blanks(struct config_words *words)
{
    while (words->at < words->end && (*words->at == ' ' || *words->at == '\t'))
        words->at++;
}

/* Takes a quoted part, with both quotes. */
static int take_quoted(struct config_words *words, size_t *length)
{
    char quote = *words->at++;
    const char *begin = words->at;

    while (words->at < words->end && *words->at != '\n' && *words->at != quote)
        words->at++;
    if (words->at == words->end || *words->at == '\n')
        return config_refuse(words, "a %c is not closed on its line", quote);
    size_t bytes = (size_t)(words->at++ - begin);
    if (*length + bytes > GOVERNOR_MAX_WORD)
        return -E2BIG;
    memcpy(words->word + *length, begin, bytes);
    *length += bytes;
    return 0;
}

static bool at_end_of_word(const struct config_words *words)
{
    return words->at == words->end || strchr(" \t\n;", *words->at);
}

int config_next_word(struct config_words *words)
{
    size_t length = 0;
    int error = 0;

    skip_blanks(words);
    words->word[0] = '\0';
    if (at_end_of_statement(words))
        return 0;
    while (!error && !at_end_of_word(words)) {
        if (*words->at == '\'' || *words->at == '"')
            error = take_quoted(words, &length);
        else if (length == GOVERNOR_MAX_WORD)
            error = -E2BIG;
        else
            words->word[length++] = *words->at++;
    }
    words->word[length] = '\0';
    if (error != -E2BIG)
        return error ? error : 1;
    config_refuse(words, "the word that begins with \"%s\" has more than %u bytes",
                  config_show(words->word).text, GOVERNOR_MAX_WORD);
    return -E2BIG;
}

int config_next_statement(struct config_words *words)
{
    for (;;) {
        skip_blanks(words);
        if (words->at == words->end)
            return 0;
        if (*words->at == '#') {
            const char *line = memchr(words->at, '\n', (size_t)(words->end - words->at));
            words->at = line ? line : words->end;
        } else if (*words->at == '\n') {
            words->line++;
            words->at++;
        } else if (*words->at == ';') {
            words->at++;
        } else {
            return config_next_word(words);
        }
    }
}

/* Parses the digits at the start; NULL: none, or too many. */
static const char *parse_digits(const char *text, uint64_t *number)
{
    size_t digits = strspn(text, "0123456789");

    *number = 0;
    if (digits == 0 || digits > 15)
        return NULL;
    for (size_t i = 0; i < digits; i++)
        *number = *number * 10 + (uint64_t)(text[i] - '0');
    return text + digits;
}

int config_take_number(const struct config_words *words, const char *name, const char *text,
                       uint64_t least, uint64_t most, uint64_t *number)
{
    const char *rest = parse_digits(text, number);

    if (rest && *rest == '\0' && *number >= least && *number <= most)
        return 0;
    return config_refuse(words, "%s %s: it is a number from %" PRIu64 " to %" PRIu64, name,
                         config_show(text).text, least, most);
}

int config_take_percent(const struct config_words *words, const char *name, const char *text,
                        unsigned *percent)
{
    uint64_t number;
    const char *rest = parse_digits(text, &number);

    if (!rest || strcmp(rest, *rest == '%' ? "%" : "") != 0 || number > 100)
        return config_refuse(words, "%s %s: it is a percentage of the device, from 0%% to 100%%",
                             name, config_show(text).text);
    *percent = (unsigned)number;
    return 0;
}

int config_take_time(const struct config_words *words, const char *name, const char *text,
                     uint64_t least_ms, uint64_t most_ms, uint64_t *time_ms)
{
    static const struct {
        const char *name;
        uint64_t ms;
    } units[] = {{"", 1000}, {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
    uint64_t number;
    const char *rest = parse_digits(text, &number);

    for (size_t i = 0; rest && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(rest, units[i].name) != 0 || number > most_ms / units[i].ms)
            continue;
        *time_ms = number * units[i].ms;
        if (*time_ms >= least_ms)
            return 0;
    }
    return config_refuse(words,
                         "%s %s: it is a time such as 10 (seconds), 500ms, 5m or 1h, from %" PRIu64
                         "ms to %" PRIu64 "h",
                         name, config_show(text).text, least_ms, most_ms / 3600000);
}
