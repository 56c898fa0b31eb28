/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ioctl_hook - the library's requests to the mount pass by the test first
 *
 * Included once by a program, which defines on_ioctl. In place of the C library's ioctl(2), which
 * the library, linked statically, then calls.
 */
#ifndef GMSFS_TESTS_API_IOCTL_HOOK_H
#define GMSFS_TESTS_API_IOCTL_HOOK_H

#include <errno.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 0: it goes on; else the errno with which it fails, and the mount never hears of it. From any
 * thread. */
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
