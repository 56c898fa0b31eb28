/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options_ignored.h"

#include <stddef.h>
#include <string.h>

/* What mount(8), fstab and mount.fuse3 pass on and what is always so here. */
static const char *const IGNORED[] = {
    "rw",
    "suid",
    "nosuid",
    "dev",
    "nodev",
    "exec",
    "noexec",
    "sync",
    "async",
    "dirsync",
    "atime",
    "noatime",
    "diratime",
    "nodiratime",
    "relatime",
    "lazytime",
    "nolazytime",
    "norelatime",
    "nomand",
    "strictatime",
    "defaults",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "_netdev",
    "nofail",
    "loud",
    "silent",
    "default_permissions",
    "nostrictatime",
};

bool options_is_ignored(const char *name, bool has_value)
{
    if (strncmp(name, "x-", 2) == 0 || strncmp(name, "X-", 2) == 0 || strcmp(name, "comment") == 0)
        return true;
    for (size_t i = 0; i < sizeof IGNORED / sizeof IGNORED[0]; i++) {
        if (!has_value && strcmp(name, IGNORED[i]) == 0)
            return true;
    }
    return false;
}
