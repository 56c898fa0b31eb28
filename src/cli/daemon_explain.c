/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/daemon_explain.h"

#include "base/failure.h"
#include "cli/cli.h"
#include "cli/daemon_ask.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define OWNER_BYTES 128

int daemon_explain(const char *path, int error)
{
    switch (error) {
    case -EPIPE:
    case -ECONNRESET:
        return cli_error("%s: the daemon is gone: the mount was unmounted, or its daemon died; "
                         "'gmsfs status' tells",
                         path);
    case -ENOENT:
        return cli_error(
            "%s: the mount's socket '.fds' is not there: only a part of a mount was bound "
            "there; name it where the whole mount is, which 'gmsfs status' lists",
            path);
    case -ENAMETOOLONG:
        return cli_error(
            "%s: the path is too long for a socket's address, and there is no /proc, by which "
            "longer ones are reached; mount it, or mount at a shorter path",
            path);
    case -EMFILE:
        return cli_error("%s: the daemon cannot be asked: %s", path, failure_reason(error));
    default:
        return cli_error(
            "%s: the daemon cannot be asked: %s; 'gmsfs status' shows whether it lives", path,
            strerror(-error));
    }
}

int daemon_explain_cancelled(const char *path, const char *now)
{
    return cli_error(
        "%s: the drain was cancelled by 'gmsfs drain --undo', or because the daemon restarted "
        "and this command did not reconnect within %u s; %s",
        path, GMSFS_FDS_DRAIN_MS / 1000, now);
}

/* ", alice (uid 1000)"; "" where it cannot be told. */
static const char *format_owner(const char *path, char text[OWNER_BYTES])
{
    struct stat store;

    text[0] = '\0';
    if (stat(path, &store) != 0)
        return text;
    const struct passwd *user = getpwuid(store.st_uid);
    if (user)
        snprintf(text, OWNER_BYTES, ", %.64s (uid %lu),", user->pw_name,
                 (unsigned long)store.st_uid);
    else
        snprintf(text, OWNER_BYTES, ", uid %lu,", (unsigned long)store.st_uid);
    return text;
}

int daemon_explain_rights(const char *path, const char *doing)
{
    char owner[OWNER_BYTES];

    return cli_error(
        "%s: permission denied: only root, the user that mounted it and the store's "
        "owner%s can %s; run this as one of them, or let root make you its owner with 'chown'",
        path, format_owner(path, owner), doing);
}
