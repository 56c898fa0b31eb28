/* SPDX-License-Identifier: Apache-2.0 */
/*
 * long_value - values beside a file's tensors that are too long for an entry
 *
 * Pure. Such a value is in an allocation; its entry, bound to the allocation, has the format of the
 * file and the length of the value. For the readers of model files, and for the files that are made
 * of a store, which hold the values again.
 */
#ifndef GMSFS_TENSOR_LONG_VALUE_H
#define GMSFS_TENSOR_LONG_VALUE_H

#include <stddef.h>
#include <stdint.h>

/* The longest value of an entry; longer ones are in an allocation. */
#define LONG_VALUE_BYTES (1u << 20)

#define LONG_VALUE_GGUF        "gguf"
#define LONG_VALUE_SAFETENSORS "safetensors"

/* Makes the value of the entry, which the caller frees; NULL: out of memory. */
char *long_value_json(const char *format, uint64_t size_bytes);

/* Parses the value of the entry; -EINVAL if it is not of that format, or longer than
 * TENSOR_VALUE_BYTES. */
int long_value_parse(const char *format, const void *value, size_t value_bytes,
                     uint64_t *size_bytes);

#endif
