/* SPDX-License-Identifier: Apache-2.0 */
/* The types of ggml, by the numbers that files have. */
#include "model/gguf.h"

#include <string.h>

/* ggml.h and ggml-common.h of llama.cpp: what is not here was removed there, or is not in files. */
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
};

#define TYPES (sizeof(types) / sizeof(types[0]))

const struct gguf_type *gguf_find_type(uint32_t number)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].number == number)
            return &types[i];
    return NULL;
}

const struct gguf_type *gguf_find_type_name(const char *name)
{
    for (size_t i = 0; i < TYPES; i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

const struct gguf_type *gguf_find_type_of(enum safetensors_dtype dtype)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].dtype == dtype && types[i].elements == 1)
            return &types[i];
    return NULL;
}
