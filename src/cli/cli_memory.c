/* SPDX-License-Identifier: Apache-2.0 */
/* cli_memory - memory of commands, which end without it */
#include "cli/cli.h"
#include "cli/output.h"
#include "cli/signals.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void cli_out_of_memory(void)
{
    signals_undo();
    cli_error("this process is out of memory");
    _exit(output_get_failure());
}

void *cli_need(void *memory)
{
    if (!memory)
        cli_out_of_memory();
    return memory;
}

char *cli_format(const char *format, ...)
{
    va_list arguments;
    char *text;

    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    return length < 0 ? cli_need(NULL) : text;
}
