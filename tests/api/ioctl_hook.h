/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ioctl_hook - the library's requests to the mount pass through the test first
 *
 * Included once by a program, which defines on_ioctl. Replaces the C library's ioctl(2), so that
 * the library, linked statically, calls this one.
 */
#ifndef GMSFS_TESTS_API_IOCTL_HOOK_H
#define GMSFS_TESTS_API_IOCTL_HOOK_H

#include <errno.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns 0 to make the request; else the errno with which it fails, without reaching the mount.
 * From any thread. */
static int on_ioctl(unsigned long request);

int ioctl(int fd, unsigned long request, ...)
{
    va_list rest;
    void *argument;
    int error;

    va_start(rest, request);
    argument = va_arg(rest, void *);
    va_end(rest);
    error = on_ioctl(request);
    if (!error)
        return (int)syscall(SYS_ioctl, fd, request, argument);
    errno = error;
    return -1;
}

#endif
