/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a GGUF file: key-values, which may lie in the store's memory, and tensors. */
#include "cli/save.h"

#include "base/number.h"
#include "tensor/gguf_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int gguf_refuse(const struct save *save, const char *key, const char *why)
{
    return cli_error("%s: '%s': %s; save it as safetensors", save->store, key, why);
}

/* ---- key-values ---------------------------------------------------------------------------- */

static bool gguf_find_pair(const void *context, const char *key, size_t key_bytes,
                           struct gguf_stored *stored)
{
    const struct reader *reader = context;
    const struct gmsfs_layout_entry *entry = reader_find(reader, key);

    if (!entry)
        return false;
    *stored = (struct gguf_stored){.key = entry->key,
                                   .key_bytes = key_bytes,
                                   .value = entry->value,
                                   .value_bytes = entry->value_bytes};
    stored->is_bound = entry->rank != GMSFS_SLOT_NONE;
    stored->allocation = entry->rank;
    stored->offset = entry->offset;
    if (entry->rank < reader->mapping_count)
        stored->room_bytes =
            number_subtract(reader->mappings[entry->rank].aligned_bytes, entry->offset);
    return true;
}

/* ---- the file ------------------------------------------------------------------------------ */

/* Adds the parts of the file to its plan. */
static int gguf_make(struct save *save, const struct gguf_order *order,
                     const struct gguf_pairs *pairs)
{
    const struct reader_tensors *tensors = &save->tensors;
    struct gguf_writer writer;

    gguf_writer_begin(&writer, &save->files->plan, order, pairs, tensors->count);
    for (size_t i = 0; i < tensors->count; i++) {
        const struct model_tensor *tensor = &tensors->list[i].tensor;
        struct gguf_type type;
        const char *why = gguf_choose_type(tensor->ggml_type, strlen(tensor->ggml_type),
                                           tensor->dtype, tensor->shape, tensor->ndim, &type);

        if (why)
            return gguf_refuse(save, tensor->name, why);
        gguf_writer_describe(&writer, tensor->name, strlen(tensor->name), &type, tensor->shape,
                             tensor->ndim, tensor->size_bytes);
    }
    if (!gguf_writer_end_header(&writer))
        return gguf_refuse(save, GGUF_ENTRY, "the file's header would have more than 100 MB");
    for (size_t i = 0; i < tensors->count; i++)
        gguf_writer_add_data(&writer, tensors->list[i].rank, tensors->list[i].offset_bytes,
                             tensors->list[i].tensor.size_bytes);
    return CLI_OK;
}

static int gguf_plan_file(struct save *save, const struct gguf_order *order,
                          const struct gguf_pairs *pairs)
{
    save->files = cli_need(calloc(2, sizeof(*save->files)));
    save->file_count = 1;
    save->files->path = cli_need(strdup(save->path));
    int status = gguf_make(save, order, pairs);
    if (status == CLI_OK && file_plan_room(&save->files->plan) != 0)
        cli_out_of_memory();
    if (status == CLI_OK)
        status = gguf_make(save, order, pairs);
    save->size_bytes = save->files->plan.size_bytes;
    save->tensors.others -= pairs->count + 1;
    return status;
}

int save_plan_gguf(struct save *save)
{
    const struct gmsfs_layout_entry *entry = reader_find(&save->reader, GGUF_ENTRY);
    struct gguf_order order;
    struct gguf_pairs pairs = {0};
    int status, error;

    if (!entry || gguf_order_parse(entry->value, entry->value_bytes, &order) != 0)
        return cli_error("%s: %s entry " GGUF_ENTRY
                         ", which 'gmsfs load' makes of a GGUF file; save it as safetensors",
                         save->store, entry ? "nothing is understood of its" : "it has no");
    error = gguf_pairs_find(&pairs, order, gguf_find_pair, &save->reader);
    if (error == -ENOMEM)
        cli_out_of_memory();
    status =
        error ? gguf_refuse(save, pairs.culprit, pairs.why) : gguf_plan_file(save, &order, &pairs);
    gguf_pairs_free(&pairs);
    return status;
}
