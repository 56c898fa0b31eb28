/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a load that keeps files byte for byte, and binds their tensors inside of them. */
#include "cli/load.h"

#include "base/number.h"
#include "cli/ui.h"
#include "model/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A file of this size is an allocation: engines map large files, and only a whole allocation can be
 * mapped. A GPU rounds an allocation up to 2 MiB, so it takes no more than twice its size. */
#define FILES_LARGE_BYTES ((uint64_t)1 << 20)
#define FILES_ALIGN_BYTES 64u /* of small files that share an allocation */

/* ---- the plan ------------------------------------------------------------------------------ */

/* True for the file without a name that has a long SAFETENSORS_METADATA_KEY of all files together:
 * the files that are kept have it too. */
static bool files_is_made(const struct model *bound, size_t file)
{
    const struct model_tensor *value = safetensors_find(bound, SAFETENSORS_METADATA_KEY);

    return value && value->long_format && value->file == file;
}

static int files_bind(struct load *load, struct failure *failure)
{
    const struct model *bound = load->bound;

    load->bound_files = calloc(bound->file_count + 1, sizeof(*load->bound_files));
    if (!load->bound_files)
        return failure_no_memory(failure);
    for (size_t i = 0; i < bound->file_count; i++) {
        int error = files_is_made(bound, i)
                        ? 0
                        : files_find(load->model, &bound->files[i], &load->bound_files[i], failure);
        if (error)
            return error;
    }
    return 0;
}

int load_open_files(struct load *load)
{
    struct failure failure;
    int error = files_open(load->source, load->files, load->file_count, &load->model, &failure);

    if (!error)
        error =
            files_open_model(load->source, load->files, load->file_count, &load->bound, &failure);
    if (error == -ENOTUNIQ) {
        ui_line(stderr, "the files are kept without tensors: %s", failure.text);
        return CLI_OK;
    }
    if (!error && load->bound)
        error = files_bind(load, &failure);
    return error ? cli_failure(&failure) : CLI_OK;
}

void load_free_files(struct load *load)
{
    for (size_t i = 0; load->bound_values && i < load->bound->tensor_count; i++)
        free(load->bound_values[i]);
    free(load->bound_values);
    free(load->bound_files);
    safetensors_close(load->bound);
}

/* ---- places -------------------------------------------------------------------------------- */

static bool files_has_tensors(const struct load *load, size_t file)
{
    for (size_t i = 0; load->bound && i < load->bound->file_count; i++)
        if (load->bound_files[i] == file && !files_is_made(load->bound, i))
            return true;
    return false;
}

/* Adds a file behind the small ones, whose allocation is the first. */
static void files_place_small(struct load *load, struct pack_place *place, uint64_t size_bytes)
{
    uint64_t *room = &load->plan.allocation_bytes[0];

    *place = (struct pack_place){0, number_round_up(*room, FILES_ALIGN_BYTES)};
    *room = place->offset_bytes + size_bytes;
}

int load_pack_files(struct load *load)
{
    const struct model *files = load->model;
    struct pack_plan *plan = &load->plan;
    bool any_small = false;

    plan->place_count = files->tensor_count;
    plan->places = cli_need(calloc(files->tensor_count + 1, sizeof(*plan->places)));
    plan->allocation_bytes =
        cli_need(calloc(files->tensor_count + 1, sizeof(*plan->allocation_bytes)));
    for (size_t i = 0; i < files->tensor_count; i++) {
        uint64_t bytes = files->tensors[i].size_bytes;
        bool is_large = bytes >= FILES_LARGE_BYTES || files_has_tensors(load, i);

        plan->places[i].allocation = bytes > 0 && is_large ? 1 : LOAD_NO_ALLOCATION;
        if (bytes > 0 && !is_large) {
            any_small = true;
            files_place_small(load, &plan->places[i], bytes);
        }
    }
    plan->allocation_count = any_small;
    for (size_t i = 0; i < files->tensor_count; i++)
        if (plan->places[i].allocation == 1) {
            plan->places[i].allocation = plan->allocation_count;
            plan->allocation_bytes[plan->allocation_count++] = files->tensors[i].size_bytes;
        }
    load->chunk_bytes = pack_choose_chunk(files->tensor_bytes);
    return CLI_OK;
}

/* ---- tensors ------------------------------------------------------------------------------- */

/* A tensor without bytes lies at the start of its file: behind the last byte there may be no
 * memory. */
size_t load_bind_tensors(const struct load *load, struct gmsfs_metadata *entries)
{
    const struct model *bound = load->bound;
    size_t count = 0;

    for (size_t i = 0; i < bound->tensor_count; i++) {
        const struct model_tensor *tensor = &bound->tensors[i];
        const struct pack_place *file = &load->plan.places[load->bound_files[tensor->file]];

        if (files_is_made(bound, tensor->file))
            continue;
        entries[count++] = (struct gmsfs_metadata){
            .key = tensor->name,
            .value = load->bound_values[i],
            .value_bytes = strlen(load->bound_values[i]),
            .slot = load->slots[file->allocation],
            .offset = file->offset_bytes + (tensor->size_bytes ? tensor->offset_bytes : 0),
        };
    }
    return count;
}
