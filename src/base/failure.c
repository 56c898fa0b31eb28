/* SPDX-License-Identifier: Apache-2.0 */
#include "base/failure.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int failure_set(struct failure *failure, int error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(failure->text, sizeof(failure->text), format, arguments);
    va_end(arguments);
    return error;
}

int failure_no_memory(struct failure *failure)
{
    return failure_set(failure, -ENOMEM, "this process is out of memory");
}
