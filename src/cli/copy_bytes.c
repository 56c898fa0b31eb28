/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the targets, and the bytes of the source into it (mover/spread.h). */
#include "cli/copy.h"

#include "base/failure.h"
#include "base/scope.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/store_memory.h"
#include "mover/spread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct bytes {
    struct copy *copy;
    struct progress progress;
    /* Of the last call that was refused memory; error 0: none. */
    int refusal;
    size_t target, item, count;
    bool is_made;
};

/* A signal ends the process at once while it may wait for memory. */
static int bytes_get(void *context, size_t target, size_t item, size_t count, int *fds)
{
    struct bytes *bytes = context;

    signals_defer(false);
    int error = target_get_files(&bytes->copy->targets[target], item, count, fds, &bytes->is_made);
    signals_defer(true);
    bytes->refusal = error;
    bytes->target = target;
    bytes->item = item;
    bytes->count = count;
    return error;
}

/* The rights of GPUs, streams and rings are made before: the whole time has them, the speed not. */
static void bytes_begin(void *context)
{
    struct bytes *bytes = context;

    bytes->copy->copied_us = clock_now_us();
}

static int bytes_tick(void *context, uint64_t done_bytes)
{
    struct bytes *bytes = context;

    progress_show(&bytes->progress, done_bytes);
    return signals_get() ? -ECANCELED : 0;
}

static int bytes_explain(const struct bytes *bytes, const struct spread *spread, int error)
{
    const struct copy *copy = bytes->copy;

    if (signals_get())
        return CLI_SIGNALED + signals_get();
    if (bytes->refusal)
        return target_explain_files(&copy->targets[bytes->target], bytes->item, bytes->count,
                                    bytes->is_made, bytes->refusal);
    if (spread->failure)
        return cli_error(
            "%s: cannot write to allocation '%s': %s", copy->targets[spread->failed_target].store,
            copy->made.manifest.allocations[spread->failed_item].name, strerror(-spread->failure));
    if (!store_explain_staging(copy->reader.staging))
        return cli_error("%s: cannot copy it: %s", copy->request->from,
                         failure_thread_reason(error));
    return CLI_FAILURE;
}

static uint64_t *bytes_list_sizes(const struct copy *copy, uint64_t *whole_bytes)
{
    const struct image_manifest *manifest = &copy->made.manifest;
    uint64_t *sizes = cli_need(calloc(manifest->allocation_count + 1, sizeof(*sizes)));

    *whole_bytes = 0;
    for (size_t i = 0; i < manifest->allocation_count; i++) {
        sizes[i] = manifest->allocations[i].stored_bytes;
        *whole_bytes += sizes[i] * copy->request->count;
    }
    return sizes;
}

static int bytes_fill(struct copy *copy, struct spread_target *targets, const uint64_t *sizes,
                      uint64_t whole_bytes)
{
    struct bytes bytes = {.copy = copy};
    struct spread spread = {.staging = copy->reader.staging,
                            .from = &copy->reader.memory,
                            .items = copy->reader.mappings,
                            .item_bytes = sizes,
                            .item_count = copy->made.manifest.allocation_count,
                            .targets = targets,
                            .target_count = copy->request->count,
                            .threads = copy->request->threads,
                            .at_once = TARGET_FILES_AT_ONCE,
                            .begin = bytes_begin,
                            .get = bytes_get,
                            .tick = bytes_tick,
                            .context = &bytes};

    progress_begin(&bytes.progress, "copying", whole_bytes, copy->request->quiet);
    int error = spread_run(&spread);
    copy->copied_us = clock_now_us() - copy->copied_us;
    progress_end(&bytes.progress);
    return error || signals_get() ? bytes_explain(&bytes, &spread, error) : CLI_OK;
}

/* Begins to pin the rings that threads need, beside the making of the targets' memory. */
static void bytes_warm(const struct copy *copy, uint64_t bytes_each)
{
    const struct staging_memory *from = &copy->reader.memory;
    uint64_t threads = copy->request->threads;

    for (size_t i = 0; i < copy->request->count; i++) {
        const struct staging_memory *to = &copy->targets[i].memory;
        if (staging_is_copied(from) != staging_is_copied(to))
            staging_warm(staging_is_copied(from) ? from : to, threads, bytes_each);
    }
}

int copy_bytes(struct copy *copy)
{
    size_t count = copy->request->count;
    SCOPED_FREE struct spread_target *targets = cli_need(calloc(count, sizeof(*targets)));
    uint64_t whole_bytes;
    SCOPED_FREE uint64_t *sizes = bytes_list_sizes(copy, &whole_bytes);
    int status = CLI_OK;

    bytes_warm(copy, whole_bytes / count);
    for (size_t i = 0; status == CLI_OK && i < count; i++) {
        struct target *target = &copy->targets[i];
        if (!staging_is_file(&target->memory))
            status = target_map(target);
        targets[i] =
            (struct spread_target){.memory = &target->memory, .mappings = target->mappings};
    }
    if (status == CLI_OK)
        status = bytes_fill(copy, targets, sizes, whole_bytes);
    for (size_t i = 0; status == CLI_OK && i < count; i++) {
        copy->by_host[i] = targets[i].by_host && staging_is_copied(&copy->reader.memory);
        status = target_check_hash(&copy->targets[i]);
    }
    return status;
}
