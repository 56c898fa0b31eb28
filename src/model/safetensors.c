/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a model from its files or its index, and closes it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/scope.h"
#include "part_name.h"
#include "safetensors_parts.h"

#define INDEX_SUFFIX ".json"

static int add_files(struct model *model, const size_t *files, size_t count,
                     struct failure *failure)
{
    int error = 0;

    for (size_t i = 0; error == 0 && i < count; i++)
        error = safetensors_add_file(model, files[i], failure);
    return error != 0 ? error : safetensors_finish(model, failure);
}

static int check_places(const char *const *places, size_t count, struct failure *failure)
{
    if (count == 0)
        return safetensors_fail(failure, -EINVAL, "model", NULL,
                                "no file; name *.safetensors files or one index.json");
    if (count > SAFETENSORS_MAX_FILES)
        return safetensors_fail(failure, -EINVAL, places[SAFETENSORS_MAX_FILES], NULL,
                                "is one file too many; a model has at most %u",
                                SAFETENSORS_MAX_FILES);
    for (size_t i = 0; count > 1 && i < count; i++)
        if (part_name_ends_with(places[i], INDEX_SUFFIX))
            return safetensors_fail(failure, -EINVAL, places[i], NULL,
                                    "an index stands for a whole model; name it alone, or the "
                                    "safetensors files without it");
    return 0;
}

int safetensors_add_places(struct source *source, const char *const *places, size_t count,
                           size_t **files, struct failure *failure)
{
    int error = check_places(places, count, failure);

    *files = calloc(count + 1, sizeof(**files));
    if (error == 0 && *files == NULL)
        error = safetensors_fail(failure, -ENOMEM, "model", NULL, "out of memory");
    for (size_t i = 0; error == 0 && i < count; i++)
        error = source_add(source, places[i], NULL, 0, &(*files)[i], failure);
    return error;
}

int safetensors_open_added(struct source *source, const size_t *files, size_t count,
                           struct model **model, struct failure *failure)
{
    struct model *opened = calloc(1, sizeof(*opened));
    int error;

    failure->text[0] = '\0';
    if (opened == NULL)
        return safetensors_fail(failure, -ENOMEM, "model", NULL, "out of memory");
    opened->source = source;
    if (count == 1 && part_name_ends_with(source_get(source, files[0])->shown, INDEX_SUFFIX))
        error = safetensors_add_index(opened, files[0], failure);
    else
        error = add_files(opened, files, count, failure);
    if (error == 0)
        error = safetensors_add_metadata(opened, failure);
    if (error != 0)
        safetensors_close(opened);
    else
        *model = opened;
    return error;
}

int safetensors_open(struct source *source, const char *const *places, size_t count,
                     struct model **model, struct failure *failure)
{
    SCOPED_FREE size_t *files = NULL;
    int error = safetensors_add_places(source, places, count, &files, failure);

    *model = NULL;
    return error != 0 ? error : safetensors_open_added(source, files, count, model, failure);
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
