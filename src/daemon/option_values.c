/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/option_values.h"

#include "base/size.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SIZE_EXPECTED "a size such as 256M, 4G or 1T"

int option_finish_error(const struct option_parser *parser)
{
    for (char *at = parser->error; *at; at++) {
        if (iscntrl((unsigned char)*at))
            *at = '?';
    }
    return -EINVAL;
}

int option_refuse(const struct option_parser *parser, const struct option *option,
                  const char *format, ...)
{
    char what[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    snprintf(parser->error, parser->error_bytes, "option %s%s%s: %s", option->name,
             option->has_value ? "=" : "", option->has_value ? option->value : "", what);
    return option_finish_error(parser);
}

int option_parse_size(const struct option_parser *parser, const struct option *option,
                      uint64_t min_bytes, uint64_t max_bytes, uint64_t *bytes)
{
    char least[SIZE_TEXT_BYTES], most[SIZE_TEXT_BYTES];
    uint64_t value = 0;
    int error = size_parse(option->value, &value);

    if (error == -EINVAL)
        return option_refuse(parser, option, "expected " SIZE_EXPECTED);
    if (error || value < min_bytes || value > max_bytes)
        return option_refuse(parser, option, "expected a size from %s to %s",
                             size_format(min_bytes, least), size_format(max_bytes, most));
    *bytes = value;
    return 0;
}

int option_parse_granularity(const struct option_parser *parser, const struct option *option,
                             uint64_t *granularity_bytes)
{
    uint64_t bytes = 0;
    int error =
        option_parse_size(parser, option, OPTIONS_MIN_BYTES, OPTIONS_MAX_GRANULARITY, &bytes);

    if (error)
        return error;
    if ((bytes & (bytes - 1)) != 0)
        return option_refuse(parser, option, "expected a power of two, such as 2M");
    *granularity_bytes = bytes;
    return 0;
}

int option_parse_hugepages(const struct option_parser *parser, const struct option *option,
                           uint64_t *page_bytes)
{
    uint64_t bytes = 0;

    if (size_parse(option->value, &bytes) || (bytes != 2ull << 20 && bytes != 1ull << 30))
        return option_refuse(parser, option, "expected 2M or 1G");
    *page_bytes = bytes;
    return 0;
}

int option_parse_yes(const struct option_parser *parser, const struct option *option, bool *yes)
{
    *yes = strcmp(option->value, "yes") == 0;
    if (*yes || strcmp(option->value, "no") == 0)
        return 0;
    return option_refuse(parser, option, "expected yes or no");
}

/* Seconds with up to three decimals. */
int option_parse_seconds(const struct option_parser *parser, const struct option *option,
                         uint64_t *value_ms)
{
    const char *at = option->value;
    uint64_t seconds = 0, thousandths = 0;

    if (!isdigit((unsigned char)*at))
        goto bad;
    for (; isdigit((unsigned char)*at); at++) {
        seconds = seconds * 10 + (uint64_t)(*at - '0');
        if (seconds > OPTIONS_MAX_SECONDS)
            goto bad;
    }
    if (*at == '.') {
        at++;
        for (uint64_t weight = 100; weight && isdigit((unsigned char)*at); weight /= 10)
            thousandths += (uint64_t)(*at++ - '0') * weight;
    }
    if (*at != '\0')
        goto bad;
    *value_ms = seconds * 1000 + thousandths;
    return 0;
bad:
    return option_refuse(parser, option,
                         "expected seconds from 0 to %u, with at most three decimals",
                         OPTIONS_MAX_SECONDS);
}

/* The daemon's directory is not the caller's. */
int option_parse_path(const struct option_parser *parser, const struct option *option,
                      char path[OPTIONS_PATH_BYTES])
{
    if (option->value[0] != '/' || strlen(option->value) >= OPTIONS_PATH_BYTES)
        return option_refuse(parser, option, "expected an absolute path");
    strcpy(path, option->value);
    return 0;
}

bool option_read_number(const char *text, uint32_t max, uint32_t *number)
{
    uint64_t value = 0;
    const char *at = text;

    for (; isdigit((unsigned char)*at) && value <= max; at++)
        value = value * 10 + (uint64_t)(*at - '0');
    if (*at != '\0' || at == text || value > max)
        return false;
    *number = (uint32_t)value;
    return true;
}

int option_parse_number(const struct option_parser *parser, const struct option *option,
                        uint32_t max, uint32_t *number)
{
    if (!option_read_number(option->value, max, number))
        return option_refuse(parser, option, "expected a number from 0 to %" PRIu32, max);
    return 0;
}

int option_parse_id(const struct option_parser *parser, const struct option *option, uint32_t *id)
{
    return option_parse_number(parser, option, OPTIONS_NO_ID - 1, id);
}

int option_parse_mode(const struct option_parser *parser, const struct option *option,
                      uint32_t *mode)
{
    uint32_t value = 0;
    const char *at = option->value;

    for (; *at >= '0' && *at <= '7' && value <= 0777; at++)
        value = value * 8 + (uint32_t)(*at - '0');
    if (*at != '\0' || at == option->value || value > 0777)
        return option_refuse(parser, option, "expected an octal mode from 0 to 777, such as 660");
    *mode = value;
    return 0;
}
