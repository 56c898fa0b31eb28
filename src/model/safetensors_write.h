/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_write - makes the header of a safetensors file from the values in a store
 *
 * For `gmsfs save`, and for parsing the metadata value of a tensor. Pure: makes texts and plans,
 * touches no file. The counterpart of safetensors.h, which reads them.
 */
#ifndef GMSFS_MODEL_SAFETENSORS_WRITE_H
#define GMSFS_MODEL_SAFETENSORS_WRITE_H

#include "model/safetensors.h"

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define SAFETENSORS_SUFFIX ".safetensors"

/*
 * Parses a metadata value into the tensor that it describes, as a file has it: the inverse of
 * safetensors_value_json(). Sets dtype, shape (to be freed), ndim and size_bytes, the rest to
 * zeros. For sub-byte dtypes torch's bytes become elements again; 6-bit floats, which torch does
 * not know, stay U8. -ENOENT: the value describes no tensor; -EINVAL: no file can hold it, *why is
 * the reason (a constant); -ENOMEM.
 */
int safetensors_from_value(const void *value, size_t value_bytes, struct model_tensor *tensor,
                           const char **why);

/*
 * Makes the header of a file with these tensors in this order: length, JSON, and spaces up to a
 * multiple of 8; the caller frees it. metadata: an object of strings, or NULL. -EFBIG: beyond the
 * readers' limit; -ENOMEM.
 */
int safetensors_make_header(const struct model_tensor *const *tensors, size_t count,
                            json_t *metadata, char **bytes, size_t *size_bytes);

/*
 * Returns how many tensors from `first` on go into one file: as many as have at most shard_bytes
 * together (0: no limit), but at least one.
 */
size_t safetensors_shard_count(const struct model_tensor *const *tensors, size_t count,
                               size_t first, uint64_t shard_bytes);

#endif
