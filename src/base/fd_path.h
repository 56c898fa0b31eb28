/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fd_path - the path of an open file of this process in /proc
 *
 * For parts that open, name or link the file of a descriptor again: open(fd_path(fd).text, flags).
 * Opens nothing itself; the path leads nowhere where there is no /proc. Any thread.
 */
#ifndef GMSFS_BASE_FD_PATH_H
#define GMSFS_BASE_FD_PATH_H

#include <stdio.h>

struct fd_path {
    char text[sizeof "/proc/self/fd/" + 3 * sizeof(int)];
};

static inline struct fd_path fd_path(int fd)
{
    struct fd_path path;

    snprintf(path.text, sizeof path.text, "/proc/self/fd/%d", fd);
    return path;
}

#endif
