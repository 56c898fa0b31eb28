/* SPDX-License-Identifier: Apache-2.0 */
/* The types of ggml, by their numbers in files. */
#include "model/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MAX_BLOCK 65536u /* elements, or bytes, of a block; ggml has 292 at most */

/* From ggml.h and ggml-common.h of llama.cpp, and GGML_QUANT_SIZES of its gguf-py, of 2026-11.
 * Types that are missing here were removed there, or do not occur in files. */
static const struct gguf_type types[] = {
    {0, "F32", 1, 4, SAFETENSORS_F32},        {1, "F16", 1, 2, SAFETENSORS_F16},
    {2, "Q4_0", 32, 18, SAFETENSORS_U8},      {3, "Q4_1", 32, 20, SAFETENSORS_U8},
    {6, "Q5_0", 32, 22, SAFETENSORS_U8},      {7, "Q5_1", 32, 24, SAFETENSORS_U8},
    {8, "Q8_0", 32, 34, SAFETENSORS_U8},      {9, "Q8_1", 32, 36, SAFETENSORS_U8},
    {10, "Q2_K", 256, 84, SAFETENSORS_U8},    {11, "Q3_K", 256, 110, SAFETENSORS_U8},
    {12, "Q4_K", 256, 144, SAFETENSORS_U8},   {13, "Q5_K", 256, 176, SAFETENSORS_U8},
    {14, "Q6_K", 256, 210, SAFETENSORS_U8},   {15, "Q8_K", 256, 292, SAFETENSORS_U8},
    {16, "IQ2_XXS", 256, 66, SAFETENSORS_U8}, {17, "IQ2_XS", 256, 74, SAFETENSORS_U8},
    {18, "IQ3_XXS", 256, 98, SAFETENSORS_U8}, {19, "IQ1_S", 256, 50, SAFETENSORS_U8},
    {20, "IQ4_NL", 32, 18, SAFETENSORS_U8},   {21, "IQ3_S", 256, 110, SAFETENSORS_U8},
    {22, "IQ2_S", 256, 82, SAFETENSORS_U8},   {23, "IQ4_XS", 256, 136, SAFETENSORS_U8},
    {24, "I8", 1, 1, SAFETENSORS_I8},         {25, "I16", 1, 2, SAFETENSORS_I16},
    {26, "I32", 1, 4, SAFETENSORS_I32},       {27, "I64", 1, 8, SAFETENSORS_I64},
    {28, "F64", 1, 8, SAFETENSORS_F64},       {29, "IQ1_M", 256, 56, SAFETENSORS_U8},
    {30, "BF16", 1, 2, SAFETENSORS_BF16},     {34, "TQ1_0", 256, 54, SAFETENSORS_U8},
    {35, "TQ2_0", 256, 66, SAFETENSORS_U8},   {39, "MXFP4", 32, 17, SAFETENSORS_U8},
    {40, "NVFP4", 64, 36, SAFETENSORS_U8},    {41, "Q1_0", 128, 18, SAFETENSORS_U8},
    {42, "Q2_0", 64, 18, SAFETENSORS_U8},
};

#define TYPES (sizeof(types) / sizeof(types[0]))

bool gguf_find_type(uint32_t number, struct gguf_type *type)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].number == number) {
            *type = types[i];
            return true;
        }
    return false;
}

bool gguf_find_type_of(enum safetensors_dtype dtype, struct gguf_type *type)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype && types[i].elements == 1) {
            *type = types[i];
            return true;
        }
    return false;
}

/* ---- types that are not in the table ------------------------------------------------------- */

static void make_type(struct gguf_type *type, uint32_t number, uint32_t elements, uint32_t bytes)
{
    *type = (struct gguf_type){
        .number = number, .elements = elements, .bytes = bytes, .dtype = SAFETENSORS_U8};
    snprintf(type->name, sizeof(type->name), "GGML%" PRIu32 "[%" PRIu32 ":%" PRIu32 "]", number,
             elements, bytes);
}

bool gguf_find_type_name(const char *name, struct gguf_type *type)
{
    uint32_t number, elements, bytes;

    for (size_t i = 0; i < TYPES; i++)
        if (strcmp(types[i].name, name) == 0) {
            *type = types[i];
            return true;
        }
    if (sscanf(name, "GGML%10" SCNu32 "[%6" SCNu32 ":%6" SCNu32 "]", &number, &elements, &bytes) !=
            3 ||
        elements == 0 || bytes == 0)
        return false;
    make_type(type, number, elements, bytes);
    return strcmp(type->name, name) == 0;
}

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
    make_type(type, tensor->type.number, (uint32_t)(tensor->dims[0] / divisor),
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
