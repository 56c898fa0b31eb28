/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf - the header of a GGUF file (llama.cpp): key-values, tensors and their types
 *
 * Pure: decodes bytes that others chose. Knows no file and no store. As strict as llama.cpp: each
 * tensor begins where the one before it ended, aligned. For the reader of models. The way back,
 * from a store to a file, is tensor/gguf_file.h. All numbers in a file are little-endian.
 */
#ifndef GMSFS_MODEL_GGUF_H
#define GMSFS_MODEL_GGUF_H

#include "base/failure.h"
#include "model/safetensors.h"
#include "tensor/gguf_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GGUF_DEFAULT_ALIGNMENT 32u

/* Points into the parsed bytes; not NUL-terminated. */
struct gguf_text {
    const char *bytes;
    size_t size_bytes;
};

struct gguf_value {
    struct gguf_text key;
    size_t offset_bytes, size_bytes; /* of the type and the value, from the start of the file */
};

struct gguf_tensor {
    struct gguf_text name;
    struct gguf_type type;
    uint32_t ndim;
    uint64_t dims[GGUF_MAX_DIMENSIONS]; /* in elements; the first is that of a row */
    uint64_t offset_bytes;              /* from the start of the file */
    uint64_t size_bytes;
};

struct gguf_header {
    uint32_t version;
    uint32_t alignment_bytes;
    uint64_t data_offset_bytes;
    uint64_t end_bytes; /* end of the last tensor */
    struct gguf_value *values;
    size_t value_count;
    struct gguf_tensor *tensors;
    size_t tensor_count;
};

/*
 * Derives the size of an unknown type from a tensor of that type and the offset of the next one: if
 * the tensor has at least as many rows as the alignment has bytes, only one row length fits. The
 * last tensor does not count: a truncated file would look like a smaller type. Returns false if no
 * tensor allows it. Offsets are as in the file.
 */
bool gguf_derive_type(const struct gguf_tensor *tensors, size_t count, uint32_t alignment,
                      uint32_t number, struct gguf_type *type);

/*
 * Parses a file's first bytes. -EAGAIN: valid so far, but more bytes of the header are needed;
 * -EINVAL with a failure that names no file; -ENOMEM. Call gguf_free() in any case. The result
 * points into `bytes`. Names and keys are UTF-8 without NUL, and every key is unique.
 */
int gguf_parse(const char *bytes, size_t size_bytes, struct gguf_header *header,
               struct failure *failure);
void gguf_free(struct gguf_header *header);

#endif
