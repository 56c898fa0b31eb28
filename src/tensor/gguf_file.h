/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_file - plans a GGUF file (llama.cpp) of a store's key-values and tensors
 *
 * Pure. For `gmsfs save`, and for the files that the daemon shows. In a store, a key-value of the
 * file is the entry GGUF_KEY_PREFIX key. Its value is the file's bytes, from the value's type on;
 * if they are too long for an entry, they are in an allocation (long_value.h). The entry GGUF_ENTRY
 * has the rest:
 *   {"alignment":32,"keys":["general.architecture", ...],"version":3}
 * with the keys in the file's order. A value stands in the file as the store has it.
 */
#ifndef GMSFS_TENSOR_GGUF_FILE_H
#define GMSFS_TENSOR_GGUF_FILE_H

#include "base/json_scan.h"
#include "tensor/file_plan.h"
#include "tensor/form.h"
#include "tensor/gguf_types.h"

#define GGUF_MAGIC            "GGUF"
#define GGUF_KEY_PREFIX       "gguf:"
#define GGUF_ENTRY            TENSOR_GGUF_KEY
#define GGUF_MAX_DIMENSIONS   4u
#define GGUF_MAX_HEADER_BYTES SAFETENSORS_MAX_HEADER_BYTES

/* ---- key-values ---------------------------------------------------------------------------- */

/* The value of GGUF_ENTRY. */
struct gguf_order {
    uint32_t version;
    uint32_t alignment_bytes;
    struct json_scan keys; /* the next one */
    size_t key_count;
};

/* -EINVAL */
int gguf_order_parse(const void *value, size_t value_bytes, struct gguf_order *order);

/* An entry of the store. */
struct gguf_stored {
    const char *key; /* with GGUF_KEY_PREFIX; not terminated; the same for the same entry */
    size_t key_bytes;
    const void *value;
    size_t value_bytes;
    bool is_bound;       /* to memory; then: */
    uint64_t allocation; /* its number in the plan */
    uint64_t offset;
    uint64_t room_bytes; /* from the offset to the allocation's end */
};

/* Finds the entry of a key, which is terminated. */
typedef bool gguf_find(const void *context, const char *key, size_t key_bytes,
                       struct gguf_stored *stored);

struct gguf_pair {
    const char *key; /* without the prefix */
    size_t key_bytes;
    const void *bytes; /* from the type on; NULL: they are in memory */
    uint64_t size_bytes;
    uint64_t allocation, offset;
};

/* Begins as zeros. */
struct gguf_pairs {
    struct gguf_pair *list; /* in the order of the file */
    size_t count;
    char *culprit;   /* key of the entry that is the reason for -EINVAL, with the prefix */
    const char *why; /* a constant */
};

/* Finds the key-values in their order. -EINVAL with `why`; -ENOMEM. Call gguf_pairs_free() in any
 * case. */
int gguf_pairs_find(struct gguf_pairs *pairs, struct gguf_order order, gguf_find *find,
                    const void *context);
void gguf_pairs_free(struct gguf_pairs *pairs);

/* ---- the file ------------------------------------------------------------------------------ */

/* Finds the type of a tensor by the name of ggml's type, or by its dtype if it has no such name.
 * NULL, or the reason why no GGUF file can hold the tensor. */
const char *gguf_choose_type(const char *name, size_t name_bytes, enum safetensors_dtype dtype,
                             const uint64_t *shape, uint32_t ndim, struct gguf_type *type);

/* Adds the parts of a file to a plan: begin, describe each tensor, end the header, add the bytes of
 * each tensor in the same order. */
struct gguf_writer {
    struct file_plan *plan;
    uint32_t alignment_bytes;
    uint64_t tensor_count;
    uint64_t data_bytes; /* of the tensors described so far, with their padding */
};

void gguf_writer_begin(struct gguf_writer *writer, struct file_plan *plan,
                       const struct gguf_order *order, const struct gguf_pairs *pairs,
                       uint64_t tensor_count);
/* shape: as gguf_choose_type() accepted it. */
void gguf_writer_describe(struct gguf_writer *writer, const char *name, size_t name_bytes,
                          const struct gguf_type *type, const uint64_t *shape, uint32_t ndim,
                          uint64_t size_bytes);
/* Returns false if the header is longer than readers accept. */
bool gguf_writer_end_header(struct gguf_writer *writer);
void gguf_writer_add_data(struct gguf_writer *writer, uint64_t allocation, uint64_t offset,
                          uint64_t size_bytes);

#endif
