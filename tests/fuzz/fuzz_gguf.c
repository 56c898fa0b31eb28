/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning of a GGUF file: a parsed one can be written again, and is then the same, and a cut
 * one parses once the rest has come. */
#include "fuzz.h"

#include "model/gguf.h"
#include "tensor/gguf_file.h"

#include <errno.h>

static void check_places(const struct gguf_header *header, size_t size_bytes)
{
    uint64_t end = header->data_offset_bytes;

    for (size_t i = 0; i < header->value_count; i++) {
        const struct gguf_value *value = &header->values[i];
        must(value->offset_bytes <= size_bytes);
        must(value->size_bytes <= size_bytes - value->offset_bytes && value->size_bytes > 4);
    }
    for (size_t i = 0; i < header->tensor_count; i++) {
        const struct gguf_tensor *tensor = &header->tensors[i];
        must(tensor->offset_bytes >= end);
        must(tensor->offset_bytes - end < header->alignment_bytes);
        end = tensor->offset_bytes + tensor->size_bytes;
    }
    must(end == header->end_bytes);
}

/* Adds a tensor as a store has it: rows last, blocks as bytes. */
static void describe(struct gguf_writer *writer, const struct gguf_tensor *tensor)
{
    uint64_t shape[GGUF_MAX_DIMENSIONS], size_bytes = 0;
    const char *name = tensor->type.name;
    struct gguf_type type;

    for (uint32_t i = 0; i < tensor->ndim; i++)
        shape[tensor->ndim - 1 - i] = tensor->dims[i];
    if (tensor->type.dtype == SAFETENSORS_U8)
        shape[tensor->ndim - 1] = tensor->dims[0] / tensor->type.elements * tensor->type.bytes;
    must(!gguf_choose_type(name, strlen(name), tensor->type.dtype, shape, tensor->ndim, &type));
    must(type.number == tensor->type.number && type.elements == tensor->type.elements);
    must(type.bytes == tensor->type.bytes);
    must(!gguf_find_type(type.number, &type) || type.bytes == tensor->type.bytes);
    if (safetensors_size(type.dtype, shape, tensor->ndim, &size_bytes) == 0)
        must(size_bytes == tensor->size_bytes);
    gguf_writer_describe(writer, tensor->name.bytes, tensor->name.size_bytes, &tensor->type, shape,
                         tensor->ndim, tensor->size_bytes);
}

/* The allocation of a tensor is its index. */
static void make(const struct gguf_header *header, const struct gguf_pairs *pairs,
                 struct file_plan *plan)
{
    struct gguf_order order = {.version = header->version,
                               .alignment_bytes = header->alignment_bytes};
    struct gguf_writer writer;

    gguf_writer_begin(&writer, plan, &order, pairs, header->tensor_count);
    for (size_t i = 0; i < header->tensor_count; i++)
        describe(&writer, &header->tensors[i]);
    must(gguf_writer_end_header(&writer));
    for (size_t i = 0; i < header->tensor_count; i++)
        gguf_writer_add_data(&writer, i, 0, header->tensors[i].size_bytes);
}

static void check_plan(const struct gguf_header *header, const struct file_plan *plan)
{
    uint64_t at = 0;

    for (size_t i = 0; i < plan->count; i++) {
        const struct file_extent *extent = &plan->extents[i];

        must(extent->at == at && file_plan_end(plan, i) > at);
        must(!file_extent_is_memory(extent) ||
             extent->at == header->tensors[extent->source].offset_bytes);
        at = file_plan_end(plan, i);
    }
    must(at == plan->size_bytes);
}

/* Parses the planned header, padded up to the data. */
static void check_header(const struct gguf_header *header, const struct file_plan *plan)
{
    uint64_t end = header->data_offset_bytes;
    char *bytes = calloc(1, end + 1);
    struct gguf_header again;
    struct failure failure;

    must(bytes && plan->text_bytes <= end && end - plan->text_bytes < header->alignment_bytes);
    memcpy(bytes, plan->text, plan->text_bytes);
    must(gguf_parse(bytes, header->tensor_count ? end : plan->text_bytes, &again, &failure) == 0);
    must(again.tensor_count == header->tensor_count && again.value_count == header->value_count);
    must(again.end_bytes == header->end_bytes);
    gguf_free(&again);
    free(bytes);
}

/* Plans the file again, whose header has to be the same. */
static void write_again(const struct gguf_header *header, const uint8_t *data)
{
    struct gguf_pairs pairs = {.list = calloc(header->value_count + 1, sizeof(struct gguf_pair)),
                               .count = header->value_count};
    struct file_plan plan = {0};

    for (size_t i = 0; i < header->value_count; i++) {
        const struct gguf_value *value = &header->values[i];

        pairs.list[i] = (struct gguf_pair){.key = value->key.bytes,
                                           .key_bytes = value->key.size_bytes,
                                           .bytes = data + value->offset_bytes,
                                           .size_bytes = value->size_bytes};
    }
    make(header, &pairs, &plan);
    must(file_plan_room(&plan) == 0);
    make(header, &pairs, &plan);
    must(memcmp(plan.text, data, plan.text_bytes) == 0);
    check_plan(header, &plan);
    check_header(header, &plan);
    file_plan_free(&plan);
    free(pairs.list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf_header header;
    struct failure failure = {0};
    int error = gguf_parse((const char *)data, size, &header, &failure);

    must(error == 0 || error == -EAGAIN || error == -EINVAL);
    if (error == -EINVAL)
        must(failure.text[0] && strlen(failure.text) < sizeof(failure.text));
    if (!error) {
        check_places(&header, size);
        write_again(&header, data);
    }
    gguf_free(&header);
    return 0;
}
