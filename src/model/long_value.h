/* SPDX-License-Identifier: Apache-2.0 */
/*
 * long_value - what a file has beside its tensors and that is too long for an entry
 *
 * Pure. Such a value lies in an allocation, and its entry, which is bound to that, says the format
 * of the file and how many bytes the value has. For the readers of model files, and for `gmsfs
 * save`, which gives them back.
 */
#ifndef GMSFS_MODEL_LONG_VALUE_H
#define GMSFS_MODEL_LONG_VALUE_H

#include <stddef.h>
#include <stdint.h>

/* What an entry may have; what is longer lies in an allocation. */
#define LONG_VALUE_BYTES (1u << 20)

#define LONG_VALUE_GGUF        "gguf"
#define LONG_VALUE_SAFETENSORS "safetensors"

/* Makes what the entry says; free(3) by the caller; NULL when out of memory. */
char *long_value_json(const char *format, uint64_t size_bytes);

/* Reads it; -EINVAL if it is none of that format. */
int long_value_parse(const char *format, const void *value, size_t value_bytes,
                     uint64_t *size_bytes);

#endif
