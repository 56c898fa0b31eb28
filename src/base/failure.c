/* SPDX-License-Identifier: Apache-2.0 */
#include "base/failure.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int failure_set(struct failure *failure, int error, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(failure->text, sizeof(failure->text), format, arguments);
    va_end(arguments);
    return error;
}

const char *failure_reason(int error)
{
    if (error == -EMFILE)
        return "this process may not open more files; raise its limit ('ulimit -n'), or close some "
               "that it was started with";
    if (error == -ENOMEM)
        return "memory is short, of this process (raise its limit, 'ulimit -v'), of a cgroup, or "
               "of this machine";
    return strerror(-error);
}

const char *failure_thread_reason(int error)
{
    if (error == -EAGAIN)
        return "no thread could be started; raise the limit of this process's memory ('ulimit -v') "
               "or of this user's tasks ('ulimit -u'), or that of its cgroup (pids.max)";
    return failure_reason(error);
}

int failure_no_memory(struct failure *failure)
{
    return failure_set(failure, -ENOMEM, "this process is out of memory");
}
