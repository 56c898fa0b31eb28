/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf - the header of a GGUF file (llama.cpp): key-values, tensors and their types
 *
 * Pure: decodes bytes that others chose, and encodes a header from the entries of a store. Knows no
 * file and no store. As strict as llama.cpp: each tensor begins where the one before it ended,
 * aligned. For the reader of models and for `gmsfs save`.
 *
 * In a store, a key-value of the file is the entry GGUF_KEY_PREFIX key. Its value is the file's
 * bytes, from the value's type on; if they are too long for an entry, they are in an allocation
 * (long_value.h). The entry GGUF_ENTRY has the rest: gguf_entry_json().
 * All numbers in a file are little-endian.
 */
#ifndef GMSFS_MODEL_GGUF_H
#define GMSFS_MODEL_GGUF_H

#include "base/failure.h"
#include "model/safetensors.h"
#include "tensor/form.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define GGUF_MAGIC             "GGUF"
#define GGUF_KEY_PREFIX        "gguf:"
#define GGUF_ENTRY             TENSOR_GGUF_KEY
#define GGUF_MAX_DIMENSIONS    4u
#define GGUF_MAX_HEADER_BYTES  SAFETENSORS_MAX_HEADER_BYTES
#define GGUF_DEFAULT_ALIGNMENT 32u

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

/* ---- in a store ---------------------------------------------------------------------------- */

/* Makes the value of GGUF_ENTRY. Takes over `keys`, JSON strings in the file's order. The caller
 * frees the result; NULL: out of memory. */
char *gguf_entry_json(const struct gguf_header *header, json_t *keys);

/* Parses the value of GGUF_ENTRY: keys are strings in the file's order, with a reference for the
 * caller. -EINVAL. */
int gguf_parse_entry(const void *value, size_t value_bytes, uint32_t *version,
                     uint32_t *alignment_bytes, json_t **keys);

/* ---- to a file ----------------------------------------------------------------------------- */

struct gguf_pair {
    const char *key;
    const void *bytes; /* from the type on */
    size_t size_bytes;
};

struct gguf_plan {
    uint32_t version;
    uint32_t alignment_bytes;
    const struct gguf_pair *pairs;
    size_t pair_count;
    const struct model_tensor *const *tensors; /* in the order of the file */
    size_t tensor_count;
};

/*
 * Makes the header up to the data, which the caller frees, and the offset of each tensor; after
 * these, the file's end. -EINVAL with `culprit`, a tensor that GGUF cannot hold, and why; -EFBIG
 * beyond GGUF_MAX_HEADER_BYTES; -ENOMEM.
 */
int gguf_make_header(const struct gguf_plan *plan, char **bytes, size_t *size_bytes,
                     uint64_t *offsets, size_t *culprit, const char **why);

#endif
