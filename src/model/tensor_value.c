/* SPDX-License-Identifier: Apache-2.0 */
#include "model/tensor_value.h"

#include "model/safetensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TORCH "torch."

/* Returns torch's bytes of one element; sub-byte dtypes come in bytes. 0: unknown */
static uint64_t tensor_value_element_bytes(const char *dtype)
{
    const uint64_t one = 1;
    uint64_t size_bytes;

    for (int i = 0; i < SAFETENSORS_DTYPES; i++) {
        if (strcmp(dtype, safetensors_torch_name((enum safetensors_dtype)i)) != 0)
            continue;
        return safetensors_size((enum safetensors_dtype)i, &one, 1, &size_bytes) ? 1 : size_bytes;
    }
    return 0;
}

/* -EINVAL: a dimension is not a number from 0 up, or the product overflows. */
static int tensor_value_count(const json_t *shape, uint64_t *count)
{
    uint64_t product = 1;
    json_t *dimension;
    size_t i;

    json_array_foreach (shape, i, dimension) {
        if (!json_is_integer(dimension) || json_integer_value(dimension) < 0)
            return -EINVAL;
        if (__builtin_mul_overflow(product, (uint64_t)json_integer_value(dimension), &product))
            return -EINVAL;
    }
    *count = product;
    return 0;
}

int tensor_value_parse(const void *value, size_t value_bytes, struct tensor_value *tensor)
{
    json_t *json = json_loadb(value, value_bytes, JSON_REJECT_DUPLICATES, NULL);
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    const char *ggml = json_string_value(json_object_get(json, "ggml_type"));
    json_t *shape = json_object_get(json, "shape");
    uint64_t count, element;

    memset(tensor, 0, sizeof(*tensor));
    if (!dtype || !json_is_array(shape) || tensor_value_count(shape, &count) != 0) {
        json_decref(json);
        return 0;
    }
    tensor->is_tensor = true;
    element = tensor_value_element_bytes(dtype);
    tensor->has_size = element > 0 && !__builtin_mul_overflow(count, element, &tensor->size_bytes);
    if (ggml)
        dtype = ggml;
    tensor->dtype =
        strdup(strncmp(dtype, TORCH, strlen(TORCH)) == 0 ? dtype + strlen(TORCH) : dtype);
    tensor->shape = json_incref(shape);
    json_decref(json);
    if (!tensor->dtype) {
        tensor_value_free(tensor);
        return -ENOMEM;
    }
    return 0;
}

void tensor_value_free(struct tensor_value *tensor)
{
    free(tensor->dtype);
    json_decref(tensor->shape);
    memset(tensor, 0, sizeof(*tensor));
}

void tensor_value_format_shape(const json_t *shape, char *text, size_t room)
{
    json_t *dimension;
    size_t i, used = 0;

    if (json_array_size(shape) == 0) {
        snprintf(text, room, "scalar");
        return;
    }
    json_array_foreach (shape, i, dimension) {
        int length = snprintf(text + used, room - used, "%s%" JSON_INTEGER_FORMAT, i ? "x" : "",
                              json_integer_value(dimension));
        if ((size_t)length >= room - used) {
            if (room >= sizeof("..."))
                strcpy(text + room - sizeof("..."), "...");
            return;
        }
        used += (size_t)length;
    }
}
