/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/owner.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Takes the user's groups, as at a login; none for a user without a name. */
static int take_groups(uid_t uid, gid_t gid)
{
    const struct passwd *user = getpwuid(uid);
    int failed = user ? initgroups(user->pw_name, gid) : setgroups(0, NULL);

    return failed ? -errno : 0;
}

extern char **environ;

/* Returns true for variables of messages, of the service manager and of the GPU's libraries. A name
 * that ends with `=` is whole, another is a prefix. */
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

/* Overwrites the rest of root's environment: it may hold secrets, and a process that reads this
 * process's memory would find them. */
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

/* Returns true if this is root and the mount belongs to another user. */
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
    /* Independent of the sysctl fs.suid_dumpable: a debugger of that user must not reach the things
     * that root's process still has, such as the terminal that messages go to. This process still
     * reads all that it needs in its own /proc/self; it only cannot have the kernel kill a
     * snapshot's process first when memory is short. */
    if (!error && prctl(PR_SET_DUMPABLE, 0) != 0)
        error = -errno;
    return error;
}
