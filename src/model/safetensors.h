/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors - model files: their tensors, and where these are
 *
 * Opens one model, given as safetensors files or as one index.json that names its shards, and
 * validates it fully before it returns: a holder of a `struct model` may copy every tensor from the
 * source without another check. As strict as the reference implementation: the tensors of
 * a file cover its data without gap or overlap. Used by `gmsfs load` and `gmsfs verify`. Reads
 * headers only, never a tensor's bytes; never writes, prints or exits. An open model is immutable
 * and may be read by many threads.
 *
 * Functions return 0 or a negative errno: -EINVAL for a malformed file, else the system's own
 * (-ENOENT, -EACCES, -EIO, -ENOMEM ...); `failure` then holds one line that names the file, the
 * tensor, the cause and the way out.
 */
#ifndef GMSFS_MODEL_SAFETENSORS_H
#define GMSFS_MODEL_SAFETENSORS_H

#include "base/failure.h"
#include "source/source.h"
#include "tensor/dtype.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* SAFETENSORS_MAX_HEADER_BYTES is also applied to index.json. */
#define SAFETENSORS_MAX_FILES 65536u

struct model_file {
    const char *path; /* as messages show it; of the source */
    size_t number;    /* in the source */
    uint64_t size_bytes;
    uint64_t data_offset_bytes; /* end of the header */
};

struct model_tensor {
    char *name;
    enum safetensors_dtype dtype;
    uint32_t file;                          /* index into model.files */
    uint32_t ndim;                          /* 0 for a scalar */
    uint64_t *shape;                        /* as in the file, in elements */
    uint64_t offset_bytes;                  /* from the start of the file */
    uint64_t size_bytes;                    /* 0 if a dimension is 0 */
    char ggml_type[SAFETENSORS_GGML_BYTES]; /* in a GGUF file; "" otherwise */
    const char *long_format; /* of long_value.h if this is no tensor but a long value; else NULL */
    bool is_file;            /* this is no tensor but a file that a store keeps whole (files.h) */
    int64_t mtime_ns;        /* of such a file, as in base/file_entry.h */
};

/* An entry without memory. */
struct model_entry {
    char *key;
    char *bytes;
    size_t size_bytes;
};

/* One pair of a file's __metadata__. */
struct model_pair {
    char *key;
    char *value;
    uint32_t file;
};

struct model {
    struct source *source;    /* the caller's */
    struct model_file *files; /* in the order given; shards of an index by name; then, if
                               * SAFETENSORS_METADATA_KEY is long, one without a name that has it */
    size_t file_count;
    struct model_tensor *tensors; /* sorted bytewise by name; names are unique */
    size_t tensor_count;
    size_t value_count;       /* number of tensors that are long values */
    struct model_pair *pairs; /* by file, then key */
    size_t pair_count;
    struct model_entry *entries; /* of a GGUF file; a safetensors file has pairs */
    size_t entry_count;
    uint64_t tensor_bytes; /* of all tensors together */
};

/*
 * Opens the files at `places`, or the shards that one index names: a place that ends in .json is an
 * index and must be the only one. On success the caller closes *model.
 */
int safetensors_open(struct source *source, const char *const *places, size_t count,
                     struct model **model, struct failure *failure);

/* Frees the model, whose files stay in the source; NULL is fine. */
void safetensors_close(struct model *model);

/* Returns the tensor of that name, or NULL. */
const struct model_tensor *safetensors_find(const struct model *model, const char *name);

/*
 * Computes torch's shape. It differs for the sub-byte dtypes alone: torch counts those in whole
 * bytes (float4_e2m1fn_x2 is a pair; 6-bit floats have no dtype of their own and are uint8), so the
 * last dimension becomes bytes, or the shape a single dimension of bytes if a row is no whole
 * number of bytes. `shape` has room for max(ndim, 1). Returns the number of dimensions.
 */
uint32_t safetensors_torch_shape(const struct model_tensor *tensor, uint64_t *shape);

/*
 * Makes the metadata value of a tensor, NUL-terminated, which the caller frees; NULL: out of
 * memory:
 * {"dtype":"torch.bfloat16","shape":[2,3],"stride":[3,1],"tensor_type":"parameter"}
 * For a tensor of a GGUF file it also has "ggml_type"; for a long value or a file only its length,
 * and the time of the file.
 */
char *safetensors_value_json(const struct model_tensor *tensor);

/*
 * Merges the __metadata__ of all files into one JSON object with sorted keys, which the caller
 * frees. If files differ about a key, the first file's value keeps the key and file N (from 1) gets
 * `key@N`; if a file has that very key with another value, `key@N@N`, and so on. 0 with *json NULL
 * if no file has any, or if it is a long value, a tensor of the model with the key
 * SAFETENSORS_METADATA_KEY; -ENOMEM.
 */
int safetensors_metadata_json(const struct model *model, char **json);

#endif
