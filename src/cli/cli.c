/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include "base/clean.h"
#include "base/failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define ERROR_BYTES 4096

static const struct cli_command *current;

void cli_set_command(const struct cli_command *command)
{
    current = command;
}

const struct cli_command *cli_get_command(void)
{
    return current;
}

static void cli_message(const char *format, va_list arguments)
{
    char text[ERROR_BYTES];

    vsnprintf(text, sizeof(text), format, arguments);
    clean_text(text);
    fflush(stdout);
    fprintf(stderr, "gmsfs%s%s: %s\n", current ? " " : "", current ? current->name : "", text);
}

int cli_error(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    cli_message(format, arguments);
    va_end(arguments);
    return CLI_FAILURE;
}

void cli_usage_error(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    cli_message(format, arguments);
    va_end(arguments);
    fprintf(stderr, "Try 'gmsfs%s%s --help'.\n", current ? " " : "", current ? current->name : "");
    exit(CLI_USAGE);
}

int cli_failure(const struct failure *failure)
{
    return cli_error("%s", failure->text);
}

uint64_t cli_left_ms(uint64_t start_ms, uint64_t timeout_ms)
{
    uint64_t passed_ms = clock_now_ms() - start_ms;

    if (timeout_ms == CLI_FOREVER)
        return CLI_FOREVER;
    return passed_ms < timeout_ms ? timeout_ms - passed_ms : 0;
}
