/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mounts - the gmsfs mounts that this process sees
 *
 * For the commands that are about mounts. Reads /proc/self/mountinfo alone, so it never touches a
 * mount, and a dead or silent one cannot hold it up; only where there is no /proc does it look at
 * the paths that were named.
 */
#ifndef GMSFS_CLI_MOUNTS_H
#define GMSFS_CLI_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct mount {
    uint64_t id;     /* the kernel's: tells a mount from the next one at the same place */
    uint64_t device; /* of the file system: the same for all copies of a mount */
    char *path;      /* where it is */
    char *root;      /* what of it is there: "/" unless it is a bind mount of a part */
    char *source;    /* "host", a GPU; what mount(8) shows */
    bool read_only;  /* mounted read-only here */
    uid_t owner;     /* who mounted: root itself, or an ordinary user by fusermount3 */
};

struct mounts {
    struct mount *list; /* in the order in which they were mounted */
    size_t count;
};

/* Those of type fuse.gmsfs. 0, -ENOMEM, or the errno of /proc. mounts_free() after success. */
int mounts_read(struct mounts *mounts);
void mounts_free(struct mounts *mounts);

/* The same; where there is no /proc, those that the paths lie in, with id 0. -ENOENT: neither /proc
 * nor a path. */
int mounts_read_for(char *const *paths, size_t count, struct mounts *mounts);

/* Says that the table could not be read; CLI_FAILURE. */
int mounts_explain(int error);

/* A command that is about one mount: the mount at `path` is *mount, as long as *mounts is there,
 * which mounts_free() ends. CLI_OK; or CLI_FAILURE, which is explained, and nothing is to be freed.
 */
int mounts_open_at(char *path, struct mounts *mounts, const struct mount **mount);

/* Says that `path` is no mount; CLI_FAILURE. */
int mounts_explain_no_mount(const struct mounts *mounts, const char *path);

/* Whether a directory is the top of a gmsfs mount, by looking at it. */
bool mounts_is_top(int dir_fd);

/* As another process sees them, which may be in another mount namespace. */
int mounts_read_of(pid_t pid, struct mounts *mounts);

/* The same as mounts_read from a text in the form of mountinfo; pure. */
int mounts_parse(const char *text, struct mounts *mounts);

/*
 * The mount at `path`, or the one that it lies in if `inside`; the one mounted last where several
 * are. The path is made absolute from its text and the directory that it lies in. NULL: none.
 */
const struct mount *mounts_find(const struct mounts *mounts, const char *path, bool inside);

/* Waits until the mount of that id is gone. 0 or -ETIMEDOUT. */
int mounts_wait_gone(uint64_t id, uint64_t timeout_ms);

#endif
