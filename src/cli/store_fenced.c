/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_fenced.h"

#include "cli/cli.h"
#include "cli/mounts.h"
#include "cli/store_file.h"

bool store_is_fenced(const char *path)
{
    json_auto_t *info = store_info_json(path);

    return info && json_is_true(json_object_get(info, "fenced"));
}

bool store_explain_fence(const char *path, const char *doing)
{
    char *paths[] = {(char *)path};
    const struct mount *mount = NULL;
    struct mounts mounts;
    bool is_read;

    if (!store_is_fenced(path))
        return false;
    is_read = mounts_read_for(paths, 1, &mounts) == 0;
    if (is_read)
        mount = mounts_find(&mounts, path, true);
    cli_error(
        "cannot %s: %s: the mount is fenced for a checkpoint; 'gmsfs fence --status %s' tells "
        "its token to who may write both stores, and --complete TOKEN or --abort TOKEN ends "
        "it",
        doing, path, mount ? mount->path : "MOUNT");
    if (is_read)
        mounts_free(&mounts);
    return true;
}
