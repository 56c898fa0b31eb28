/* SPDX-License-Identifier: Apache-2.0 */
/* The beginning of a GGUF file: a parsed one can be written again, and is then the same, and a cut
 * one parses once the rest has come. */
#include "fuzz.h"

#include "model/gguf.h"

#include <errno.h>

static char *terminated(const struct gguf_text *text)
{
    char *copy = strndup(text->bytes, text->size_bytes);

    must(copy && strlen(copy) == text->size_bytes);
    return copy;
}

/* As in the store: rows last, blocks as bytes. */
static void take(const struct gguf_tensor *from, struct model_tensor *tensor)
{
    uint64_t size_bytes = 0;
    struct gguf_type type;

    *tensor = (struct model_tensor){.name = terminated(&from->name),
                                    .dtype = from->type.dtype,
                                    .ndim = from->ndim,
                                    .size_bytes = from->size_bytes,
                                    .shape = calloc(from->ndim + 1, sizeof(uint64_t))};
    strcpy(tensor->ggml_type, from->type.name);
    must(gguf_find_type_name(from->type.name, &type) && type.number == from->type.number);
    must(type.elements == from->type.elements && type.bytes == from->type.bytes);
    must(!gguf_find_type(type.number, &type) || type.bytes == from->type.bytes);
    for (uint32_t i = 0; i < from->ndim; i++)
        tensor->shape[from->ndim - 1 - i] = from->dims[i];
    if (from->type.dtype == SAFETENSORS_U8)
        tensor->shape[from->ndim - 1] = from->dims[0] / from->type.elements * from->type.bytes;
    if (safetensors_size(tensor->dtype, tensor->shape, tensor->ndim, &size_bytes) == 0)
        must(size_bytes == from->size_bytes);
}

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

/* Writes the header again, which has to parse as before. */
static void write_again(const struct gguf_header *header, const uint8_t *data)
{
    size_t tensors = header->tensor_count, values = header->value_count, size_bytes, culprit;
    struct model_tensor *taken = calloc(tensors + 1, sizeof(*taken));
    const struct model_tensor **list = calloc(tensors + 1, sizeof(struct model_tensor *));
    struct gguf_pair *pairs = calloc(values + 1, sizeof(*pairs));
    uint64_t *offsets = calloc(tensors + 1, sizeof(*offsets));
    struct gguf_header again;
    struct failure failure;
    const char *why;
    char *bytes;

    for (size_t i = 0; i < tensors; i++) {
        take(&header->tensors[i], &taken[i]);
        list[i] = &taken[i];
    }
    for (size_t i = 0; i < values; i++)
        pairs[i] =
            (struct gguf_pair){terminated(&header->values[i].key),
                               data + header->values[i].offset_bytes, header->values[i].size_bytes};
    struct gguf_plan plan = {header->version, header->alignment_bytes, pairs, values, list,
                             tensors};
    must(gguf_make_header(&plan, &bytes, &size_bytes, offsets, &culprit, &why) == 0);
    must(size_bytes <= header->data_offset_bytes &&
         (tensors ? size_bytes == header->data_offset_bytes
                  : header->data_offset_bytes - size_bytes < header->alignment_bytes));
    /* The padding before the data may be any bytes. */
    must(header->data_offset_bytes < header->alignment_bytes ||
         memcmp(bytes, data, header->data_offset_bytes - header->alignment_bytes) == 0);
    must(gguf_parse(bytes, size_bytes, &again, &failure) == 0);
    must(again.tensor_count == tensors && again.value_count == values);
    must(again.end_bytes == header->end_bytes);
    for (size_t i = 0; i < tensors; i++)
        must(offsets[i] == header->tensors[i].offset_bytes);
    gguf_free(&again);
    for (size_t i = 0; i < tensors; i++) {
        free(taken[i].name);
        free(taken[i].shape);
    }
    for (size_t i = 0; i < values; i++)
        free((char *)pairs[i].key);
    free(taken);
    free(list);
    free(pairs);
    free(offsets);
    free(bytes);
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
