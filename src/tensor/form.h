/* SPDX-License-Identifier: Apache-2.0 */
/*
 * form - the metadata value of a tensor, as a safetensors file describes it
 *
 * Pure. For `gmsfs save`, and for the files that the daemon makes of a store's tensors.
 */
#ifndef GMSFS_TENSOR_FORM_H
#define GMSFS_TENSOR_FORM_H

#include "tensor/dtype.h"

#include <stddef.h>

#define TENSOR_VALUE_BYTES (64u << 10) /* a longer value describes no tensor */

/* The key of the entry that `gmsfs load` makes of a GGUF file. */
#define TENSOR_GGUF_KEY "__gguf__"

struct tensor_form {
    enum safetensors_dtype dtype;
    uint32_t ndim; /* 0 for a scalar */
    uint64_t size_bytes;
    const char
        *ggml_type; /* in the value, not terminated; NULL: the tensor is not of a GGUF file */
    size_t ggml_bytes;
    uint64_t shape[SAFETENSORS_MAX_DIMENSIONS]; /* in elements */
};

/*
 * Parses a value in JSON, {"dtype":"torch.bfloat16","shape":[2,3],"stride":[3,1], ...}. For
 * sub-byte dtypes torch's bytes become elements again; 6-bit floats, which torch does not know,
 * stay U8. 0; -ENOENT: the value describes no tensor; -EINVAL: no file can hold it, *why is the
 * reason (a constant).
 */
int tensor_form_parse(const void *value, size_t value_bytes, struct tensor_form *form,
                      const char **why);

#endif
