/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf - the beginning of a GGUF file, of llama.cpp: its key-values, and its tensors and their
 * types
 *
 * Pure: decodes bytes that others chose, and makes such bytes of what a store says. Knows no file
 * and no store. As strict as llama.cpp: each tensor begins where the one before it ended, aligned.
 * Used by the reader of models and by `gmsfs save`.
 *
 * In a store, a key-value of the file is the entry GGUF_KEY_PREFIX key. Its value are the file's
 * bytes, from the value's type on; where those are more than an entry may have, they lie in an
 * allocation (long_value.h). GGUF_ENTRY says the rest: gguf_entry_json().
 * All numbers in a file are little-endian.
 */
#ifndef GMSFS_MODEL_GGUF_H
#define GMSFS_MODEL_GGUF_H

#include "base/failure.h"
#include "model/safetensors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define GGUF_MAGIC             "GGUF"
#define GGUF_KEY_PREFIX        "gguf:"
#define GGUF_ENTRY             "__gguf__"
#define GGUF_MAX_DIMENSIONS    4u
#define GGUF_MAX_HEADER_BYTES  SAFETENSORS_MAX_HEADER_BYTES
#define GGUF_DEFAULT_ALIGNMENT 32u

/* A type of ggml: so many bytes hold so many elements of a row. */
struct gguf_type {
    uint32_t number;
    char name[SAFETENSORS_GGML_BYTES];
    uint32_t elements, bytes;
    enum safetensors_dtype dtype; /* U8 for blocks, which torch has no type for */
};

/* Each fills in the type, or returns false: there is none. */
bool gguf_find_type(uint32_t number, struct gguf_type *type);
/* By ggml's name, or by that of a type whose size a file told: GGML43[16:9], number 43, 9 bytes for
 * 16 elements. */
bool gguf_find_type_name(const char *name, struct gguf_type *type);
/* The type of that dtype's elements, one by one. */
bool gguf_find_type_of(enum safetensors_dtype dtype, struct gguf_type *type);

/* Not NUL-terminated; of the bytes that were parsed. */
struct gguf_text {
    const char *bytes;
    size_t size_bytes;
};

struct gguf_value {
    struct gguf_text key;
    size_t offset_bytes, size_bytes; /* of its type and what follows, from the file's beginning */
};

struct gguf_tensor {
    struct gguf_text name;
    struct gguf_type type;
    uint32_t ndim;
    uint64_t dims[GGUF_MAX_DIMENSIONS]; /* elements; the first is that of a row */
    uint64_t offset_bytes;              /* from the file's beginning */
    uint64_t size_bytes;
};

struct gguf_header {
    uint32_t version;
    uint32_t alignment_bytes;
    uint64_t data_offset_bytes;
    uint64_t end_bytes; /* where the last tensor ends */
    struct gguf_value *values;
    size_t value_count;
    struct gguf_tensor *tensors;
    size_t tensor_count;
};

/*
 * Finds how many bytes a type takes that nobody knows, by a tensor of it and the beginning of the
 * next one: where it has as many rows as the alignment has bytes, or more, rows have one possible
 * length. The last tensor tells nothing: a file that is cut off would look like a smaller type.
 * false: the file does not tell it. The offsets are as the file has them.
 */
bool gguf_derive_type(const struct gguf_tensor *tensors, size_t count, uint32_t alignment,
                      uint32_t number, struct gguf_type *type);

/*
 * Parses a file's first bytes. -EAGAIN: they are fine, and the header goes on behind them; -EINVAL
 * with a failure that names no file; -ENOMEM. gguf_free() in any case. What is returned points into
 * `bytes`. Names and keys are UTF-8 without NUL, and no key is there twice.
 */
int gguf_parse(const char *bytes, size_t size_bytes, struct gguf_header *header,
               struct failure *failure);
void gguf_free(struct gguf_header *header);

/* ---- in a store ---------------------------------------------------------------------------- */

/* The keys are json strings, as they stand in the file. Takes them. free(3) by the caller; NULL
 * when out of memory. */
char *gguf_entry_json(const struct gguf_header *header, json_t *keys);

/* What GGUF_ENTRY says: the keys in their order, strings. The caller has a reference. -EINVAL. */
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
    const struct model_tensor *const *tensors; /* as they shall lie in the file */
    size_t tensor_count;
};

/*
 * The beginning of the file up to its data, and where each tensor then begins; behind these, where
 * the file ends. free(3) the bytes.
 * -EINVAL with `culprit`, a tensor that GGUF cannot hold, and why; -EFBIG beyond
 * GGUF_MAX_HEADER_BYTES; -ENOMEM.
 */
int gguf_make_header(const struct gguf_plan *plan, char **bytes, size_t *size_bytes,
                     uint64_t *offsets, size_t *culprit, const char **why);

#endif
