/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that can be wrong is found here, before the lock is taken. */
#include "cli/load.h"

#include "base/file_entry.h"
#include "base/key_name.h"
#include "base/scope.h"
#include "cli/store_source.h"
#include "model/open.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int load_check_tensor(const struct model *model, size_t index, const char *value)
{
    const struct model_tensor *tensor = &model->tensors[index];
    const char *file = model->files[tensor->file].path;
    char name[KEY_NAME_BYTES];

    if (key_name_encode(tensor->name, name) != 0)
        return cli_error(
            "%s: tensor '%.300s': a store takes names of 1 to %u bytes (/, %% and a leading "
            ". count as three); rename it in the file",
            file, tensor->name, GMSFS_NAME_MAX);
    if (!tensor->is_file && strncmp(tensor->name, FILE_ENTRY_PREFIX, FILE_ENTRY_PREFIX_BYTES) == 0)
        return cli_error(
            "%s: tensor '%s': its name means something else in a store; rename it in the file",
            file, tensor->name);
    if (strlen(value) > GMSFS_VALUE_MAX)
        return cli_error("%s: tensor '%s': its description takes more than %u bytes", file,
                         tensor->name, GMSFS_VALUE_MAX);
    return CLI_OK;
}

/* Key-values of a GGUF file. */
static int load_check_entry(const struct model *model, const struct model_entry *entry)
{
    char name[KEY_NAME_BYTES];

    if (key_name_encode(entry->key, name) != 0)
        return cli_error(
            "%s: key '%.300s': a store takes names of 1 to %u bytes (/ and %% count as "
            "three); rename it in the file",
            model->files[0].path, entry->key, GMSFS_NAME_MAX);
    if (entry->size_bytes > GMSFS_VALUE_MAX)
        return cli_error("%s: key '%s' takes %zu bytes; a store takes %u", model->files[0].path,
                         entry->key, entry->size_bytes, GMSFS_VALUE_MAX);
    return CLI_OK;
}

static int load_describe(const struct model *model, char ***values)
{
    size_t count = model->tensor_count;
    int status = CLI_OK;

    *values = cli_need(calloc(count ? count : 1, sizeof(**values)));
    for (size_t i = 0; status == CLI_OK && i < count; i++) {
        (*values)[i] = cli_need(safetensors_value_json(&model->tensors[i]));
        status = load_check_tensor(model, i, (*values)[i]);
    }
    for (size_t i = 0; status == CLI_OK && i < model->entry_count; i++)
        status = load_check_entry(model, &model->entries[i]);
    return status;
}

static int load_compare(const void *left, const void *right, void *context)
{
    const struct model_tensor *tensors = context;
    const struct model_tensor *a = &tensors[*(const size_t *)left];
    const struct model_tensor *b = &tensors[*(const size_t *)right];

    if (a->file != b->file)
        return a->file < b->file ? -1 : 1;
    return (a->offset_bytes > b->offset_bytes) - (a->offset_bytes < b->offset_bytes);
}

/* Files are read from front to back. */
static void load_sort(struct load *load)
{
    size_t count = load->model->tensor_count;

    load->order = cli_need(calloc(count ? count : 1, sizeof(*load->order)));
    for (size_t i = 0; i < count; i++)
        load->order[i] = i;
    qsort_r(load->order, count, sizeof(*load->order), load_compare, load->model->tensors);
}

int load_pack(struct load *load, enum gmsfs_memory memory)
{
    size_t count = load->model->tensor_count;
    SCOPED_FREE struct pack_item *items = cli_need(calloc(count ? count : 1, sizeof(*items)));

    for (size_t i = 0; i < count; i++) {
        const struct model_tensor *tensor = &load->model->tensors[i];
        items[i] = (struct pack_item){tensor->file, tensor->offset_bytes, tensor->size_bytes};
    }
    if (load->chunk_bytes == 0)
        load->chunk_bytes = staging_wants_few(memory)
                                ? PACK_MOST_CHUNK_BYTES
                                : pack_choose_chunk(load->model->tensor_bytes);
    int error = pack_plan(items, count, load->chunk_bytes, &load->plan);
    if (error == -ENOMEM)
        cli_out_of_memory();
    if (error)
        cli_error("the tensors do not fit into allocations of %" PRIu64 " bytes: %s; choose "
                  "another --chunk",
                  load->chunk_bytes, strerror(-error));
    return error ? CLI_FAILURE : CLI_OK;
}

int load_check_parts(const char *const *files, size_t count)
{
    struct failure failure;

    return model_check_parts(files, count, &failure) == 0 ? CLI_OK : cli_failure(&failure);
}

static int load_open_tensors(struct load *load)
{
    struct failure failure;

    return model_open(load->source, load->files, load->file_count, &load->model, &failure) == 0
               ? CLI_OK
               : cli_failure(&failure);
}

int load_plan(struct load *load)
{
    int status = load->keeps_files ? load_open_files(load) : load_open_tensors(load);
    const struct model *described = load->keeps_files ? load->bound : load->model;

    if (status == CLI_OK && described && safetensors_metadata_json(described, &load->metadata) != 0)
        cli_out_of_memory();
    for (size_t i = 0; status == CLI_OK && i < load->file_count; i++)
        store_source_tell_unfinished(load->source, load->files[i]);
    if (status == CLI_OK)
        status = load_describe(load->model, &load->values);
    if (status == CLI_OK && load->bound)
        status = load_describe(load->bound, &load->bound_values);
    if (status == CLI_OK)
        load_sort(load);
    return status;
}

void load_plan_free(struct load *load)
{
    for (size_t i = 0; load->values && i < load->model->tensor_count; i++)
        free(load->values[i]);
    free(load->values);
    load_free_files(load);
    free(load->metadata);
    free(load->order);
    pack_free(&load->plan);
    safetensors_close(load->model);
}
