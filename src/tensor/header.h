/* SPDX-License-Identifier: Apache-2.0 */
/*
 * header - writes the header of a safetensors file: its length, JSON, and spaces up to a multiple
 * of 8
 *
 * Pure. Each header is made twice in the same way: to count its bytes, and into memory of this
 * length. The bytes of tensors follow each other in the order in which they are added.
 */
#ifndef GMSFS_TENSOR_HEADER_H
#define GMSFS_TENSOR_HEADER_H

#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tensor_header {
    char *text;          /* NULL: the bytes are only counted */
    size_t bytes;        /* so far */
    uint64_t data_bytes; /* of the tensors so far */
    bool has_members;
};

/* metadata: an object of strings in JSON without blanks; NULL: none. */
void tensor_header_begin(struct tensor_header *header, char *text, const char *metadata,
                         size_t metadata_bytes);
/* Adds a tensor. name: UTF-8 */
void tensor_header_add(struct tensor_header *header, const char *name, size_t name_bytes,
                       enum safetensors_dtype dtype, const uint64_t *shape, uint32_t ndim,
                       uint64_t size_bytes);
/* Returns the length of the header. */
size_t tensor_header_end(struct tensor_header *header);
/* Returns true if readers accept a header of this length. */
bool tensor_header_is_accepted(size_t bytes);

#endif
