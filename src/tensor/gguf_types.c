/* SPDX-License-Identifier: Apache-2.0 */
/* The types of ggml, by their numbers in files. */
#include "tensor/gguf_types.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

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

void gguf_make_type(struct gguf_type *type, uint32_t number, uint32_t elements, uint32_t bytes)
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
    gguf_make_type(type, number, elements, bytes);
    return strcmp(type->name, name) == 0;
}
