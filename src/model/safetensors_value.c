/* SPDX-License-Identifier: Apache-2.0 */
/* The description of a tensor for torch, as a metadata value. */
#include "base/file_entry.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "safetensors.h"
#include "tensor/long_value.h"

#define BITS_PER_BYTE     8u
#define VALUE_WORDS_BYTES 256u /* of a value, without its numbers */
#define NUMBER_BYTES      21u  /* with a comma */

uint32_t safetensors_torch_shape(const struct model_tensor *tensor, uint64_t *shape)
{
    uint32_t ndim = tensor->ndim;
    uint64_t bits = safetensors_dtype_bits(tensor->dtype);

    if (ndim > 0)
        memcpy(shape, tensor->shape, ndim * sizeof(*shape));
    if (bits >= BITS_PER_BYTE)
        return ndim;
    if (ndim > 0 && shape[ndim - 1] * bits % BITS_PER_BYTE == 0) {
        shape[ndim - 1] = shape[ndim - 1] * bits / BITS_PER_BYTE;
        return ndim;
    }
    shape[0] = tensor->size_bytes;
    return 1;
}

/* Appends an array of numbers; the caller provides enough room. */
static char *put_numbers(char *at, const char *name, const uint64_t *numbers, uint32_t count)
{
    at += sprintf(at, ",\"%s\":[", name);
    for (uint32_t i = 0; i < count; i++)
        at += sprintf(at, "%s%" PRIu64, i ? "," : "", numbers[i]);
    *at++ = ']';
    return at;
}

static char *file_value_json(const struct model_tensor *file)
{
    const struct file_entry entry = {.size_bytes = file->size_bytes, .mtime_ns = file->mtime_ns};
    char value[FILE_ENTRY_VALUE_BYTES];

    file_entry_format(&entry, value);
    return strdup(value);
}

char *safetensors_value_json(const struct model_tensor *tensor)
{
    uint64_t shape[SAFETENSORS_MAX_DIMENSIONS];
    uint64_t stride[SAFETENSORS_MAX_DIMENSIONS];
    uint32_t ndim = safetensors_torch_shape(tensor, shape);
    char text[VALUE_WORDS_BYTES + 2 * SAFETENSORS_MAX_DIMENSIONS * NUMBER_BYTES], *at = text;

    if (tensor->is_file)
        return file_value_json(tensor);
    if (tensor->long_format != NULL)
        return long_value_json(tensor->long_format, tensor->size_bytes);
    safetensors_stride(shape, ndim, stride);
    at += sprintf(at, "{\"dtype\":\"%s\"", safetensors_torch_name(tensor->dtype));
    if (tensor->ggml_type[0] != '\0')
        at += sprintf(at, ",\"ggml_type\":\"%s\"", tensor->ggml_type);
    at = put_numbers(at, "shape", shape, ndim);
    at = put_numbers(at, "stride", stride, ndim);
    strcpy(at, ",\"tensor_type\":\"parameter\"}");
    return strdup(text);
}
