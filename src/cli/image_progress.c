/* SPDX-License-Identifier: Apache-2.0 */
/* The check of an image, with progress and signals. */
#include "cli/image_commands.h"

#include "base/failure.h"
#include "cli/signals.h"

#include <errno.h>

static int check_tick(void *context, uint64_t read_bytes)
{
    progress_show(context, read_bytes);
    return signals_get() ? -ECANCELED : 0;
}

int image_check_shown(const struct image_check *check, const char *verb, bool quiet,
                      uint64_t *passed_ms)
{
    struct image_check shown = *check;
    struct progress progress;
    struct failure failure;
    uint64_t whole_bytes;

    image_manifest_count_done(&check->image->manifest, &whole_bytes);
    shown.tick = check_tick;
    shown.context = &progress;
    progress_begin(&progress, verb, whole_bytes, quiet);
    int error = image_check(&shown, &failure);
    *passed_ms = progress_end(&progress);
    if (signals_get())
        return CLI_SIGNALED + signals_get();
    if (error == -ECANCELED) /* the cause was printed already */
        return CLI_FAILURE;
    return error ? cli_failure(&failure) : CLI_OK;
}
