/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stores of a group that get the same files at the same places: one is filled from the files, the
 * others from its memory (mover/spread.h), where reading the files twice would cost more.
 */
#include "cli/load.h"

#include "base/failure.h"
#include "base/scope.h"
#include "cli/progress.h"
#include "cli/signals.h"
#include "cli/store_explain.h"
#include "cli/store_memory.h"
#include "mover/spread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define TWINS_AT_ONCE PACK_CHUNKS_BEFORE_LARGE

static bool twins_have_same_files(const struct model *one, const struct model *other)
{
    if (one->file_count != other->file_count || one->tensor_count != other->tensor_count)
        return false;
    for (size_t i = 0; i < one->file_count; i++)
        if (one->files[i].number != other->files[i].number)
            return false;
    return true;
}

static bool twins_have_same_plan(const struct pack_plan *one, const struct pack_plan *other)
{
    if (one->place_count != other->place_count || one->allocation_count != other->allocation_count)
        return false;
    for (size_t i = 0; i < one->place_count; i++)
        if (one->places[i].allocation != other->places[i].allocation ||
            one->places[i].offset_bytes != other->places[i].offset_bytes)
            return false;
    return memcmp(one->allocation_bytes, other->allocation_bytes,
                  one->allocation_count * sizeof(*one->allocation_bytes)) == 0;
}

/* Files in the page cache are read as quickly as memory is copied. */
void load_find_twins(struct load *loads, size_t count)
{
    if (!source_is_slow(loads->source))
        return;
    for (struct load *load = loads + 1; load < loads + count; load++)
        for (struct load *first = loads; !load->twin && first < load; first++)
            if (!first->twin && first->plan.allocation_count > 0 &&
                twins_have_same_files(first->model, load->model) &&
                twins_have_same_plan(&first->plan, &load->plan))
                load->twin = first;
}

/* ---- one load and its twins ---------------------------------------------------------------- */

struct twins {
    struct load *first;
    struct load **others;
    size_t count;
    struct spread_target *targets;
    struct gmsfs_mapping *mappings; /* of the first */
    struct progress progress;
    const struct load *refused; /* memory for it was refused; NULL: none */
    int refusal;
};

/* Signals are this thread's: while it waits for memory they end the process at once. */
static int twins_get(void *context, size_t target, size_t item, size_t count, int *fds)
{
    struct gmsfs_new_allocation wanted[TWINS_AT_ONCE];
    struct twins *twins = context;
    struct load *load = twins->others[target];
    int error;

    for (size_t i = 0; i < count; i++)
        wanted[i] = (struct gmsfs_new_allocation){
            .size_bytes = load->plan.allocation_bytes[item + i], .tag = LOAD_TAG};
    signals_defer(false);
    error = gmsfs_allocate_each(load->handle, wanted, count, 0, &load->slots[item]);
    signals_defer(true);
    if (!error)
        error = gmsfs_export_each(load->handle, &load->slots[item], count, GMSFS_ACCESS_WRITE, fds);
    if (error) {
        twins->refused = load;
        twins->refusal = error;
    }
    return error;
}

static int twins_tick(void *context, uint64_t done_bytes)
{
    struct twins *twins = context;

    progress_show(&twins->progress, done_bytes);
    return signals_get() ? -ECANCELED : 0;
}

static int twins_explain(const struct twins *twins, const struct spread *spread, int error)
{
    if (signals_get())
        return CLI_SIGNALED + signals_get();
    if (!error)
        return CLI_OK;
    if (twins->refused)
        return load_explain_allocation(twins->refused, twins->refusal);
    if (spread->failure)
        cli_error("%s: cannot write to its memory: %s", twins->others[spread->failed_target]->store,
                  strerror(-spread->failure));
    else if (!store_explain_staging(twins->first->staging))
        cli_error("%s: cannot pass on its bytes: %s", twins->first->store,
                  failure_thread_reason(error));
    return CLI_FAILURE;
}

static int twins_fill(struct twins *twins)
{
    const struct load *first = twins->first;
    struct spread spread = {.staging = first->staging,
                            .from = &first->memory,
                            .items = twins->mappings,
                            .item_bytes = first->plan.allocation_bytes,
                            .item_count = first->plan.allocation_count,
                            .targets = twins->targets,
                            .target_count = twins->count,
                            .threads = first->threads,
                            .at_once = TWINS_AT_ONCE,
                            .get = twins_get,
                            .tick = twins_tick,
                            .context = twins};
    int error;

    for (size_t i = 0; i < twins->count; i++)
        twins->targets[i] =
            (struct spread_target){&twins->others[i]->memory, twins->others[i]->mappings, false};
    progress_begin(&twins->progress, "passing on", first->plan.total_bytes * twins->count,
                   first->quiet);
    error = spread_run(&spread);
    progress_end(&twins->progress);
    return twins_explain(twins, &spread, error);
}

/* A GPU's memory is mapped already. */
static int twins_map(struct twins *twins)
{
    size_t mapped;
    int error;

    twins->mappings = twins->first->mappings;
    if (twins->mappings)
        return CLI_OK;
    error = gmsfs_attach_all(twins->first->handle, GMSFS_ACCESS_READ, &twins->mappings, &mapped);
    if (!error && mapped != twins->first->plan.allocation_count)
        error = -ESTALE;
    if (error)
        store_explain_call(twins->first->handle, &twins->first->memory, "map the memory", error);
    return error ? CLI_FAILURE : CLI_OK;
}

static int twins_copy(struct load *loads, size_t count, struct load *first)
{
    SCOPED_FREE struct load **others = calloc(count, sizeof(struct load *));
    SCOPED_FREE struct spread_target *targets = calloc(count, sizeof(*targets));
    struct twins twins = {.first = first, .others = others, .targets = targets};
    int status = others && targets ? CLI_OK : cli_out_of_memory();

    for (size_t i = 0; status == CLI_OK && i < count; i++)
        if (loads[i].twin == first)
            others[twins.count++] = &loads[i];
    if (status != CLI_OK || twins.count == 0)
        return status;
    status = twins_map(&twins);
    if (status == CLI_OK)
        status = twins_fill(&twins);
    if (twins.mappings != first->mappings)
        free(twins.mappings);
    return status;
}

int load_copy_twins(struct load *loads, size_t count)
{
    uint64_t start_us = cli_now_us();
    int status = CLI_OK;

    for (size_t i = 0; status == CLI_OK && i < count; i++)
        status = twins_copy(loads, count, &loads[i]);
    loads->copied_us += cli_now_us() - start_us;
    return status;
}
