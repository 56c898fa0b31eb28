/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/owner.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Those of the user, as at a login; a user without a name has none. */
static int take_groups(uid_t uid, gid_t gid)
{
    const struct passwd *user = getpwuid(uid);
    int failed = user ? initgroups(user->pw_name, gid) : setgroups(0, NULL);

    return failed ? -errno : 0;
}

extern char **environ;

/* Where messages go, what a service manager or the GPU's libraries are told; a name that ends with
 * `=` is a whole one. */
static bool is_kept(const char *variable)
{
    static const char *const kept[] = {
        "NOTIFY_SOCKET=", "LISTEN_", "FDSTORE=", "JOURNAL_STREAM=",  "GMSFS_",
        "PATH=",          "LANG=",   "LC_",      "LD_LIBRARY_PATH=", "CUDA_",
        "NVIDIA_",        "HIP_",    "ROCR_"};

    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (strncmp(variable, kept[i], strlen(kept[i])) == 0)
            return true;
    return false;
}

/* Whatever else root's environment has may be a secret, and is readable in there by whoever comes
 * to read this process's memory: so it is written over. */
static void drop_environment(void)
{
    char **left = environ;

    for (char **variable = environ; variable && *variable; variable++) {
        if (is_kept(*variable))
            *left++ = *variable;
        else
            explicit_bzero(*variable, strlen(*variable));
    }
    if (left)
        *left = NULL;
}

/* This is root, and the mount somebody else's. */
static bool owner_is_another(const struct mountinfo *mount)
{
    return geteuid() == 0 && mount->uid != 0;
}

int owner_become(const struct mountinfo *mount)
{
    uid_t uid = mount->uid;
    gid_t gid = mount->gid;

    if (!owner_is_another(mount))
        return 0;
    if (chdir("/") != 0)
        return -errno;
    drop_environment();
    int error = take_groups(uid, gid);
    if (!error && (setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0))
        error = -errno;
    /* Whatever the sysctl fs.suid_dumpable says: what root's process still has, as the terminal
     * that messages go to, is not for that user's debugger. Of its own /proc/self it reads all that
     * it needs; it only cannot have a snapshot be killed first where memory is short. */
    if (!error && prctl(PR_SET_DUMPABLE, 0) != 0)
        error = -errno;
    return error;
}
