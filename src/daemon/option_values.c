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
    char reason[256];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    snprintf(parser->error, parser->error_bytes, "option %s%s%s: %s", option->name,
             option->has_value ? "=" : "", option->has_value ? option->value : "", reason);
    return option_finish_error(parser);
}

static int parse_size(const struct option_parser *parser, const struct option *option,
                      uint64_t max_bytes, uint64_t *bytes)
{
    char least[SIZE_TEXT_BYTES], most[SIZE_TEXT_BYTES];
    uint64_t value = 0;
    int error = size_parse(option->value, &value);

    if (error == -EINVAL)
        return option_refuse(parser, option, "expected " SIZE_EXPECTED);
    if (error || value < OPTIONS_MIN_BYTES || value > max_bytes)
        return option_refuse(parser, option, "expected a size from %s to %s",
                             size_format(OPTIONS_MIN_BYTES, least), size_format(max_bytes, most));
    *bytes = value;
    return 0;
}

int option_take_size(struct option_parser *parser, const struct option *option, void *at)
{
    return parse_size(parser, option, OPTIONS_MAX_BYTES, at);
}

int option_take_granularity(struct option_parser *parser, const struct option *option, void *at)
{
    uint64_t bytes = 0;
    int error = parse_size(parser, option, OPTIONS_MAX_GRANULARITY, &bytes);

    if (error)
        return error;
    if ((bytes & (bytes - 1)) != 0)
        return option_refuse(parser, option, "expected a power of two, such as 2M");
    *(uint64_t *)at = bytes;
    return 0;
}

int option_take_hugepages(struct option_parser *parser, const struct option *option, void *at)
{
    uint64_t bytes = 0;

    if (size_parse(option->value, &bytes) || (bytes != 2ull << 20 && bytes != 1ull << 30))
        return option_refuse(parser, option, "expected 2M or 1G");
    *(uint64_t *)at = bytes;
    return 0;
}

/* Seconds with up to three decimals. */
int option_take_seconds(struct option_parser *parser, const struct option *option, void *at)
{
    const char *text = option->value;
    uint64_t seconds = 0, thousandths = 0;

    if (!isdigit((unsigned char)*text))
        goto bad;
    for (; isdigit((unsigned char)*text); text++) {
        seconds = seconds * 10 + (uint64_t)(*text - '0');
        if (seconds > OPTIONS_MAX_SECONDS)
            goto bad;
    }
    if (*text == '.') {
        text++;
        for (uint64_t weight = 100; weight && isdigit((unsigned char)*text); weight /= 10)
            thousandths += (uint64_t)(*text++ - '0') * weight;
    }
    if (*text != '\0')
        goto bad;
    *(uint64_t *)at = seconds * 1000 + thousandths;
    return 0;
bad:
    return option_refuse(parser, option,
                         "expected seconds from 0 to %u, with at most three decimals",
                         OPTIONS_MAX_SECONDS);
}

/* Relative paths are refused: the daemon's directory is not the caller's. */
int option_take_path(struct option_parser *parser, const struct option *option, void *at)
{
    if (option->value[0] != '/' || strlen(option->value) >= OPTIONS_PATH_BYTES)
        return option_refuse(parser, option, "expected an absolute path");
    strcpy(at, option->value);
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

static int parse_number(const struct option_parser *parser, const struct option *option,
                        uint32_t max, uint32_t *number)
{
    if (!option_read_number(option->value, max, number))
        return option_refuse(parser, option, "expected a number from 0 to %" PRIu32, max);
    return 0;
}

int option_take_ordinal(struct option_parser *parser, const struct option *option, void *at)
{
    parser->has_ordinal = true;
    return parse_number(parser, option, OPTIONS_MAX_ORDINAL, at);
}

int option_take_id(struct option_parser *parser, const struct option *option, void *at)
{
    return parse_number(parser, option, OPTIONS_NO_ID - 1, at);
}

int option_take_mode(struct option_parser *parser, const struct option *option, void *at)
{
    uint32_t value = 0;
    const char *text = option->value;

    for (; *text >= '0' && *text <= '7' && value <= 0777; text++)
        value = value * 8 + (uint32_t)(*text - '0');
    if (*text != '\0' || text == option->value || value > 0777)
        return option_refuse(parser, option, "expected an octal mode from 0 to 777, such as 660");
    *(uint32_t *)at = value;
    return 0;
}

int option_take_word(struct option_parser *parser, const struct option *option, void *at)
{
    (void)parser, (void)option;
    *(bool *)at = true;
    return 0;
}
