/* SPDX-License-Identifier: Apache-2.0 */
/* Lists all files below a directory, through the links that stay in it or lead into its hub cache.
 */
#include "source/source_files_list.h"

#include "base/scope.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A directory that is being read, and those that it was reached through. */
struct level {
    const struct level *above;
    dev_t device;
    ino_t inode;
};

struct walk {
    struct source_list *list;
    struct failure *failure;
    const struct source_files_bounds *bounds;
};

static int fail_system(const struct walk *walk, const char *path, const char *doing)
{
    int error = -errno;

    return source_fail(walk->failure, error, path, "cannot %s: %s", doing, strerror(-error));
}

static bool lies_in(const char *path, const char *directory)
{
    size_t bytes = directory ? strlen(directory) : 0;

    return directory && strncmp(path, directory, bytes) == 0 &&
           (path[bytes] == '/' || strcmp(directory, "/") == 0);
}

bool source_files_is_within(const struct source_files_bounds *bounds, const char *path)
{
    return lies_in(path, bounds->root) || lies_in(path, bounds->blobs);
}

static bool is_above(const struct level *level, const struct stat *status)
{
    for (; level; level = level->above)
        if (level->device == status->st_dev && level->inode == status->st_ino)
            return true;
    return false;
}

/* Follows a symbolic link; *status is its target's. */
static int follow(const struct walk *walk, const char *path, const struct level *above,
                  struct stat *status)
{
    SCOPED_FREE char *real = realpath(path, NULL);

    if (!real || lstat(real, status) < 0)
        return fail_system(walk, path, "follow this link");
    if (S_ISDIR(status->st_mode) && is_above(above, status))
        return source_fail(walk->failure, -EINVAL, path,
                           "is a link to a directory that it lies in; remove it");
    if (lies_in(real, walk->bounds->root) ||
        (S_ISREG(status->st_mode) && source_files_is_within(walk->bounds, real)))
        return 0;
    return source_fail(
        walk->failure, -EINVAL, path,
        "is a link to '%.300s', outside of the directory; copy the file to its place", real);
}

static int list_below(const struct walk *walk, const char *path, const char *prefix,
                      const struct level *above);

static int list_name(const struct walk *walk, const char *path, const char *name,
                     const struct level *above)
{
    struct stat status;
    int error = 0;

    if (lstat(path, &status) < 0)
        return fail_system(walk, path, "look at it");
    if (S_ISLNK(status.st_mode))
        error = follow(walk, path, above, &status);
    if (error)
        return error;
    if (S_ISDIR(status.st_mode))
        return list_below(walk, path, name, above);
    if (!S_ISREG(status.st_mode))
        return source_fail(walk->failure, -EINVAL, path,
                           "is neither a file nor a directory; remove it");
    error = source_list_add(walk->list, name, (uint64_t)status.st_size, false);
    return error ? source_fail(walk->failure, error, path, "cannot list it: %s",
                               failure_reason(error))
                 : 0;
}

static int list_names(const struct walk *walk, const char *path, const char *prefix,
                      const struct level *level, struct dirent **names, int count)
{
    int error = 0;

    for (int i = 0; !error && i < count; i++) {
        const char *name = names[i]->d_name;

        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        SCOPED_FREE char *child = source_join(path, name);
        SCOPED_FREE char *below = source_join(prefix, name);
        error = child && below ? list_name(walk, child, below, level)
                               : failure_no_memory(walk->failure);
    }
    return error;
}

/* The depth is bounded by the length of a path. */
static int list_below(const struct walk *walk, const char *path, const char *prefix,
                      const struct level *above)
{
    struct level level = {.above = above};
    struct dirent **names = NULL;
    struct stat status;

    if (stat(path, &status) < 0)
        return fail_system(walk, path, "look at it");
    level.device = status.st_dev;
    level.inode = status.st_ino;
    int count = scandir(path, &names, NULL, alphasort);
    if (count < 0)
        return fail_system(walk, path, "read this directory");
    int error = list_names(walk, path, prefix, &level, names, count);
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    return error;
}

/* blobs/ stands beside snapshots/ in a hub's cache. */
static int find_blobs(struct source_files_bounds *bounds, struct failure *failure)
{
    SCOPED_FREE char *blobs = NULL;
    const char *revision = strrchr(bounds->root, '/');
    size_t above = (size_t)(revision - bounds->root), bytes = strlen("/snapshots");

    if (above < bytes || memcmp(revision - bytes, "/snapshots", bytes) != 0)
        return 0;
    if (asprintf(&blobs, "%.*s/blobs", (int)(above - bytes), bounds->root) < 0)
        return failure_no_memory(failure);
    bounds->blobs = realpath(blobs, NULL);
    return 0;
}

int source_files_bound(struct source_files_bounds *bounds, const char *tree,
                       struct failure *failure)
{
    int error;

    if (bounds->tree && strcmp(bounds->tree, tree) == 0)
        return 0;
    source_files_unbound(bounds);
    bounds->root = realpath(tree, NULL);
    if (!bounds->root) {
        error = -errno;
        return source_fail(failure, error, tree, "cannot find this directory: %s",
                           strerror(-error));
    }
    bounds->tree = strdup(tree);
    return bounds->tree ? find_blobs(bounds, failure) : failure_no_memory(failure);
}

void source_files_unbound(struct source_files_bounds *bounds)
{
    free(bounds->tree);
    free(bounds->root);
    free(bounds->blobs);
    *bounds = (struct source_files_bounds){0};
}

int source_files_tree(struct source_files_bounds *bounds, const char *tree,
                      struct source_list *list, struct failure *failure)
{
    const struct walk walk = {.list = list, .failure = failure, .bounds = bounds};
    int error = source_files_bound(bounds, tree, failure);

    return error ? error : list_below(&walk, tree, "", NULL);
}
