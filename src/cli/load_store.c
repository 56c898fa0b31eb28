/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a load in one store, which may be one of a group. */
#include "cli/load.h"

#include "base/number.h"
#include "base/scope.h"
#include "cli/progress.h"
#include "cli/store_explain.h"
#include "cli/store_memory.h"
#include "cli/store_source.h"
#include "cli/store_space.h"
#include "cli/ui.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS_PER_S  1000.0
#define US_PER_MS 1000u

/* ---- memory -------------------------------------------------------------------------------- */

/* Counts the memory that the plan needs. */
static void load_count_needed(struct load *load, uint64_t granularity_bytes)
{
    for (uint32_t i = 0; i < load->plan.allocation_count; i++)
        load->needed_bytes += number_round_up(load->plan.allocation_bytes[i], granularity_bytes);
}

/* True if more than half of that memory would be padding: --chunk is too small for the tensors. */
static bool load_is_padded(const struct load *load)
{
    return !load->keeps_files && load->model->tensor_bytes < load->needed_bytes / 2;
}

int load_check_sources(const struct load *load, const struct model *model)
{
    int status = CLI_OK;

    for (size_t i = 0; status == CLI_OK && i < model->file_count; i++)
        status = store_source_check(load->store, load->handle, model->source,
                                    model->files[i].number, model->files[i].path);
    return status;
}

/* Refuses a model that can never fit, before the lock is taken. */
int load_check_space(struct load *load)
{
    struct gmsfs_info info;
    int error = gmsfs_get_info(load->handle, &info), status;

    if (error)
        return store_explain(load->store, "look at it", error);
    status = load->keeps_files ? load_pack_files(load) : load_pack(load, info.memory);
    if (status != CLI_OK)
        return status;
    load_count_needed(load, info.granularity_bytes);
    return store_check_space(
        load->store, load->handle, load->needed_bytes,
        load_is_padded(load) ? "choose a larger --chunk, or mount with a larger size=" : NULL);
}

int load_explain_allocation(const struct load *load, int error)
{
    struct store_space space;

    if (error == -ENOMEM && !store_has_complaint(load->handle)) {
        store_get_space(load->store, load->handle, &space);
        if (space.is_known)
            return store_say_full(load->store, &space, load->needed_bytes, NULL);
    }
    if (error == -ENOSPC)
        return store_say_too_many(load->store, load->plan.allocation_count,
                                  "choose a larger --chunk, or mount");
    return store_explain_call(load->handle, &load->memory, "allocate memory", error);
}

int load_clear(struct load *load)
{
    uint32_t count = load->plan.allocation_count;

    load->slots = cli_need(calloc(count ? count : 1, sizeof(*load->slots)));
    return store_clear(load->staging, load->handle, load->store, &load->memory);
}

/* ---- metadata ------------------------------------------------------------------------------ */

/* The model whose entries the store has; NULL: none. */
static const struct model *load_get_described(const struct load *load)
{
    return load->keeps_files ? load->bound : load->model;
}

/* The entries of what was copied. */
static size_t load_bind_copied(const struct load *load, struct gmsfs_metadata *entries)
{
    for (size_t i = 0; i < load->model->tensor_count; i++) {
        const struct pack_place *place = &load->plan.places[i];
        bool is_bound = place->allocation != LOAD_NO_ALLOCATION;

        entries[i] = (struct gmsfs_metadata){
            .key = load->model->tensors[i].name,
            .value = load->values[i],
            .value_bytes = strlen(load->values[i]),
            .slot = is_bound ? load->slots[place->allocation] : GMSFS_SLOT_NONE,
            .offset = place->offset_bytes,
        };
    }
    return load->model->tensor_count;
}

static int load_put_entries(struct load *load, struct gmsfs_metadata *entries)
{
    const struct model *model = load_get_described(load);
    size_t count = load_bind_copied(load, entries), culprit = SIZE_MAX;

    if (load->bound)
        count += load_bind_tensors(load, entries + count);
    if (load->metadata)
        entries[count++] = (struct gmsfs_metadata){
            .key = SAFETENSORS_METADATA_KEY,
            .value = load->metadata,
            .value_bytes = strlen(load->metadata),
            .slot = GMSFS_SLOT_NONE,
        };
    for (size_t i = 0; model && i < model->entry_count; i++)
        entries[count++] = (struct gmsfs_metadata){
            .key = model->entries[i].key,
            .value = model->entries[i].bytes,
            .value_bytes = model->entries[i].size_bytes,
            .slot = GMSFS_SLOT_NONE,
        };
    int error = gmsfs_metadata_put_many(load->handle, entries, count, &culprit);
    if (error && culprit < count)
        cli_error("%s: the store refuses the entry '%s': %s", load->store, entries[culprit].key,
                  strerror(-error));
    else if (error)
        store_explain(load->store, "put the metadata", error);
    return error ? CLI_FAILURE : CLI_OK;
}

int load_put_metadata(struct load *load)
{
    const struct model *model = load_get_described(load);
    size_t room = load->model->tensor_count + 1 + (model ? model->entry_count : 0) +
                  (load->bound ? load->bound->tensor_count : 0);
    SCOPED_FREE struct gmsfs_metadata *entries = cli_need(calloc(room, sizeof(*entries)));

    return room > 1 || load->metadata ? load_put_entries(load, entries) : CLI_OK;
}

/* ---- the end ------------------------------------------------------------------------------- */

unsigned load_commit_flags(const struct load *load)
{
    return load->immutable ? GMSFS_COMMIT_IMMUTABLE : 0;
}

unsigned load_alloc_flags(const struct load *load)
{
    return load->immutable ? GMSFS_ALLOC_EXACT : 0;
}

void load_explain_commit(const struct load *load, int error)
{
    store_explain_commit(load->handle, &load->memory, load->immutable, error);
}

void load_print_store(const struct load *load)
{
    const struct model *model = load_get_described(load);
    size_t tensors = model ? model->tensor_count - model->value_count : 0;
    char files[32] = "";

    if (load->keeps_files)
        snprintf(files, sizeof(files), "%zu files with ", load->model->file_count);
    ui_line(stdout, "committed %s: %s%zu tensors in %" PRIu32 " allocations, generation %" PRIu64,
            load->store, files, tensors, load->plan.allocation_count, load->generation);
}

static double load_seconds(uint64_t from_ms, uint64_t to_ms)
{
    return (double)(to_ms - from_ms) / MS_PER_S;
}

void load_print_bytes(const struct load *load, uint64_t bytes)
{
    char total[PROGRESS_TOTAL_BYTES];

    progress_format_total(total, bytes, load->granted_ms, load->copied_us / US_PER_MS);
    printf("%s (plan %.2f s, lock and memory %.2f s, copy %.2f s, commit %.2f s)\n", total,
           load_seconds(load->begun_ms, load->planned_ms),
           load_seconds(load->planned_ms, load->granted_ms),
           load_seconds(load->granted_ms, load->filled_ms),
           load_seconds(load->filled_ms, clock_now_ms()));
}

void load_free(struct load *load)
{
    gmsfs_close(load->handle);
    free(load->slots);
    free(load->mappings);
    load_plan_free(load);
}
