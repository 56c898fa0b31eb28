/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of the reader: files and their bytes, the model's tensors, and error
 * reports. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "safetensors_parts.h"

int safetensors_fail(struct failure *failure, int error, const char *path, const char *tensor,
                     const char *format, ...)
{
    size_t used = 0;
    va_list arguments;

    if (tensor == NULL)
        snprintf(failure->text, sizeof(failure->text), "%.300s: ", path);
    else
        snprintf(failure->text, sizeof(failure->text), "%.300s: tensor '%.200s': ", path, tensor);
    used = strlen(failure->text);
    va_start(arguments, format);
    vsnprintf(failure->text + used, sizeof(failure->text) - used, format, arguments);
    va_end(arguments);
    for (char *c = failure->text; *c != '\0'; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    }
    return error;
}

int safetensors_read(struct source *source, size_t file, uint64_t offset_bytes, size_t size_bytes,
                     char **bytes, struct failure *failure)
{
    const char *path = source_get(source, file)->shown;
    char *buffer = malloc(size_bytes + 1);
    struct failure why;

    if (buffer == NULL)
        return safetensors_fail(failure, -ENOMEM, path, NULL, "out of memory");
    int error = source_read(source, file, offset_bytes, buffer, size_bytes, &why);
    if (error == 0) {
        *bytes = buffer;
        return 0;
    }
    free(buffer);
    if (why.text[0] != '\0')
        return safetensors_fail(failure, error, path, NULL, "cannot read it: %s", why.text);
    if (error == -ENODATA)
        return safetensors_fail(failure, -EIO, path, NULL,
                                "became shorter while it was read; try again when nothing writes "
                                "it");
    return safetensors_fail(failure, error, path, NULL, "cannot read it: %s; check the disk",
                            strerror(-error));
}

void *safetensors_grow(void *array, size_t count, size_t more, size_t item_bytes)
{
    size_t total_bytes = 0;

    /* Never of size 0, for which realloc() may return NULL. */
    if (__builtin_mul_overflow(count + more + 1, item_bytes, &total_bytes))
        return NULL;
    return realloc(array, total_bytes);
}

int safetensors_add_opened(struct model *model, size_t file, struct failure *failure)
{
    const struct source_file *from = source_get(model->source, file);
    struct model_file *files;

    if (model->file_count >= SAFETENSORS_MAX_FILES)
        return safetensors_fail(failure, -EINVAL, from->shown, NULL,
                                "is one file too many; a model has at most %u",
                                SAFETENSORS_MAX_FILES);
    files = safetensors_grow(model->files, model->file_count, 1, sizeof(*files));
    if (files == NULL)
        return safetensors_fail(failure, -ENOMEM, from->shown, NULL, "out of memory");
    model->files = files;
    files[model->file_count++] =
        (struct model_file){.path = from->shown, .number = file, .size_bytes = from->size_bytes};
    return 0;
}

static int tensor_compare(const void *left, const void *right)
{
    const struct model_tensor *l = left;
    const struct model_tensor *r = right;
    int order = strcmp(l->name, r->name);

    if (order != 0)
        return order;
    return (l->file > r->file) - (l->file < r->file);
}

int safetensors_finish(struct model *model, struct failure *failure)
{
    if (model->tensor_count > 0)
        qsort(model->tensors, model->tensor_count, sizeof(*model->tensors), tensor_compare);
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];
        const char *path = model->files[tensor->file].path;

        model->value_count += tensor->long_format != NULL;
        if (i > 0 && strcmp(model->tensors[i - 1].name, tensor->name) == 0 &&
            model->tensors[i - 1].file == tensor->file)
            return safetensors_fail(failure, -EINVAL, path, tensor->name,
                                    "occurs twice in the header; write the file again with the "
                                    "safetensors library");
        if (i > 0 && strcmp(model->tensors[i - 1].name, tensor->name) == 0)
            return safetensors_fail(failure, -EINVAL, path, tensor->name,
                                    "is also in %.300s; load files of one model only, each once",
                                    model->files[model->tensors[i - 1].file].path);
        if (__builtin_add_overflow(model->tensor_bytes, tensor->size_bytes, &model->tensor_bytes))
            return safetensors_fail(failure, -EOVERFLOW, path, tensor->name,
                                    "the tensors together have more than 2^64 bytes; load fewer");
    }
    return 0;
}

const struct model_tensor *safetensors_find(const struct model *model, const char *name)
{
    const struct model_tensor *tensors = model->tensors;
    size_t at = 0;

    ARRAY_SEARCH(at, model->tensor_count, strcmp(tensors[at].name, name) < 0);
    return at < model->tensor_count && strcmp(tensors[at].name, name) == 0 ? &tensors[at] : NULL;
}
