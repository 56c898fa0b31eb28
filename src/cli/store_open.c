/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_open.h"

#include "cli/cli.h"
#include "cli/mounts.h"
#include "cli/store_explain.h"

#include <errno.h>

/* inside: in one, also where it is not there. */
static bool store_is_mount(const char *path, bool inside)
{
    SCOPED_MOUNTS struct mounts mounts = {0};

    if (mounts_read(&mounts) != 0)
        return inside; /* as if there were one: the common case */
    return mounts_find(&mounts, path, inside) != NULL;
}

bool store_could_be(const char *path)
{
    return store_is_mount(path, true);
}

static int store_explain_open(const char *path, int error)
{
    switch (error) {
    case -ENOENT:
        if (store_is_mount(path, true))
            return cli_error(
                "%s: no such store; 'gmsfs status' lists those there are, 'gmsfs load' or "
                "'mkdir %s' makes this one",
                path, path);
        return cli_error("%s: there is no gmsfs mount here; 'gmsfs status' lists the mounts, and "
                         "'gmsfs mount' makes one, also in the place of a dead one",
                         path);
    case -ENOTTY:
    case -ENOTDIR:
        if (store_is_mount(path, false))
            return cli_error(
                "%s: not a gmsfs store, but a mount: name a store in it, such as %s/weights", path,
                path);
        return cli_error("%s: not a gmsfs store; a store is a directory at the top of a gmsfs "
                         "mount, and 'gmsfs status' lists them",
                         path);
    default:
        return store_explain(path, "open the store", error);
    }
}

int store_open(const char *path, gmsfs_t **handle)
{
    int error = gmsfs_open(path, handle);

    return error ? store_explain_open(path, error) : CLI_OK;
}

int store_check(const char *path)
{
    gmsfs_t *handle;
    int status = store_open(path, &handle);

    if (status == CLI_OK)
        gmsfs_close(handle);
    return status;
}
