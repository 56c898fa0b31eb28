/* SPDX-License-Identifier: Apache-2.0 */
/* Reads model.safetensors.index.json: the shard of each tensor, compared with the shards. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/scope.h"
#include "find_other.h"
#include "safetensors_parts.h"

#define SHOWN_SHARDS 4u

static int name_compare(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Accepts only shards beside the index, because a downloaded index must not read other files. */
static bool shard_name_is_plain(const char *name)
{
    return name[0] != '\0' && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 &&
           strchr(name, '/') == NULL;
}

static int index_read(struct source *source, size_t file, json_t **root, struct failure *failure)
{
    const struct source_file *from = source_get(source, file);
    SCOPED_FREE char *bytes = NULL;

    if (from->size_bytes > SAFETENSORS_MAX_HEADER_BYTES)
        return safetensors_fail(failure, -EINVAL, from->shown, NULL,
                                "has %llu bytes, an index has at most %u; name the "
                                "*.safetensors.index.json file",
                                (unsigned long long)from->size_bytes, SAFETENSORS_MAX_HEADER_BYTES);
    int error = safetensors_read(source, file, 0, (size_t)from->size_bytes, &bytes, failure);
    return error != 0 ? error
                      : safetensors_parse_object(from->shown, "the index", bytes,
                                                 (size_t)from->size_bytes, root, failure);
}

/* Finds the map in the index, and checks that every value is a plain file name. */
static int index_check(const char *path, json_t *root, json_t **map, struct failure *failure)
{
    const char *tensor;
    json_t *value;
    json_t *metadata = json_object_get(root, "metadata");

    *map = json_object_get(root, "weight_map");
    if (!json_is_object(*map))
        return safetensors_fail(failure, -EINVAL, path, NULL,
                                "has no object \"weight_map\"; name the "
                                "*.safetensors.index.json file of the model");
    if (metadata != NULL && !json_is_object(metadata))
        return safetensors_fail(failure, -EINVAL, path, NULL,
                                "\"metadata\" is not an object; fetch the index again");
    if (json_object_size(*map) == 0)
        return safetensors_fail(failure, -EINVAL, path, NULL,
                                "\"weight_map\" is empty; name the *.safetensors files instead");
    json_object_foreach (*map, tensor, value) {
        if (!json_is_string(value))
            return safetensors_fail(failure, -EINVAL, path, tensor,
                                    "its shard is not a string; fetch the index again");
        if (!shard_name_is_plain(json_string_value(value)))
            return safetensors_fail(failure, -EINVAL, path, tensor,
                                    "its shard \"%.200s\" is not a plain file name; shards lie in "
                                    "the directory of their index",
                                    json_string_value(value));
    }
    return 0;
}

/* Lists every shard once, sorted by name; the names belong to the map. */
static int index_shards(json_t *map, const char ***names, size_t *count)
{
    const char **list = malloc(json_object_size(map) * sizeof(*list));
    const char *tensor;
    json_t *value;
    size_t used = 0;
    size_t kept = 0;

    if (list == NULL)
        return -ENOMEM;
    json_object_foreach (map, tensor, value) {
        list[used++] = json_string_value(value);
    }
    qsort(list, used, sizeof(*list), name_compare);
    for (size_t i = 0; i < used; i++) {
        if (kept == 0 || strcmp(list[kept - 1], list[i]) != 0)
            list[kept++] = list[i];
    }
    *names = list;
    *count = kept;
    return 0;
}

/* Appends the name of a missing shard, up to a limit. */
static void index_put_missing(size_t missing, const char *name, char *text, size_t size_bytes)
{
    size_t used = strlen(text);

    if (missing <= SHOWN_SHARDS)
        snprintf(text + used, size_bytes - used, "%s'%.250s'", missing > 1 ? ", " : "", name);
}

