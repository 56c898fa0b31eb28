/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_types - the types of ggml, by their numbers and names
 *
 * Pure. For the reader of GGUF files, and for the files that are made of a store.
 */
#ifndef GMSFS_TENSOR_GGUF_TYPES_H
#define GMSFS_TENSOR_GGUF_TYPES_H

#include "tensor/dtype.h"

#include <stdbool.h>
#include <stdint.h>

/* A type of ggml: a row's bytes per block of elements. */
struct gguf_type {
    uint32_t number;
    char name[SAFETENSORS_GGML_BYTES];
    uint32_t elements, bytes;
    enum safetensors_dtype dtype; /* U8 for blocks, for which torch has no type */
};

/* Each fills in the type, or returns false if there is none. */
bool gguf_find_type(uint32_t number, struct gguf_type *type);
/* Finds a type by ggml's name, or by the name of a derived type: GGML43[16:9] is number 43 with 9
 * bytes for 16 elements. */
bool gguf_find_type_name(const char *name, struct gguf_type *type);
/* Finds the type whose elements have that dtype. */
bool gguf_find_type_of(enum safetensors_dtype dtype, struct gguf_type *type);
/* Makes a type that the table lacks. */
void gguf_make_type(struct gguf_type *type, uint32_t number, uint32_t elements, uint32_t bytes);

#endif
