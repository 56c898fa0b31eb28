/* SPDX-License-Identifier: Apache-2.0 */
/* Element types, sizes and strides, and the description of a tensor for torch. */
#include "base/file_entry.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "long_value.h"
#include "safetensors.h"

#define BITS_PER_BYTE     8u
#define VALUE_WORDS_BYTES 256u /* of a value, without its numbers */
#define NUMBER_BYTES      21u  /* with a comma */

struct dtype_row {
    const char *name;
    const char *torch_name;
    unsigned int bits;
};

/* Names and widths are those of the safetensors crate's Dtype and of its torch binding. */
static const struct dtype_row dtype_rows[SAFETENSORS_DTYPES] = {
    [SAFETENSORS_BOOL] = {"BOOL", "torch.bool", 8},
    [SAFETENSORS_U8] = {"U8", "torch.uint8", 8},
    [SAFETENSORS_I8] = {"I8", "torch.int8", 8},
    [SAFETENSORS_U16] = {"U16", "torch.uint16", 16},
    [SAFETENSORS_I16] = {"I16", "torch.int16", 16},
    [SAFETENSORS_U32] = {"U32", "torch.uint32", 32},
    [SAFETENSORS_I32] = {"I32", "torch.int32", 32},
    [SAFETENSORS_U64] = {"U64", "torch.uint64", 64},
    [SAFETENSORS_I64] = {"I64", "torch.int64", 64},
    [SAFETENSORS_F16] = {"F16", "torch.float16", 16},
    [SAFETENSORS_BF16] = {"BF16", "torch.bfloat16", 16},
    [SAFETENSORS_F32] = {"F32", "torch.float32", 32},
    [SAFETENSORS_F64] = {"F64", "torch.float64", 64},
    [SAFETENSORS_C64] = {"C64", "torch.complex64", 64},
    [SAFETENSORS_F8_E4M3] = {"F8_E4M3", "torch.float8_e4m3fn", 8},
    [SAFETENSORS_F8_E5M2] = {"F8_E5M2", "torch.float8_e5m2", 8},
    [SAFETENSORS_F8_E8M0] = {"F8_E8M0", "torch.float8_e8m0fnu", 8},
    [SAFETENSORS_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", "torch.float8_e4m3fnuz", 8},
    [SAFETENSORS_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", "torch.float8_e5m2fnuz", 8},
    [SAFETENSORS_F4] = {"F4", "torch.float4_e2m1fn_x2", 4},
    [SAFETENSORS_F6_E2M3] = {"F6_E2M3", "torch.uint8", 6},
    [SAFETENSORS_F6_E3M2] = {"F6_E3M2", "torch.uint8", 6},
};

const char *safetensors_dtype_name(enum safetensors_dtype dtype)
{
    return dtype_rows[dtype].name;
}

const char *safetensors_torch_name(enum safetensors_dtype dtype)
{
    return dtype_rows[dtype].torch_name;
}

int safetensors_dtype_parse(const char *name, enum safetensors_dtype *dtype)
{
    for (unsigned int i = 0; i < SAFETENSORS_DTYPES; i++) {
        if (strcmp(dtype_rows[i].name, name) == 0) {
            *dtype = (enum safetensors_dtype)i;
            return 0;
        }
    }
    return -EINVAL;
}

int safetensors_size(enum safetensors_dtype dtype, const uint64_t *shape, uint32_t ndim,
                     uint64_t *size_bytes)
{
    uint64_t bits = dtype_rows[dtype].bits;
    bool empty = false;

    /* A dimension of 0 counts as 1 here: the strides have to fit although nothing is stored. */
    for (uint32_t i = 0; i < ndim; i++) {
        if (shape[i] == 0) {
            empty = true;
            continue;
        }
        if (__builtin_mul_overflow(bits, shape[i], &bits) || bits > INT64_MAX)
            return -EOVERFLOW;
    }
    if (empty) {
        *size_bytes = 0;
        return 0;
    }
    if (bits % BITS_PER_BYTE != 0)
        return -EDOM;
    *size_bytes = bits / BITS_PER_BYTE;
    return 0;
}

void safetensors_stride(const uint64_t *shape, uint32_t ndim, uint64_t *stride)
{
    uint64_t next = 1;

    for (uint32_t i = ndim; i > 0; i--) {
        stride[i - 1] = next;
        next *= shape[i - 1] == 0 ? 1 : shape[i - 1];
    }
}

uint32_t safetensors_torch_shape(const struct model_tensor *tensor, uint64_t *shape)
{
    uint32_t ndim = tensor->ndim;
    uint64_t bits = dtype_rows[tensor->dtype].bits;

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
