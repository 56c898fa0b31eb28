/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor_value - parses the metadata value of a tensor
 *
 * For `gmsfs ls` and `gmsfs verify`. Pure. Any writer may have made the value, so an unknown form
 * is no error: it only has no dtype.
 */
#ifndef GMSFS_MODEL_TENSOR_VALUE_H
#define GMSFS_MODEL_TENSOR_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

struct tensor_value {
    bool is_tensor; /* the value is JSON with a dtype and a shape */
    bool has_size;  /* the dtype is known, and size_bytes is set */
    uint64_t size_bytes;
    char *dtype; /* "bfloat16": without "torch." */
    json_t *shape;
};

/* 0 or -ENOMEM. Call tensor_value_free() after success. */
int tensor_value_parse(const void *value, size_t value_bytes, struct tensor_value *tensor);
void tensor_value_free(struct tensor_value *tensor);

/* Writes "4096x128" or "scalar", shortened with "..." to fit. */
void tensor_value_format_shape(const json_t *shape, char *text, size_t room);

#endif
