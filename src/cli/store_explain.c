/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_explain.h"

#include "cli/cli.h"
#include "cli/store_fenced.h"

#include <errno.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define POOL_BYTES 256

static void store_explain_quota(const char *path, const char *doing)
{
    char pool[POOL_BYTES];
    ssize_t bytes = getxattr(path, "user.gmsfs.pool", pool, sizeof(pool) - 1);

    pool[bytes > 0 ? bytes : 0] = '\0';
    cli_error(
        "cannot %s: %s: its pool %s has no room for it ('pools' in the mount has what each may "
        "have; 'echo \"%s max=SIZE slots=N\"' into it gives more), or your share of a bound is "
        "used up ('events' in the mount names which)",
        doing, path, pool, pool);
}

int store_explain(const char *path, const char *doing, int error)
{
    switch (error) {
    case -ENOTCONN:
    case -ECONNABORTED:
        cli_error("cannot %s: %s: the mount is dead, for its daemon has ended; clear it away with "
                  "'gmsfs umount -l' and mount anew",
                  doing, path);
        break;
    case -EACCES:
        cli_error("cannot %s: %s: permission denied; the store's owner can allow it with chmod or "
                  "chown",
                  doing, path);
        break;
    case -ENOLCK:
        cli_error("cannot %s: %s: not in a writer's session; run it as 'gmsfs run -w %s -- "
                  "COMMAND'",
                  doing, path, path);
        break;
    case -ESTALE:
        cli_error("cannot %s: %s: the session is over: it was revoked, or the store was removed "
                  "('events' in the mount says which)",
                  doing, path);
        break;
    case -EIO:
        cli_error("cannot %s: %s: what it holds may be damaged after an error of the GPU ('device' "
                  "in the mount says which); load it anew, or 'gmsfs clear-suspect %s' if it is "
                  "known to be sound",
                  doing, path, path);
        break;
    case -ENODEV:
        if (store_explain_fence(path, doing))
            break;
        cli_error(
            "cannot %s: %s: the mount is drained ('gmsfs drain --undo' lets it serve again), or "
            "its device is lost (mount anew when it is back); its file 'device' tells",
            doing, path);
        break;
    case -EHOSTUNREACH:
        cli_error("cannot %s: %s: the mount's socket '.fds' is not above it: the store alone was "
                  "bind-mounted; bind the whole mount",
                  doing, path);
        break;
    case -ENAMETOOLONG:
        cli_error("cannot %s: %s: %s%s", doing, path, strerror(-error),
                  access("/proc/self/fd", F_OK) == 0
                      ? ""
                      : " for the address of the mount's socket, and there is no /proc, by which "
                        "longer ones are reached; mount it, or use a shorter path");
        break;
    case -EROFS:
        cli_error("cannot %s: %s: it is mounted read-only here; name it where it is not, or have "
                  "it remounted ('mount -o remount,bind,rw')",
                  doing, path);
        break;
    case -ENFILE:
        cli_error("cannot %s: %s: no more files can be open: of the daemon (LimitNOFILE= of its "
                  "unit, or 'ulimit -Hn' before the mount, allows it more), of the mount ('events' "
                  "in it names the bound) or of this machine",
                  doing, path);
        break;
    case -ECANCELED:
        cli_error("cannot %s: %s: the wait was ended by root or the store's owner", doing, path);
        break;
    case -EDEADLK:
        cli_error(
            "cannot %s: %s: this process or one that started it holds the lock for reading, or "
            "for the bytes of what is sealed; that has to end first",
            doing, path);
        break;
    case -ENODATA:
        cli_error("cannot %s: %s: its bytes were given up, by 'gmsfs demote --to none' or to make "
                  "room; 'gmsfs load' brings them",
                  doing, path);
        break;
    case -EDQUOT:
        store_explain_quota(path, doing);
        break;
    default:
        cli_error("cannot %s: %s: %s", doing, path, strerror(-error));
    }
    return error;
}
