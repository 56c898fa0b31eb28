/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/namespaces.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINK_BYTES 40u /* "user:[4026531837]" */

static void read_link(const char *path, char text[LINK_BYTES])
{
    ssize_t bytes = readlink(path, text, LINK_BYTES - 1);

    text[bytes > 0 ? bytes : 0] = '\0';
}

void namespaces_write(char text[NAMESPACES_TEXT_BYTES])
{
    char pid[LINK_BYTES], user[LINK_BYTES];

    read_link("/proc/self/ns/pid", pid);
    read_link("/proc/self/ns/user", user); /* a kernel may have no user namespaces */
    snprintf(text, NAMESPACES_TEXT_BYTES, "%s%s%s", pid, *user ? " " : "", user);
}

int namespaces_check(const char *text, struct failure *failure)
{
    char own[NAMESPACES_TEXT_BYTES];
    size_t pid_bytes = strcspn(text, " ");

    namespaces_write(own);
    if (*text && strcmp(own, text) == 0)
        return 0;
    if (!*text || !*own)
        return failure_set(failure, -EXDEV,
                           "cannot find out whether both are in the same namespaces: %s",
                           *text ? "there is no /proc here" : "its keeper does not send its own");
    if (strcspn(own, " ") != pid_bytes || strncmp(own, text, pid_bytes) != 0)
        return failure_set(failure, -EXDEV,
                           "this is another PID namespace than %.*s, the mount's, and processes "
                           "have other numbers here",
                           (int)pid_bytes, text);
    return failure_set(failure, -EXDEV,
                       "this is another user namespace than %s, the mount's, and users have other "
                       "numbers here",
                       text + pid_bytes + 1);
}
