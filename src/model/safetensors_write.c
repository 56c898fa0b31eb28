/* SPDX-License-Identifier: Apache-2.0 */
#include "model/safetensors_write.h"

#include "model/gguf.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT     8u
#define BITS_PER_BYTE 8u

/* ---- from a value -------------------------------------------------------------------------- */

/* Several dtypes of files share torch.uint8; the first of them is U8. */
static int write_find_dtype(const char *torch_name, enum safetensors_dtype *dtype)
{
    for (unsigned i = 0; i < SAFETENSORS_DTYPES; i++) {
        if (strcmp(safetensors_torch_name((enum safetensors_dtype)i), torch_name) == 0) {
            *dtype = (enum safetensors_dtype)i;
            return 0;
        }
    }
    return -EINVAL;
}

/* Returns the elements of a dtype in one byte; 1 for dtypes of whole bytes. */
static uint64_t write_per_byte(enum safetensors_dtype dtype)
{
    uint64_t size_bytes;

    for (uint64_t count = 1; count <= BITS_PER_BYTE; count++)
        if (safetensors_size(dtype, &count, 1, &size_bytes) == 0)
            return count;
    return 1;
}

static int write_parse_numbers(const json_t *array, uint64_t *numbers)
{
    json_t *number;
    size_t i;

    json_array_foreach (array, i, number) {
        if (!json_is_integer(number) || json_integer_value(number) < 0)
            return -EINVAL;
        numbers[i] = (uint64_t)json_integer_value(number);
    }
    return 0;
}

/* Returns true if the strides are contiguous; the stride of a dimension of 1 does not matter. */
static bool write_is_contiguous(const uint64_t *shape, uint32_t ndim, const json_t *stride)
{
    uint64_t expected[SAFETENSORS_MAX_DIMENSIONS], given[SAFETENSORS_MAX_DIMENSIONS];

    if (!stride)
        return true;
    if (json_array_size(stride) != ndim || write_parse_numbers(stride, given) != 0)
        return false;
    for (uint32_t i = 0; i < ndim; i++)
        if (shape[i] == 0)
            return true;
    safetensors_stride(shape, ndim, expected);
    for (uint32_t i = 0; i < ndim; i++)
        if (shape[i] > 1 && given[i] != expected[i])
            return false;
    return true;
}

static int write_take_shape(struct model_tensor *tensor, const uint64_t *shape, uint32_t ndim,
                            const char **why)
{
    uint64_t per_byte = write_per_byte(tensor->dtype);
    int error;

    tensor->ndim = ndim ? ndim : per_byte > 1;
    tensor->shape = calloc(tensor->ndim ? tensor->ndim : 1, sizeof(*tensor->shape));
    if (!tensor->shape)
        return -ENOMEM;
    tensor->shape[0] = 1;
    if (ndim)
        memcpy(tensor->shape, shape, ndim * sizeof(*shape));
    error = tensor->ndim && __builtin_mul_overflow(tensor->shape[tensor->ndim - 1], per_byte,
                                                   &tensor->shape[tensor->ndim - 1]);
    if (!error)
        error = safetensors_size(tensor->dtype, tensor->shape, tensor->ndim, &tensor->size_bytes);
    if (!error)
        return 0;
    *why = "its shape has more elements than can be counted";
    free(tensor->shape);
    memset(tensor, 0, sizeof(*tensor));
    return -EINVAL;
}

static void write_take_ggml(const json_t *json, struct model_tensor *tensor)
{
    const char *name = json_string_value(json_object_get(json, "ggml_type"));
    struct gguf_type type;

    if (name && gguf_find_type_name(name, &type))
        strcpy(tensor->ggml_type, type.name);
}

