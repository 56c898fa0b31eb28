/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_explain.h"

#include "base/failure.h"
#include "cli/cli.h"
#include "cli/mounts.h"
#include "cli/store_file.h"

#include <errno.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define POOL_BYTES 256

static bool store_info_says(const char *path, const char *key)
{
    json_auto_t *info = store_info_json(path);

    return info && json_is_true(json_object_get(info, key));
}

bool store_is_fenced(const char *path)
{
    return store_info_says(path, "fenced");
}

bool store_is_immutable(const char *path)
{
    return store_info_says(path, "immutable");
}

bool store_explain_fence(const char *path, const char *doing)
{
    char *paths[] = {(char *)path};
    SCOPED_MOUNTS struct mounts mounts = {0};

    if (!store_is_fenced(path))
        return false;
    mounts_read_for(paths, 1, &mounts);
    const struct mount *mount = mounts_find(&mounts, path, true);
    cli_error(
        "cannot %s: %s: the mount is fenced for a checkpoint; 'gmsfs fence --status %s' prints "
        "its token for users with write permission on both stores, and --complete TOKEN or "
        "--abort TOKEN ends it",
        doing, path, mount ? mount->path : "MOUNT");
    return true;
}

static int store_explain_quota(const char *path, const char *doing)
{
    char pool[POOL_BYTES];
    ssize_t bytes = getxattr(path, "user.gmsfs.pool", pool, sizeof(pool) - 1);

    pool[bytes > 0 ? bytes : 0] = '\0';
    return cli_error(
        "cannot %s: %s: its pool %s has no room for it ('pools' in the mount has the bounds of "
        "each; 'echo \"%s max=SIZE slots=N\"' into it gives more), or your share of a bound is "
        "used up ('events' in the mount names which)",
        doing, path, pool, pool);
}

/* Errors with the same explanation for every store. */
static const struct {
    int error;
    const char *why;
} explanations[] = {
    {-ENOTCONN, "the mount is dead, for its daemon has ended; clear it away with 'gmsfs umount -l' "
                "and mount anew"},
    {-ECONNABORTED, "the mount is dead, for its daemon has ended; clear it away with 'gmsfs umount "
                    "-l' and mount anew"},
    {-EACCES, "permission denied; the store's owner can allow it with chmod or chown"},
    {-ESTALE,
     "the session is over: it was revoked, or the store was removed ('events' in the mount "
     "says which)"},
    {-ENODEV, "the mount is drained ('gmsfs drain --undo' lets it serve again), or its device is "
              "lost (mount anew when it is back); its file 'device' tells"},
    {-EHOSTUNREACH, "the mount's socket '.fds' is not above it: the store alone was bind-mounted; "
                    "bind the whole mount"},
    {-EROFS, "it is mounted read-only here; name it where it is not, or have it remounted ('mount "
             "-o remount,bind,rw')"},
    {-ENFILE, "no more files can be open: of the daemon (LimitNOFILE= of its unit, or 'ulimit -Hn' "
              "before the mount, allows it more), of the mount ('events' in it names the bound) or "
              "of this machine"},
    {-ECANCELED, "the wait was ended by root or the store's owner"},
    {-EDEADLK,
     "this process or one that started it holds the lock for reading, or for the bytes of "
     "a sealed layout; that has to end first"},
    {-ENODATA, "its bytes were given up, by 'gmsfs demote --to none' or to make room; 'gmsfs load' "
               "brings them"},
};

static const char *find_explanation(int error)
{
    for (size_t i = 0; i < sizeof(explanations) / sizeof(explanations[0]); i++)
        if (explanations[i].error == error)
            return explanations[i].why;
    return failure_reason(error);
}

int store_explain(const char *path, const char *doing, int error)
{
    if (error == -ENOLCK)
        return cli_error(
            "cannot %s: %s: not in a writer's session; run it as 'gmsfs run -w %s -- COMMAND'",
            doing, path, path);
    if (error == -EIO)
        return cli_error(
            "cannot %s: %s: its bytes may be damaged after an error of the GPU ('device' "
            "in the mount names it); load it again, or 'gmsfs clear-suspect %s' if it is known to "
            "be sound",
            doing, path, path);
    if (error == -ENAMETOOLONG)
        return cli_error(
            "cannot %s: %s: %s%s", doing, path, strerror(-error),
            access("/proc/self/fd", F_OK) == 0
                ? "; a name has at most 255 bytes, a path 4095"
                : " for the address of the mount's socket, and there is no /proc, by which "
                  "longer ones are reached; mount it, or use a shorter path");
    if (error == -EDQUOT)
        return store_explain_quota(path, doing);
    if (error == -ENODEV && store_explain_fence(path, doing))
        return CLI_FAILURE;
    return cli_error("cannot %s: %s: %s", doing, path, find_explanation(error));
}
