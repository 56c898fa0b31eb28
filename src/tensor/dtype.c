/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/dtype.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define BITS_PER_BYTE 8u

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

unsigned safetensors_dtype_bits(enum safetensors_dtype dtype)
{
    return dtype_rows[dtype].bits;
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
