/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/store_memory.h"

#include "base/failure.h"
#include "cli/cli.h"
#include "cli/store_explain.h"
#include "cli/store_file.h"

#include <errno.h>
#include <string.h>

#define LAST_ERROR_BYTES 256

int store_open_memory(struct staging *staging, gmsfs_t *handle, const char *store,
                      struct staging_memory *memory)
{
    struct gmsfs_info info;
    struct failure failure;
    int error = gmsfs_get_info(handle, &info);

    if (error)
        return store_explain(store, "look at it", error);
    error = staging_open_memory(staging, info.memory, info.device_uuid, store, memory, &failure);
    return error ? cli_failure(&failure) : CLI_OK;
}

int store_clear(struct staging *staging, gmsfs_t *handle, const char *store,
                struct staging_memory *memory)
{
    int status = store_open_memory(staging, handle, store, memory);
    int error = status == CLI_OK ? gmsfs_clear_all_handles(handle) : 0;

    return error ? store_explain(store, "clear its contents", error) : status;
}

bool store_explain_staging(struct staging *staging)
{
    struct failure failure;
    bool is_told = false;

    if (!staging_get_failure(staging, &failure, &is_told))
        return false;
    if (!is_told)
        cli_failure(&failure);
    return true;
}

bool store_has_complaint(gmsfs_t *handle)
{
    char text[GMSFS_DEVICE_ERROR_BYTES];

    return gmsfs_device_error(handle, text) == 0 && *text;
}

int store_explain_call(gmsfs_t *handle, const struct staging_memory *memory, const char *doing,
                       int error)
{
    char text[GMSFS_DEVICE_ERROR_BYTES];
    struct failure failure;

    if (gmsfs_device_error(handle, text) != 0 || !*text)
        return store_explain(memory->store, doing, error);
    staging_explain(memory, doing, text, error, &failure);
    return cli_failure(&failure);
}

int store_explain_commit(gmsfs_t *handle, const struct staging_memory *memory, bool immutable,
                         int error)
{
    char why[LAST_ERROR_BYTES];

    if (error != -EINVAL && !(error == -EBUSY && immutable))
        return store_explain_call(handle, memory, "commit", error);
    store_last_error(memory->store, why, sizeof(why));
    return cli_error("%s: the store refuses the layout: %s", memory->store,
                     *why ? why : strerror(-error));
}
