/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that can be wrong is found here, before the lock is taken. */
#include "cli/load.h"

#include "base/key_name.h"
#include "model/open.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int load_check_tensor(const struct load *load, size_t index)
{
    const struct model_tensor *tensor = &load->model->tensors[index];
    const char *file = load->model->files[tensor->file].path;
    char name[KEY_NAME_BYTES];

    if (key_name_encode(tensor->name, name) != 0) {
        cli_error("%s: tensor '%.300s': a store takes names of 1 to %u bytes (/, %% and a leading "
                  ". count as three); rename it in the file",
                  file, tensor->name, GMSFS_NAME_MAX);
        return CLI_FAILURE;
    }
    if (strlen(load->values[index]) > GMSFS_VALUE_MAX) {
        cli_error("%s: tensor '%s': its description takes more than %u bytes", file, tensor->name,
                  GMSFS_VALUE_MAX);
        return CLI_FAILURE;
    }
    return CLI_OK;
}

/* Key-values of a GGUF file. */
static int load_check_entry(const struct load *load, const struct model_entry *entry)
{
    char name[KEY_NAME_BYTES];

    if (key_name_encode(entry->key, name) != 0)
        cli_error("%s: key '%.300s': a store takes names of 1 to %u bytes (/ and %% count as "
                  "three); rename it in the file",
                  load->model->files[0].path, entry->key, GMSFS_NAME_MAX);
    else if (entry->size_bytes > GMSFS_VALUE_MAX)
        cli_error("%s: key '%s' takes %zu bytes; a store takes %u", load->model->files[0].path,
                  entry->key, entry->size_bytes, GMSFS_VALUE_MAX);
    else
        return CLI_OK;
    return CLI_FAILURE;
}

static int load_describe(struct load *load)
{
    size_t count = load->model->tensor_count;
    int status = CLI_OK;

    load->values = calloc(count ? count : 1, sizeof(*load->values));
    if (!load->values || safetensors_metadata_json(load->model, &load->metadata) != 0)
        return cli_out_of_memory();
    for (size_t i = 0; status == CLI_OK && i < count; i++) {
        load->values[i] = safetensors_value_json(&load->model->tensors[i]);
        if (!load->values[i])
            return cli_out_of_memory();
        status = load_check_tensor(load, i);
    }
    for (size_t i = 0; status == CLI_OK && i < load->model->entry_count; i++)
        status = load_check_entry(load, &load->model->entries[i]);
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
static int load_sort(struct load *load)
{
    size_t count = load->model->tensor_count;

    load->order = calloc(count ? count : 1, sizeof(*load->order));
    if (!load->order)
        return cli_out_of_memory();
    for (size_t i = 0; i < count; i++)
        load->order[i] = i;
    qsort_r(load->order, count, sizeof(*load->order), load_compare, load->model->tensors);
    return CLI_OK;
}

int load_pack(struct load *load, enum gmsfs_memory memory)
{
    size_t count = load->model->tensor_count;
    struct pack_item *items = calloc(count ? count : 1, sizeof(*items));
    int error;

    if (!items)
        return cli_out_of_memory();
    for (size_t i = 0; i < count; i++) {
        const struct model_tensor *tensor = &load->model->tensors[i];
        items[i] = (struct pack_item){tensor->file, tensor->offset_bytes, tensor->size_bytes};
    }
    if (load->chunk_bytes == 0)
        load->chunk_bytes = staging_wants_few(memory)
                                ? PACK_MOST_CHUNK_BYTES
                                : pack_choose_chunk(load->model->tensor_bytes);
    error = pack_plan(items, count, load->chunk_bytes, &load->plan);
    free(items);
    if (error == -ENOMEM)
        return cli_out_of_memory();
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

int load_plan(struct load *load)
{
    struct failure failure;
    int status;

    if (model_open(load->source, load->files, load->file_count, &load->model, &failure) != 0)
        return cli_failure(&failure);
    status = load_describe(load);
    return status == CLI_OK ? load_sort(load) : status;
}

void load_plan_free(struct load *load)
{
    for (size_t i = 0; load->values && i < load->model->tensor_count; i++)
        free(load->values[i]);
    free(load->values);
    free(load->metadata);
    free(load->order);
    pack_free(&load->plan);
    safetensors_close(load->model);
}
