/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_write - what a safetensors file says, made from what a store says
 *
 * For `gmsfs save`, and for whoever asks what tensor a metadata value describes. Pure: makes texts
 * and plans, touches no file. The counterpart of safetensors.h, which reads them.
 */
#ifndef GMSFS_MODEL_SAFETENSORS_WRITE_H
#define GMSFS_MODEL_SAFETENSORS_WRITE_H

#include "model/safetensors.h"

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#define SAFETENSORS_SUFFIX ".safetensors"

/*
 * The tensor that a metadata value describes, as a file has it: safetensors_value_json() backwards.
 * Sets dtype, shape (free(3)), ndim and size_bytes, the rest to zeros. Torch's bytes become
 * elements again for the dtypes below a byte; 6-bit floats, which torch does not know, stay U8.
 * -ENOENT: the value describes no tensor; -EINVAL: one that no file can hold, *why says why (a
 * constant); -ENOMEM.
 */
int safetensors_from_value(const void *value, size_t value_bytes, struct model_tensor *tensor,
                           const char **why);

/*
 * The beginning of a file whose tensors lie one behind the other in this order: length, JSON, and
 * spaces up to a multiple of 8, to be given back by free(3). metadata: an object of strings, or
 * NULL. -EFBIG: beyond what readers accept; -ENOMEM.
 */
int safetensors_make_header(const struct model_tensor *const *tensors, size_t count,
                            json_t *metadata, char **bytes, size_t *size_bytes);

/*
 * Which tensors go into one file: how many of those from `first` on, at least one. More than one
 * only as long as together they have no more than shard_bytes (0: no limit).
 */
size_t safetensors_shard_count(const struct model_tensor *const *tensors, size_t count,
                               size_t first, uint64_t shard_bytes);

#endif
