/* SPDX-License-Identifier: Apache-2.0 */
/* Types of ggml that are not in the table (tensor/gguf_types.h): their size follows from a file. */
#include "model/gguf.h"

#define MAX_BLOCK 65536u /* elements, or bytes, of a block; ggml has 292 at most */

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b > 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Derives the type of a tensor that takes `room_bytes`, with the padding before the next one. */
static bool derive_from(const struct gguf_tensor *tensor, uint64_t room_bytes, uint32_t alignment,
                        struct gguf_type *type)
{
    uint64_t rows = 1, row_bytes, divisor;

    for (uint32_t i = 1; i < tensor->ndim; i++)
        if (__builtin_mul_overflow(rows, tensor->dims[i], &rows))
            return false;
    if (tensor->ndim == 0 || tensor->dims[0] == 0 || rows < alignment || rows > room_bytes)
        return false;
    row_bytes = room_bytes / rows; /* any other row length would leave more room than the padding */
    divisor = common_divisor(tensor->dims[0], row_bytes);
    if (room_bytes % rows >= alignment || tensor->dims[0] / divisor > MAX_BLOCK ||
        row_bytes / divisor > MAX_BLOCK)
        return false;
    gguf_make_type(type, tensor->type.number, (uint32_t)(tensor->dims[0] / divisor),
                   (uint32_t)(row_bytes / divisor));
    return true;
}

bool gguf_derive_type(const struct gguf_tensor *tensors, size_t count, uint32_t alignment,
                      uint32_t number, struct gguf_type *type)
{
    for (size_t i = 0; i + 1 < count; i++)
        if (tensors[i].type.number == number &&
            tensors[i + 1].offset_bytes > tensors[i].offset_bytes &&
            derive_from(&tensors[i], tensors[i + 1].offset_bytes - tensors[i].offset_bytes,
                        alignment, type))
            return true;
    return false;
}
