/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of a device that failed. */
#include "base/failure.h"
#include "base/thread.h"
#include "mover/staging_parts.h"

#include <stdio.h>

int staging_fail(struct staging_device *device, const char *doing, const char *text, int error)
{
    struct staging *staging = device->staging;

    SCOPED_LOCK(&staging->lock);
    if (!staging->failed_device) {
        staging->failed_device = device;
        staging->failed_doing = doing;
        staging->failed_error = error;
        snprintf(staging->failed_text, STAGING_ERROR_BYTES, "%s", text);
    }
    return error;
}

void staging_forget_failure(const struct staging_device *device)
{
    struct staging *staging = device->staging;

    SCOPED_LOCK(&staging->lock);
    if (staging->failed_device == device && !staging->is_told)
        staging->failed_device = NULL;
}

static int explain(const struct staging_kind *kind, const char *store, const char *doing,
                   const char *text, int error, struct failure *failure)
{
    return failure_set(failure, error, "cannot %s: %s: %s; %s", doing, store, text,
                       kind->way_out(text, error));
}

int staging_explain_open(const struct staging_device *device, const char *text, int error,
                         struct failure *failure)
{
    return explain(device->kind, device->store, "open the GPU", text, error, failure);
}

int staging_explain(const struct staging_memory *memory, const char *doing, const char *text,
                    int error, struct failure *failure)
{
    return explain(memory->device->kind, memory->store, doing, text, error, failure);
}

bool staging_get_failure(struct staging *staging, struct failure *failure, bool *is_told)
{
    pthread_mutex_lock(&staging->lock);
    const struct staging_device *device = staging->failed_device;
    *is_told = staging->is_told;
    staging->is_told = device != NULL;
    pthread_mutex_unlock(&staging->lock);
    if (device)
        explain(device->kind, device->store, staging->failed_doing, staging->failed_text,
                staging->failed_error, failure);
    return device != NULL;
}
