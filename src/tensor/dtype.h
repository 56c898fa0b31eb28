/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dtype - element types of safetensors files, and the size and strides of tensors of them
 *
 * Pure. For the readers of model files, and for the files that are made of a store's tensors.
 */
#ifndef GMSFS_TENSOR_DTYPE_H
#define GMSFS_TENSOR_DTYPE_H

#include <stdint.h>

/* The reference implementation's bound for a header. */
#define SAFETENSORS_MAX_HEADER_BYTES 100000000u
#define SAFETENSORS_MAX_DIMENSIONS   64u
#define SAFETENSORS_METADATA_KEY     "__metadata__"
#define SAFETENSORS_GGML_BYTES       32u /* of the name of a ggml type */

enum safetensors_dtype {
    SAFETENSORS_BOOL,
    SAFETENSORS_U8,
    SAFETENSORS_I8,
    SAFETENSORS_U16,
    SAFETENSORS_I16,
    SAFETENSORS_U32,
    SAFETENSORS_I32,
    SAFETENSORS_U64,
    SAFETENSORS_I64,
    SAFETENSORS_F16,
    SAFETENSORS_BF16,
    SAFETENSORS_F32,
    SAFETENSORS_F64,
    SAFETENSORS_C64,
    SAFETENSORS_F8_E4M3,
    SAFETENSORS_F8_E5M2,
    SAFETENSORS_F8_E8M0,
    SAFETENSORS_F8_E4M3FNUZ,
    SAFETENSORS_F8_E5M2FNUZ,
    SAFETENSORS_F4,
    SAFETENSORS_F6_E2M3,
    SAFETENSORS_F6_E3M2,
    SAFETENSORS_DTYPES,
};

/* Return the name in the file ("BF16") and torch's ("torch.bfloat16"); constant strings. */
const char *safetensors_dtype_name(enum safetensors_dtype dtype);
const char *safetensors_torch_name(enum safetensors_dtype dtype);

/* Finds the dtype of that name in a file, or -EINVAL. */
int safetensors_dtype_parse(const char *name, enum safetensors_dtype *dtype);

/* Returns the bits of an element. */
unsigned safetensors_dtype_bits(enum safetensors_dtype dtype);

/*
 * Computes the size of a tensor. -EOVERFLOW if it does not fit in 63 bits (or its strides would
 * not), -EDOM if a sub-byte dtype leaves a part of a byte over.
 */
int safetensors_size(enum safetensors_dtype dtype, const uint64_t *shape, uint32_t ndim,
                     uint64_t *size_bytes);

/* Computes row-major strides in elements, as torch does: a dimension of 0 counts as 1. */
void safetensors_stride(const uint64_t *shape, uint32_t ndim, uint64_t *stride);

#endif
