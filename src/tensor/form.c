/* SPDX-License-Identifier: Apache-2.0 */
#include "tensor/form.h"

#include "base/json_scan.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#define BITS_PER_BYTE 8u

/* A list of numbers in the value. */
struct list {
    bool is_there, is_list;
    bool is_wrong; /* it has something else than whole numbers from 0 up */
    uint32_t count;
    uint64_t numbers[SAFETENSORS_MAX_DIMENSIONS]; /* the first ones */
};

struct value {
    struct json_token dtype, ggml_type;
    bool has_dtype, has_ggml_type;
    struct list shape, stride;
};

/* ---- JSON ---------------------------------------------------------------------------------- */

static bool take_item(struct json_scan *scan, struct list *list)
{
    struct json_scan before = *scan;
    uint64_t number;
    bool is_number = json_scan_number(scan, &number) && number <= INT64_MAX;

    if (!is_number) {
        *scan = before;
        list->is_wrong = true;
        if (!json_scan_skip(scan))
            return false;
    } else if (list->count < SAFETENSORS_MAX_DIMENSIONS) {
        list->numbers[list->count] = number;
    }
    list->count++;
    return true;
}

static bool take_list(struct json_scan *scan, struct list *list)
{
    if (list->is_there)
        return false; /* twice */
    list->is_there = true;
    list->is_list = json_scan_take(scan, '[');
    if (!list->is_list)
        return json_scan_skip(scan);
    if (json_scan_take(scan, ']'))
        return true;
    do
        if (!take_item(scan, list))
            return false;
    while (json_scan_take(scan, ','));
    return json_scan_take(scan, ']');
}

/* Takes a string, or anything else, which counts as none. */
static bool take_word(struct json_scan *scan, struct json_token *token, bool *is_there)
{
    struct json_scan before = *scan;

    if (*is_there)
        return false; /* twice */
    *is_there = json_scan_string(scan, token);
    if (*is_there)
        return true;
    *scan = before;
    return json_scan_skip(scan);
}

static bool take_member(struct json_scan *scan, struct value *value)
{
    struct json_token name;

    if (!json_scan_string(scan, &name) || !json_scan_take(scan, ':'))
        return false;
    if (json_token_is(&name, "dtype"))
        return take_word(scan, &value->dtype, &value->has_dtype);
    if (json_token_is(&name, "ggml_type"))
        return take_word(scan, &value->ggml_type, &value->has_ggml_type);
    if (json_token_is(&name, "shape"))
        return take_list(scan, &value->shape);
    if (json_token_is(&name, "stride"))
        return take_list(scan, &value->stride);
    return json_scan_skip(scan);
}

static bool parse(struct json_scan *scan, struct value *value)
{
    if (!json_scan_take(scan, '{') || json_scan_take(scan, '}'))
        return false;
    do
        if (!take_member(scan, value))
            return false;
    while (json_scan_take(scan, ','));
    return json_scan_take(scan, '}') && json_scan_is_over(scan);
}

/* ---- meaning ------------------------------------------------------------------------------- */

/* Several dtypes of files share torch.uint8; the first of them is U8. */
static bool find_dtype(const struct json_token *name, enum safetensors_dtype *dtype)
{
    for (unsigned i = 0; i < SAFETENSORS_DTYPES; i++)
        if (json_token_is(name, safetensors_torch_name((enum safetensors_dtype)i))) {
            *dtype = (enum safetensors_dtype)i;
            return true;
        }
    return false;
}

/* Returns true if the strides are contiguous; the stride of a dimension of 1 does not matter. */
static bool is_contiguous(const struct value *value)
{
    const struct list *shape = &value->shape, *stride = &value->stride;
    uint64_t expected[SAFETENSORS_MAX_DIMENSIONS];

    if (!stride->is_there)
        return true;
    if (!stride->is_list || stride->count != shape->count || stride->is_wrong)
        return false;
    for (uint32_t i = 0; i < shape->count; i++)
        if (shape->numbers[i] == 0)
            return true;
    safetensors_stride(shape->numbers, shape->count, expected);
    for (uint32_t i = 0; i < shape->count; i++)
        if (shape->numbers[i] > 1 && stride->numbers[i] != expected[i])
            return false;
    return true;
}

/* Sets the shape in elements, and the size. */
static bool set_shape(const struct list *shape, struct tensor_form *form)
{
    unsigned bits = safetensors_dtype_bits(form->dtype);
    uint64_t per_byte =
        bits < BITS_PER_BYTE && BITS_PER_BYTE % bits == 0 ? BITS_PER_BYTE / bits : 1;

    form->ndim = shape->count ? shape->count : per_byte > 1;
    form->shape[0] = 1;
    memcpy(form->shape, shape->numbers, shape->count * sizeof *form->shape);
    if (form->ndim &&
        __builtin_mul_overflow(form->shape[form->ndim - 1], per_byte, &form->shape[form->ndim - 1]))
        return false;
    return safetensors_size(form->dtype, form->shape, form->ndim, &form->size_bytes) == 0;
}

static const char *set_form(const struct value *value, struct tensor_form *form)
{
    if (value->shape.count > SAFETENSORS_MAX_DIMENSIONS)
        return "it has too many dimensions";
    if (value->shape.is_wrong)
        return "its shape is not made of whole numbers from 0 up";
    if (!find_dtype(&value->dtype, &form->dtype))
        return "its dtype is none that safetensors has";
    if (!is_contiguous(value))
        return "its strides are not those of a contiguous tensor";
    if (!set_shape(&value->shape, form))
        return "its shape has more elements than can be counted";
    form->ggml_type = value->has_ggml_type ? value->ggml_type.text : NULL;
    form->ggml_bytes = value->has_ggml_type ? value->ggml_type.bytes : 0;
    return NULL;
}

int tensor_form_parse(const void *bytes, size_t value_bytes, struct tensor_form *form,
                      const char **why)
{
    struct json_scan scan = {bytes, (const char *)bytes + value_bytes};
    struct value value;

    value.has_dtype = value.has_ggml_type = false;
    value.shape.is_there = value.shape.is_list = value.shape.is_wrong = false;
    value.stride.is_there = value.stride.is_list = value.stride.is_wrong = false;
    value.shape.count = value.stride.count = 0;
    *why = NULL;
    if (value_bytes == 0 || value_bytes > TENSOR_VALUE_BYTES || !parse(&scan, &value) ||
        !value.has_dtype || !value.shape.is_list)
        return -ENOENT;
    *why = set_form(&value, form);
    return *why ? -EINVAL : 0;
}
