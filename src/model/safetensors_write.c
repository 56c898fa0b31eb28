/* SPDX-License-Identifier: Apache-2.0 */
#include "model/safetensors_write.h"

#include "tensor/form.h"
#include "tensor/gguf_types.h"
#include "tensor/header.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void write_take_ggml(const struct tensor_form *form, struct model_tensor *tensor)
{
    char name[SAFETENSORS_GGML_BYTES] = "";
    struct gguf_type type;

    if (!form->ggml_type || form->ggml_bytes >= sizeof(name))
        return;
    memcpy(name, form->ggml_type, form->ggml_bytes);
    if (gguf_find_type_name(name, &type))
        strcpy(tensor->ggml_type, type.name);
}

int safetensors_from_value(const void *value, size_t value_bytes, struct model_tensor *tensor,
                           const char **why)
{
    struct tensor_form form;
    int error = tensor_form_parse(value, value_bytes, &form, why);

    memset(tensor, 0, sizeof(*tensor));
    if (error)
        return error;
    tensor->shape = calloc(form.ndim ? form.ndim : 1, sizeof(*tensor->shape));
    if (!tensor->shape)
        return -ENOMEM;
    memcpy(tensor->shape, form.shape, form.ndim * sizeof(*form.shape));
    tensor->dtype = form.dtype;
    tensor->ndim = form.ndim;
    tensor->size_bytes = form.size_bytes;
    write_take_ggml(&form, tensor);
    return 0;
}

static size_t write_header(const struct model_tensor *const *tensors, size_t count,
                           const char *metadata, char *text)
{
    struct tensor_header header;

    tensor_header_begin(&header, text, metadata, metadata ? strlen(metadata) : 0);
    for (size_t i = 0; i < count; i++)
        tensor_header_add(&header, tensors[i]->name, strlen(tensors[i]->name), tensors[i]->dtype,
                          tensors[i]->shape, tensors[i]->ndim, tensors[i]->size_bytes);
    return tensor_header_end(&header);
}

int safetensors_make_header(const struct model_tensor *const *tensors, size_t count,
                            json_t *metadata, char **bytes, size_t *size_bytes)
{
    char *object = metadata ? json_dumps(metadata, JSON_COMPACT) : NULL;
    int error = metadata && !object ? -ENOMEM : 0;

    *bytes = NULL;
    *size_bytes = error ? 0 : write_header(tensors, count, object, NULL);
    if (!error && !tensor_header_is_accepted(*size_bytes))
        error = -EFBIG;
    if (!error && !(*bytes = malloc(*size_bytes)))
        error = -ENOMEM;
    if (!error)
        write_header(tensors, count, object, *bytes);
    free(object);
    return error;
}

size_t safetensors_shard_count(const struct model_tensor *const *tensors, size_t count,
                               size_t first, uint64_t shard_bytes)
{
    uint64_t used = 0;
    size_t taken = 0;

    for (size_t i = first; i < count; i++, taken++) {
        if (shard_bytes && taken && tensors[i]->size_bytes > shard_bytes - used)
            break;
        used += tensors[i]->size_bytes;
        if (shard_bytes && used > shard_bytes)
            return taken + 1;
    }
    return taken;
}