static int write_take(const json_t *json, struct model_tensor *tensor, const char **why)
{
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    const json_t *shape = json_object_get(json, "shape");
    uint64_t numbers[SAFETENSORS_MAX_DIMENSIONS];
    uint32_t ndim;

    if (!dtype || !json_is_array(shape))
        return -ENOENT;
    *why = NULL;
    ndim = (uint32_t)json_array_size(shape);
    if (json_array_size(shape) > SAFETENSORS_MAX_DIMENSIONS)
        *why = "it has too many dimensions";
    else if (write_parse_numbers(shape, numbers) != 0)
        *why = "its shape is not made of whole numbers from 0 up";
    else if (write_find_dtype(dtype, &tensor->dtype) != 0)
        *why = "its dtype is none that safetensors has";
    else if (!write_is_contiguous(numbers, ndim, json_object_get(json, "stride")))
        *why = "its strides are not those of a contiguous tensor";
    return *why ? -EINVAL : write_take_shape(tensor, numbers, ndim, why);
}

int safetensors_from_value(const void *value, size_t value_bytes, struct model_tensor *tensor,
                           const char **why)
{
    json_auto_t *json = json_loadb(value, value_bytes, JSON_REJECT_DUPLICATES, NULL);
    int error;

    memset(tensor, 0, sizeof(*tensor));
    error = write_take(json, tensor, why);
    if (!error)
        write_take_ggml(json, tensor);
    return error;
}

/* ---- to a file ----------------------------------------------------------------------------- */

static json_t *write_describe(const struct model_tensor *tensor, uint64_t begin)
{
    uint64_t end = begin + tensor->size_bytes;
    json_t *shape = json_array();

    /* A NULL array or number makes the append fail, and NULL makes the pack fail. */
    for (uint32_t i = 0; i < tensor->ndim; i++)
        if (json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", safetensors_dtype_name(tensor->dtype), "shape",
                     shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static json_t *write_header_json(const struct model_tensor *const *tensors, size_t count,
                                 json_t *metadata)
{
    json_t *header = json_object();
    uint64_t begin = 0;
    int failed = !header;

    if (!failed && metadata)
        failed = json_object_set(header, SAFETENSORS_METADATA_KEY, metadata);
    for (size_t i = 0; !failed && i < count; i++) {
        failed =
            json_object_set_new(header, tensors[i]->name, write_describe(tensors[i], begin)) != 0;
        begin += tensors[i]->size_bytes;
    }
    if (!failed)
        return header;
    json_decref(header);
    return NULL;
}

int safetensors_make_header(const struct model_tensor *const *tensors, size_t count,
                            json_t *metadata, char **bytes, size_t *size_bytes)
{
    json_auto_t *header = write_header_json(tensors, count, metadata);
    size_t length = header ? json_dumpb(header, NULL, 0, JSON_COMPACT) : 0;
    size_t padded = (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    uint64_t prefix = htole64(padded);
    char *text = NULL;
    int error = 0;

    if (length == 0)
        error = -ENOMEM;
    else if (padded > SAFETENSORS_MAX_HEADER_BYTES)
        error = -EFBIG;
    else if (!(text = malloc(sizeof(prefix) + padded)))
        error = -ENOMEM;
    if (!error) {
        memcpy(text, &prefix, sizeof(prefix));
        memset(text + sizeof(prefix), ' ', padded);

        /* It allocates each time, so the second may fail after the first succeeded. */
        if (json_dumpb(header, text + sizeof(prefix), length, JSON_COMPACT) != length)
            error = -ENOMEM;
    }
    if (!error) {
        *bytes = text;
        *size_bytes = sizeof(prefix) + padded;
    } else {
        free(text);
    }
    return error;
}

size_t safetensors_shard_count(const struct model_tensor *const *tensors, size_t count,
                               size_t first, uint64_t shard_bytes)
{
    uint64_t used = 0;
    size_t taken = 0;

    for (size_t i = first; i < count; i++, taken++) {
        if (shard_bytes && taken && tensors[i]->size_bytes > shard_bytes - used)
            break;
        used += tensors[i]->size_bytes;
        if (shard_bytes && used > shard_bytes)
            return taken + 1;
    }
    return taken;
}
