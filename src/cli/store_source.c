/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_source.h"

#include "base/failure.h"
#include "cli/cli.h"
#include "cli/mounts.h"
#include "cli/store_explain.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOUNT_DEPTH 3 /* directories from the deepest of a mount to its top */

int store_source_check(const char *store, gmsfs_t *handle, const struct source *source, size_t file,
                       const char *shown)
{
    uint8_t store_id[16];
    struct gmsfs_info to;

    _Static_assert(sizeof(store_id) == sizeof(to.store_id), "a store's id is as long as it says");
    if (!source_find_store(source, file, store_id))
        return CLI_OK;
    int error = gmsfs_get_info(handle, &to);
    if (error)
        return store_explain(store, "look at it", error);
    if (memcmp(store_id, to.store_id, sizeof(to.store_id)) != 0)
        return CLI_OK;
    return cli_error(
        "cannot take the RW lock: %s: %s: '%s' lies in this very store, and reading it holds "
        "the lock that writing waits for; copy it out of the mount, and load the copy",
        store, strerror(EDEADLK), shown);
}

int store_source_explain(const char *path, const char *tensor, int error, const char *why)
{
    const char *before = tensor ? "tensor '" : "", *behind = tensor ? "': " : "";

    tensor = tensor ? tensor : "";
    if (!*why && error == -ENODATA)
        return cli_error("%s: %s%s%sthe file became shorter while it was read", path, before,
                         tensor, behind);
    return cli_error("%s: %s%s%scannot read: %s%s", path, before, tensor, behind,
                     *why ? why : failure_reason(error),
                     !*why && error == -EIO ? "; check the disk" : "");
}

void store_source_tell_unfinished(struct source *source, const char *place)
{
    char text[320];

    if (!source_has_scheme(place))
        return;
    source_tell_unfinished(source, place, text, sizeof(text));
    if (text[0])
        cli_error("%s: files may be missing%s", place, text);
}

bool store_source_is_mounted(const char *dir)
{
    char path[PATH_MAX];
    bool is_mounted = false;
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), above;

    if (fd < 0 && errno == ENOENT) {
        snprintf(path, sizeof(path), "%s", dir);
        fd = open(dirname(path), O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    for (int i = 0; fd >= 0 && !is_mounted && i < MOUNT_DEPTH; i++) {
        is_mounted = mounts_is_top(fd);
        above = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        close(fd);
        fd = above;
    }
    if (fd >= 0)
        close(fd);
    return is_mounted;
}
