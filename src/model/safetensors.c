/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a model from its files or its index, and closes it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "part_name.h"
#include "safetensors_parts.h"

#define INDEX_SUFFIX ".json"

static int add_files(struct model *model, const char *const *paths, size_t count,
                     struct failure *failure)
{
    for (size_t i = 0; i < count; i++) {
        if (part_name_ends_with(paths[i], INDEX_SUFFIX))
            return safetensors_fail(failure, -EINVAL, paths[i], NULL,
                                    "an index stands for a whole model; name it alone, or the "
                                    "safetensors files without it");
    }
    for (size_t i = 0; i < count; i++) {
        int error = safetensors_add_file(model, paths[i], failure);

        if (error != 0)
            return error;
    }
    return safetensors_finish(model, failure);
}

int safetensors_open(const char *const *paths, size_t count, struct model **model,
                     struct failure *failure)
{
    struct model *opened = calloc(1, sizeof(*opened));
    int error = 0;

    *model = NULL;
    failure->text[0] = '\0';
    if (opened == NULL)
        error = safetensors_fail(failure, -ENOMEM, "model", NULL, "out of memory");
    else if (count == 0)
        error = safetensors_fail(failure, -EINVAL, "model", NULL,
                                 "no file; name *.safetensors files or one index.json");
    else if (count == 1 && part_name_ends_with(paths[0], INDEX_SUFFIX))
        error = safetensors_add_index(opened, paths[0], failure);
    else
        error = add_files(opened, paths, count, failure);
    if (error == 0)
        error = safetensors_add_metadata(opened, failure);
    if (error != 0) {
        safetensors_close(opened);
        return error;
    }
    *model = opened;
    return 0;
}

void safetensors_close(struct model *model)
{
    if (model == NULL)
        return;
    for (size_t i = 0; i < model->tensor_count; i++) {
        free(model->tensors[i].name);
        free(model->tensors[i].shape);
    }
    for (size_t i = 0; i < model->pair_count; i++) {
        free(model->pairs[i].key);
        free(model->pairs[i].value);
    }
    for (size_t i = 0; i < model->file_count; i++) {
        close(model->files[i].fd);
        free(model->files[i].path);
    }
    free(model->tensors);
    for (size_t i = 0; i < model->entry_count; i++) {
        free(model->entries[i].key);
        free(model->entries[i].bytes);
    }
    free(model->entries);
    free(model->pairs);
    free(model->files);
    free(model);
}
