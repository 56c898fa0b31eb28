/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mountinfo - what is mounted where, from /proc/self/mountinfo
 *
 * Asks the kernel's table, never a mount itself, so it cannot hang. The line parser is pure.
 */
#ifndef GMSFS_DAEMON_MOUNTINFO_H
#define GMSFS_DAEMON_MOUNTINFO_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#define MOUNTINFO_FILE "/proc/self/mountinfo"
#define MOUNTINFO_TYPE "fuse.gmsfs"

struct mountinfo {
    int id; /* of the mount, as long as it is in the tree */
    unsigned major, minor;
    char path[PATH_MAX];
    char type[32];
    unsigned uid, gid; /* of FUSE: who mounted; 0 where it does not tell */
};

/* One line; a trailing newline is fine. -EINVAL */
int mountinfo_parse_line(const char *line, struct mountinfo *mount);

/* The mount on top at this path (absolute, without links). -ENOENT: nothing is mounted there */
int mountinfo_find_path(const char *path, struct mountinfo *mount);
/* The first mount of the file system that a stat(2) named. -ENOENT */
int mountinfo_find_device(dev_t device, struct mountinfo *mount);
/* True if this mount is still in the tree, wherever; true as well when that cannot be read. */
bool mountinfo_has(const struct mountinfo *mount);
/* Whether /proc is mounted so that other users' processes cannot be looked at (hidepid=). */
bool mountinfo_hides_processes(void);

#endif
