/* SPDX-License-Identifier: Apache-2.0 */
/* Makes entries of a store from a GGUF header, and a header from them. */
#include "model/gguf.h"

#include "base/number.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- entries ------------------------------------------------------------------------------- */

static char *dump(json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

    json_decref(json);
    return text;
}

char *gguf_entry_json(const struct gguf_header *header, json_t *keys)
{
    return dump(json_pack("{s:I, s:I, s:o}", "version", (json_int_t)header->version, "alignment",
                          (json_int_t)header->alignment_bytes, "keys", keys));
}

static bool are_strings(const json_t *keys)
{
    json_t *key;
    size_t i;

    json_array_foreach (keys, i, key) {
        if (!json_is_string(key))
            return false;
    }
    return json_is_array(keys);
}

int gguf_parse_entry(const void *value, size_t value_bytes, uint32_t *version,
                     uint32_t *alignment_bytes, json_t **keys)
{
    json_auto_t *json = json_loadb(value, value_bytes, JSON_REJECT_DUPLICATES, NULL);
    json_int_t format = json_integer_value(json_object_get(json, "version"));
    json_int_t alignment = json_integer_value(json_object_get(json, "alignment"));
    int error = -EINVAL;

    *keys = json_object_get(json, "keys");
    if ((format == 2 || format == 3) && alignment > 0 && alignment <= 1 << 20 &&
        (alignment & (alignment - 1)) == 0 && are_strings(*keys)) {
        *version = (uint32_t)format;
        *alignment_bytes = (uint32_t)alignment;
        json_incref(*keys);
        error = 0;
    }
    return error;
}

/* ---- a header ------------------------------------------------------------------------------ */

/* Counts bytes, and writes them if there is a buffer. */
struct output {
    char *bytes; /* NULL: only counts */
    size_t size_bytes;
};

static void output_put(struct output *output, const void *bytes, size_t size_bytes)
{
    if (output->bytes && size_bytes)
        memcpy(output->bytes + output->size_bytes, bytes, size_bytes);
    output->size_bytes += size_bytes;
}

static void output_u32(struct output *output, uint32_t number)
{
    number = htole32(number);
    output_put(output, &number, sizeof(number));
}

static void output_u64(struct output *output, uint64_t number)
{
    number = htole64(number);
    output_put(output, &number, sizeof(number));
}

static void output_text(struct output *output, const char *text)
{
    output_u64(output, strlen(text));
    output_put(output, text, strlen(text));
}

static bool find_type(const struct model_tensor *tensor, struct gguf_type *type)
{
    return tensor->ggml_type[0] ? gguf_find_type_name(tensor->ggml_type, type)
                                : gguf_find_type_of(tensor->dtype, type);
}

static const char *find_fault(const struct model_tensor *tensor)
{
    struct gguf_type type;

    if (!find_type(tensor, &type))
        return "its dtype is none that GGUF has";
    if (tensor->ndim > GGUF_MAX_DIMENSIONS)
        return "it has more than four dimensions";
    if (type.dtype != tensor->dtype ||
        (type.dtype == SAFETENSORS_U8 &&
         (tensor->ndim == 0 || tensor->shape[tensor->ndim - 1] % type.bytes != 0)))
        return "its dtype and shape are not those of its ggml_type";
    return NULL;
}

static void put_tensor(struct output *output, const struct model_tensor *tensor, uint64_t offset)
{
    struct gguf_type type = {0};

    find_type(tensor, &type); /* find_fault() checked that it has one */
    output_text(output, tensor->name);
    output_u32(output, tensor->ndim);
    for (uint32_t i = tensor->ndim; i > 0; i--)
        output_u64(output, type.dtype == SAFETENSORS_U8 && i == tensor->ndim
                               ? tensor->shape[i - 1] / type.bytes * type.elements
                               : tensor->shape[i - 1]);
    output_u32(output, type.number);
    output_u64(output, offset);
}

static void put_all(struct output *output, const struct gguf_plan *plan)
{
    uint64_t at = 0;

    output->size_bytes = 0;
    output_put(output, GGUF_MAGIC, strlen(GGUF_MAGIC));
    output_u32(output, plan->version);
    output_u64(output, plan->tensor_count);
    output_u64(output, plan->pair_count);
    for (size_t i = 0; i < plan->pair_count; i++) {
        output_text(output, plan->pairs[i].key);
        output_put(output, plan->pairs[i].bytes, plan->pairs[i].size_bytes);
    }
    for (size_t i = 0; i < plan->tensor_count; i++) {
        put_tensor(output, plan->tensors[i], at);
        at = number_round_up(at + plan->tensors[i]->size_bytes, plan->alignment_bytes);
    }
}

int gguf_make_header(const struct gguf_plan *plan, char **bytes, size_t *size_bytes,
                     uint64_t *offsets, size_t *culprit, const char **why)
{
    struct output output = {0};
    uint64_t at;

    for (size_t i = 0; i < plan->tensor_count; i++) {
        *culprit = i;
        *why = find_fault(plan->tensors[i]);
        if (*why)
            return -EINVAL;
    }
    put_all(&output, plan);
    if (output.size_bytes > GGUF_MAX_HEADER_BYTES)
        return -EFBIG;
    /* a file with only a vocabulary has no padding */
    *size_bytes = plan->tensor_count ? number_round_up(output.size_bytes, plan->alignment_bytes)
                                     : output.size_bytes;
    output.bytes = calloc(1, *size_bytes);
    if (!output.bytes)
        return -ENOMEM;
    put_all(&output, plan);
    *bytes = output.bytes;
    at = *size_bytes;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        offsets[i] = at;
        at = number_round_up(at + plan->tensors[i]->size_bytes, plan->alignment_bytes);
    }
    offsets[plan->tensor_count] = at;
    return 0;
}
