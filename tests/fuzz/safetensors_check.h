/* SPDX-License-Identifier: Apache-2.0 */
/*
 * safetensors_check - checks of every model that the reader accepts
 *
 * For the two targets of the reader, after fuzz.h. Code that copies a model's tensors checks
 * nothing any more, so everything that it relies on is checked here.
 */
#ifndef GMSFS_TESTS_FUZZ_SAFETENSORS_CHECK_H
#define GMSFS_TESTS_FUZZ_SAFETENSORS_CHECK_H

#include "model/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/mman.h>
#include <unistd.h>

static void write_all(int fd, const void *bytes, size_t size)
{
    must(ftruncate(fd, 0) == 0);
    must(pwrite(fd, bytes, size, 0) == (ssize_t)size);
}

static void check_tensor(const struct model *model, const struct model_tensor *tensor)
{
    enum safetensors_dtype dtype;
    uint64_t size_bytes = 0, product = 1, shape[SAFETENSORS_MAX_DIMENSIONS];
    char *text = safetensors_value_json(tensor);
    json_t *value = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    uint32_t ndim = safetensors_torch_shape(tensor, shape);

    must(tensor->file < model->file_count && tensor->ndim <= SAFETENSORS_MAX_DIMENSIONS);
    must(tensor->offset_bytes >= model->files[tensor->file].data_offset_bytes);
    must(tensor->size_bytes <= model->files[tensor->file].size_bytes - tensor->offset_bytes);
    must(safetensors_dtype_parse(safetensors_dtype_name(tensor->dtype), &dtype) == 0);
    must(dtype == tensor->dtype && safetensors_find(model, tensor->name) == tensor);
    must(safetensors_size(dtype, tensor->shape, tensor->ndim, &size_bytes) == 0);
    must(size_bytes == tensor->size_bytes);
    /* torch's elements are whole bytes, up to 8 of them. */
    for (uint32_t i = 0; i < ndim; i++)
        must(!__builtin_mul_overflow(product, shape[i], &product));
    must(product <= size_bytes &&
         (product ? size_bytes % product == 0 && size_bytes / product <= 8 : size_bytes == 0));
    must(value && json_array_size(json_object_get(value, "shape")) == ndim);
    must(json_array_size(json_object_get(value, "stride")) == ndim);
    json_decref(value);
    free(text);
}

/* The tensors of a file cover its data without gap and overlap: sorted by offset and size, each
 * begins at the end of the one before it. Their sum proves that, if none overlaps another. */
static void check_cover(const struct model *model, uint32_t file)
{
    uint64_t data_bytes = model->files[file].size_bytes - model->files[file].data_offset_bytes;
    uint64_t sum = 0;

    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct model_tensor *a = &model->tensors[i];
        if (a->file != file)
            continue;
        sum += a->size_bytes;
        for (size_t k = 0; k < i && i < 64; k++) {
            const struct model_tensor *b = &model->tensors[k];
            must(b->file != file || a->size_bytes == 0 || b->size_bytes == 0 ||
                 a->offset_bytes >= b->offset_bytes + b->size_bytes ||
                 b->offset_bytes >= a->offset_bytes + a->size_bytes);
        }
    }
    must(sum == data_bytes);
}

/* Every pair is in the JSON: by its key, or, if that is taken, with the number of its file. */
static void check_pair(json_t *all, const struct model_pair *pair)
{
    json_t *name = json_string(pair->key), *longer;
    const char *value;

    for (;;) {
        value = json_string_value(json_object_get(all, json_string_value(name)));
        must(value != NULL);
        if (strcmp(value, pair->value) == 0)
            break;
        longer = json_sprintf("%s@%u", json_string_value(name), pair->file + 1);
        json_decref(name);
        name = longer;
    }
    json_decref(name);
}

static void check_pairs(const struct model *model)
{
    char *text = NULL;

    must(safetensors_metadata_json(model, &text) == 0);
    if (safetensors_find(model, SAFETENSORS_METADATA_KEY)) {
        must(!text); /* it lies in a file of its own */
        return;
    }
    must((text != NULL) == (model->pair_count > 0));
    json_t *all = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    must(!text || (all && json_object_size(all) <= model->pair_count));
    for (size_t i = 0; i < model->pair_count; i++)
        check_pair(all, &model->pairs[i]);
    json_decref(all);
    free(text);
}

/* Opens and checks a model; returns NULL if it is refused. The caller closes it, and the source. */
static struct model *open_checked(struct source *source, const char *path)
{
    struct failure error;
    struct model *model = NULL;
    uint64_t sum = 0;
    int err = safetensors_open(source, &path, 1, &model, &error);

    if (err) {
        must(err == -EINVAL || err == -ENOENT || err == -EOVERFLOW || err == -ENAMETOOLONG);
        must(!model && strlen(error.text) < sizeof error.text && fuzz_is_line(error.text));
        return NULL;
    }
    for (size_t i = 0; i < model->tensor_count; i++) {
        must(i == 0 || strcmp(model->tensors[i - 1].name, model->tensors[i].name) < 0);
        if (!model->tensors[i].long_format)
            check_tensor(model, &model->tensors[i]);
        sum += model->tensors[i].size_bytes;
    }
    must(sum == model->tensor_bytes);
    for (uint32_t i = 0; i < model->file_count; i++)
        check_cover(model, i);
    check_pairs(model);
    return model;
}

#endif
