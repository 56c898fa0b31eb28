/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/owner.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Those of the user, as at a login; a user without a name has none. */
static int take_groups(uid_t uid, gid_t gid)
{
    const struct passwd *user = getpwuid(uid);
    int failed = user ? initgroups(user->pw_name, gid) : setgroups(0, NULL);

    return failed ? -errno : 0;
}

int owner_become(const struct mountinfo *mount)
{
    uid_t uid = mount->uid;
    gid_t gid = mount->gid;

    if (geteuid() != 0 || uid == 0)
        return 0;
    close_range(STDERR_FILENO + 1, ~0u, 0); /* the caller's, which are not for that user */
    int error = take_groups(uid, gid);
    if (!error && (setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0))
        error = -errno;
    /* /proc/self is root's without it; nothing of root's was read so far. */
    if (!error && prctl(PR_SET_DUMPABLE, 1) != 0)
        error = -errno;
    return error;
}
