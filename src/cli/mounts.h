/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounts - the gmsfs mounts that this process sees
 *
 * For the commands that work on mounts. Reads only /proc/self/mountinfo, so it never touches a
 * mount, and a dead or silent one cannot block it; without /proc it looks at the given paths.
 */
#ifndef GMSFS_CLI_MOUNTS_H
#define GMSFS_CLI_MOUNTS_H

#include "base/scope.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct mount {
    uint64_t id;     /* the kernel's: tells a mount from the next one at the same place */
    uint64_t device; /* of the file system: the same for all copies of a mount */
    char *path;      /* where it is */
    char *root;      /* mounted directory of the file system: "/" unless a part is bind-mounted */
    char *source;    /* "host", or a GPU; as mount(8) shows it */
    bool read_only;  /* mounted read-only here */
    uid_t owner;     /* user that mounted it: root, or an ordinary user by fusermount3 */
};

struct mounts {
    struct mount *list; /* in the order in which they were mounted */
    size_t count;
};

/* Reads the mounts of type fuse.gmsfs; *mounts is {0} before. 0, or the errno of /proc. */
int mounts_read(struct mounts *mounts);
void mounts_free(struct mounts *mounts);

/* Frees the variable, {0} at first, at the end of the block. */
#define SCOPED_MOUNTS SCOPED(mounts_free)

/* As mounts_read; without /proc, finds the mounts that contain the paths, with id 0. -ENOENT:
 * neither /proc nor a path. */
int mounts_read_for(char *const *paths, size_t count, struct mounts *mounts);

/* Prints that the table could not be read; returns CLI_FAILURE. */
int mounts_explain(int error);

/* Finds the mount at `path`, for a command on one mount. *mount is valid until mounts_free().
 * CLI_OK; or CLI_FAILURE after the error. */
int mounts_open_at(char *path, struct mounts *mounts, const struct mount **mount);

/* Prints that `path` is no mount; returns CLI_FAILURE. */
int mounts_explain_no_mount(const struct mounts *mounts, const char *path);

/* True if a directory is the top of a gmsfs mount, by looking at it. */
bool mounts_is_top(int dir_fd);

/* Reads the mounts that another process sees, perhaps in another mount namespace. */
int mounts_read_of(pid_t pid, struct mounts *mounts);

/* Parses a text in the form of mountinfo; pure. */
void mounts_parse(const char *text, struct mounts *mounts);

/*
 * Finds the mount at `path`, or the mount that contains it if `inside`; of several the last
 * mounted. The path is made absolute from its text and the directory that contains it. NULL: none.
 */
const struct mount *mounts_find(const struct mounts *mounts, const char *path, bool inside);

/* Returns 1 if the mount is there, 0 if the mount is gone, or a negative errno. */
int mounts_has(uint64_t id);

/* Waits until the mount of that id is gone. 0 or -ETIMEDOUT. */
int mounts_wait_gone(uint64_t id, uint64_t timeout_ms);

#endif
