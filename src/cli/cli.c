/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/clean.h"
#include "base/failure.h"
#include "base/size.h"
#include "cli/ui.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ERROR_BYTES 4096
#define NS_PER_US   1000
#define US_PER_MS   1000
#define US_PER_S    1000000
#define MS_PER_S    1000

static const struct cli_command *current;

void cli_set_command(const struct cli_command *command)
{
    current = command;
}

static void cli_message(const char *format, va_list arguments)
{
    char text[ERROR_BYTES];

    vsnprintf(text, sizeof(text), format, arguments);
    clean_text(text);
    fflush(stdout);
    fprintf(stderr, "gmsfs%s%s: %s\n", current ? " " : "", current ? current->name : "", text);
}

void cli_error(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    cli_message(format, arguments);
    va_end(arguments);
}

int cli_usage_error(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    cli_message(format, arguments);
    va_end(arguments);
    fprintf(stderr, "Try 'gmsfs%s%s --help'.\n", current ? " " : "", current ? current->name : "");
    return CLI_USAGE;
}

int cli_help(void)
{
    fputs(current->usage, stdout);
    return CLI_OK;
}

int cli_failure(const struct failure *failure)
{
    cli_error("%s", failure->text);
    return CLI_FAILURE;
}

int cli_out_of_memory(void)
{
    cli_error("this process is out of memory");
    return CLI_FAILURE;
}

int cli_getopt(int argc, char **argv, const char *options, const struct option *long_options)
{
    const char *word;
    int option;

    opterr = 0;
    option = getopt_long(argc, argv, options, long_options, NULL);
    if (option != ':' && option != '?')
        return option;
    word = argv[optind - 1];
    if (option == ':')
        cli_usage_error("option '%s' needs a value", word);
    else if (optopt && strncmp(word, "--", 2) != 0)
        cli_usage_error("unknown option '-%c'", optopt);
    else if (optopt)
        cli_usage_error("option '%s' takes no value", word);
    else
        cli_usage_error("unknown or ambiguous option '%s'", word);
    return '?';
}

int cli_parse_count(const char *option, const char *text, uint64_t min, uint64_t max,
                    uint64_t *value)
{
    char *end;
    unsigned long long number;

    errno = 0;
    number = strtoull(text, &end, 10);
    if (errno || *end || text[0] < '0' || text[0] > '9' || number < min || number > max)
        return cli_usage_error("%s '%s': a number from %" PRIu64 " to %" PRIu64 " is needed",
                               option, text, min, max);
    *value = number;
    return CLI_OK;
}

int cli_parse_size(const char *option, const char *text, uint64_t *bytes)
{
    if (size_parse(text, bytes) != 0 || *bytes == 0)
        return cli_usage_error("%s '%s': a size above 0 is needed, as 512M or 2G (powers of 1024)",
                               option, text);
    return CLI_OK;
}

int cli_parse_timeout(const char *option, const char *text, uint64_t *timeout_ms)
{
    char *end;
    double seconds;

    errno = 0;
    seconds = strtod(text, &end);
    if (errno || *end || text[0] < '0' || text[0] > '9' || !(seconds <= INT_MAX))
        return cli_usage_error("%s '%s': seconds are needed, as 10 or 0.5", option, text);
    *timeout_ms = (uint64_t)(seconds * MS_PER_S);
    return CLI_OK;
}

int cli_parse_direct(const char *text, enum direct_use *use)
{
    if (direct_parse(text, use) != 0)
        return cli_usage_error("--direct: '%s': one of auto, always and never is needed", text);
    return CLI_OK;
}

uint64_t cli_now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * US_PER_S + (uint64_t)now.tv_nsec / NS_PER_US;
}

uint64_t cli_now_ms(void)
{
    return cli_now_us() / US_PER_MS;
}

uint64_t cli_left_ms(uint64_t start_ms, uint64_t timeout_ms)
{
    uint64_t passed_ms = cli_now_ms() - start_ms;

    if (timeout_ms == CLI_FOREVER)
        return CLI_FOREVER;
    return passed_ms < timeout_ms ? timeout_ms - passed_ms : 0;
}
