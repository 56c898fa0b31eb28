/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mountinfo - the table of mounts in /proc/self/mountinfo
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
    int id; /* the mount's number while it is in the tree */
    unsigned major, minor;
    char path[PATH_MAX];
    char type[32];
    unsigned uid, gid; /* the user that mounted, for FUSE; 0 if the line has none */
};

/* Parses one line; a trailing newline is allowed. -EINVAL */
int mountinfo_parse_line(const char *line, struct mountinfo *mount);

/* Finds the topmost mount at this path (absolute, without links). -ENOENT: nothing is mounted
 * there. */
int mountinfo_find_path(const char *path, struct mountinfo *mount);
/* Finds the first mount of the file system with this st_dev. -ENOENT */
int mountinfo_find_device(dev_t device, struct mountinfo *mount);
/* Returns true if this mount is still in the tree, at any path; also if the table cannot be
 * read. */
bool mountinfo_has(const struct mountinfo *mount);
/* Returns true if /proc hides the processes of other users (hidepid=). */
bool mountinfo_hides_processes(void);

#endif