/* Refuses an index of which shards are missing. */
static int index_refuse(struct source *source, const char *path, size_t count, size_t missing,
                        const char *names, struct failure *failure)
{
    char more[32] = "", unfinished[UNFINISHED_BYTES];
    const char *slash = strrchr(path, '/');
    SCOPED_FREE char *folder = strndup(path, slash != NULL ? (size_t)(slash - path) + 1 : 0);

    if (folder == NULL)
        return safetensors_fail(failure, -ENOMEM, path, NULL, "out of memory");
    source_tell_unfinished(source, folder, unfinished, sizeof(unfinished));
    if (missing > SHOWN_SHARDS)
        snprintf(more, sizeof(more), " and %zu more", missing - SHOWN_SHARDS);
    return safetensors_fail(
        failure, -ENOENT, path, NULL,
        "of the %zu shards that this index names these are not there: %s%s; the "
        "download may not have finished%s: fetch the model again",
        count, names, more, unfinished);
}

/* Adds every shard to the source; it may be a symbolic link into a cache. */
static int index_add_to_source(struct source *source, size_t index, const char *const *names,
                               size_t count, size_t *files, struct failure *failure)
{
    char text[SHOWN_SHARDS * 260] = "";
    size_t missing = 0;

    for (size_t i = 0; i < count; i++) {
        int error = source_add_beside(source, index, names[i], &files[i], failure);

        if (error == -ENOENT)
            index_put_missing(++missing, names[i], text, sizeof(text));
        else if (error != 0)
            return error;
    }
    return missing == 0 ? 0
                        : index_refuse(source, source_get(source, index)->shown, count, missing,
                                       text, failure);
}

static int index_add_shards(struct model *model, size_t index, const char *const *names,
                            size_t count, struct failure *failure)
{
    SCOPED_FREE size_t *files = calloc(count, sizeof(*files));
    int error = -ENOMEM;

    if (files == NULL)
        return safetensors_fail(failure, error, source_get(model->source, index)->shown, NULL,
                                "out of memory");
    error = index_add_to_source(model->source, index, names, count, files, failure);
    for (size_t i = 0; i < count && error == 0; i++)
        error = safetensors_add_file(model, files[i], failure);
    return error;
}

/* Checks that every tensor of the map is in its shard, and that the shards have no others. */
static int index_compare(const struct model *model, const char *path, json_t *map,
                         const char *const *shards, struct failure *failure)
{
    const char *name;
    json_t *value;

    json_object_foreach (map, name, value) {
        const struct model_tensor *tensor = safetensors_find(model, name);

        if (tensor == NULL)
            return safetensors_fail(failure, -EINVAL, path, name,
                                    "the index says that it is in \"%.200s\", but no shard holds "
                                    "it; fetch index and shards again",
                                    json_string_value(value));
        if (strcmp(shards[tensor->file], json_string_value(value)) != 0)
            return safetensors_fail(failure, -EINVAL, path, name,
                                    "the index says that it is in \"%.200s\", but it is in "
                                    "\"%.200s\"; fetch index and shards again",
                                    json_string_value(value), shards[tensor->file]);
    }
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct model_tensor *tensor = &model->tensors[i];

        if (json_object_get(map, tensor->name) == NULL)
            return safetensors_fail(failure, -EINVAL, model->files[tensor->file].path, tensor->name,
                                    "the index %.200s does not name it; fetch index and shards "
                                    "again, or name the shards instead of the index",
                                    path);
    }
    return 0;
}

int safetensors_add_index(struct model *model, size_t file, struct failure *failure)
{
    const char *path = source_get(model->source, file)->shown;
    json_t *root = NULL;
    json_t *map = NULL;
    const char **shards = NULL;
    size_t count = 0;
    int error = index_read(model->source, file, &root, failure);

    if (error == 0)
        error = index_check(path, root, &map, failure);
    if (error != 0)
        goto out;
    error = index_shards(map, &shards, &count);
    if (error != 0) {
        safetensors_fail(failure, error, path, NULL, "out of memory");
        goto out;
    }
    error = index_add_shards(model, file, shards, count, failure);
    if (error == 0)
        error = safetensors_finish(model, failure);
    if (error == 0)
        error = index_compare(model, path, map, shards, failure);
out:
    free(shards);
    json_decref(root);
    return error;
}
