/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the __metadata__ of all files, and stores it as an entry or a long value. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "safetensors_parts.h"
#include "tensor/long_value.h"

/* Adds a pair under its key; if the key has another value already, under the key with @ and the
 * number of the file (from 1) appended as often as needed, so that nothing is lost. */
static int add_pair(json_t *object, const struct model_pair *pair)
{
    json_auto_t *value = json_string(pair->value);
    json_t *name = json_string(pair->key);
    json_t *known, *longer;
    int error = -ENOMEM;

    while (name != NULL && value != NULL &&
           (known = json_object_get(object, json_string_value(name))) != NULL &&
           !json_equal(known, value)) {
        longer = json_sprintf("%s@%u", json_string_value(name), pair->file + 1);
        json_decref(name);
        name = longer;
    }
    if (name != NULL && value != NULL &&
        json_object_set(object, json_string_value(name), value) == 0)
        error = 0;
    json_decref(name);
    return error;
}

/* Makes the JSON, of any length; *json NULL if no file has any. */
static int make_json(const struct model *model, char **json)
{
    json_auto_t *object = json_object();
    int error = object == NULL ? -ENOMEM : 0;

    *json = NULL;
    for (size_t i = 0; i < model->pair_count && error == 0; i++)
        error = add_pair(object, &model->pairs[i]);
    if (error == 0 && model->pair_count > 0) {
        *json = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS);
        error = *json == NULL ? -ENOMEM : 0;
    }
    return error;
}

static bool is_long(const struct model *model)
{
    const struct model_tensor *tensor = safetensors_find(model, SAFETENSORS_METADATA_KEY);

    return tensor != NULL && tensor->long_format != NULL;
}

int safetensors_metadata_json(const struct model *model, char **json)
{
    *json = NULL;
    return is_long(model) ? 0 : make_json(model, json);
}

/* ---- long values ----------------------------------------------------------------------------- */

/* Appends a file in memory, with the name of the model's first, to be read like the others. Takes
 * over `json` if it succeeds. */
static int add_memory_file(struct model *model, char *json, size_t size_bytes)
{
    struct model_file *files = safetensors_grow(model->files, model->file_count, 1, sizeof(*files));

    if (files == NULL)
        return -ENOMEM;
    model->files = files;
    struct model_file *file = &files[model->file_count];
    *file = (struct model_file){.path = files[0].path, .size_bytes = size_bytes};
    int error = source_add_bytes(model->source, files[0].number, (uint8_t *)json, size_bytes,
                                 &file->number);
    model->file_count += error == 0;
    return error;
}

/* Inserts the content of the last file into the sorted tensors. */
static int add_value(struct model *model, size_t size_bytes)
{
    struct model_tensor *tensors =
        safetensors_grow(model->tensors, model->tensor_count, 1, sizeof(*tensors));
    struct model_tensor value = {.name = strdup(SAFETENSORS_METADATA_KEY),
                                 .dtype = SAFETENSORS_U8,
                                 .file = (uint32_t)model->file_count - 1,
                                 .ndim = 1,
                                 .shape = calloc(1, sizeof(*value.shape)),
                                 .size_bytes = size_bytes,
                                 .long_format = LONG_VALUE_SAFETENSORS};
    size_t at = 0;

    if (tensors != NULL)
        model->tensors = tensors;
    if (tensors == NULL || value.name == NULL || value.shape == NULL ||
        __builtin_add_overflow(model->tensor_bytes, size_bytes, &model->tensor_bytes)) {
        free(value.name);
        free(value.shape);
        return -ENOMEM;
    }
    value.shape[0] = size_bytes;
    while (at < model->tensor_count && strcmp(tensors[at].name, value.name) < 0)
        at++;
    memmove(&tensors[at + 1], &tensors[at], (model->tensor_count - at) * sizeof(*tensors));
    tensors[at] = value;
    model->tensor_count++;
    model->value_count++;
    return 0;
}

int safetensors_add_metadata(struct model *model, struct failure *failure)
{
    char *json = NULL;
    int error = make_json(model, &json);
    size_t size_bytes = json == NULL ? 0 : strlen(json);

    if (error == 0 && size_bytes > LONG_VALUE_BYTES) {
        error = add_memory_file(model, json, size_bytes);
        if (error == 0) {
            json = NULL;
            error = add_value(model, size_bytes);
        }
    }
    free(json);
    if (error == 0)
        return 0;
    return safetensors_fail(failure, error, model->files[0].path, NULL,
                            "cannot keep its " SAFETENSORS_METADATA_KEY " of %zu bytes: %s",
                            size_bytes, failure_reason(error));
}
