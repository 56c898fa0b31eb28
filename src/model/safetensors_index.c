/* SPDX-License-Identifier: Apache-2.0 */
/* Reads model.safetensors.index.json: the shard of each tensor, compared with the shards. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static int index_read(const char *path, json_t **root, struct failure *failure)
{
    uint64_t size_bytes = 0;
    SCOPED_FREE char *bytes = NULL;
    int fd = -1;
    int error = safetensors_open_file(path, &fd, &size_bytes, failure);

    if (error != 0)
        return error;
    if (size_bytes > SAFETENSORS_MAX_HEADER_BYTES)
        error = safetensors_fail(failure, -EINVAL, path, NULL,
                                 "has %llu bytes, an index has at most %u; name the "
                                 "*.safetensors.index.json file",
                                 (unsigned long long)size_bytes, SAFETENSORS_MAX_HEADER_BYTES);
    if (error == 0)
        error = safetensors_read(fd, path, 0, (size_t)size_bytes, &bytes, failure);
    if (error == 0)
        error =
            safetensors_parse_object(path, "the index", bytes, (size_t)size_bytes, root, failure);
    close(fd);
    return error;
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

/* Returns the path of a shard beside its index, to be freed. NULL: out of memory, reported. */
static char *index_shard_path(const char *path, const char *name, struct failure *failure)
{
    const char *slash = strrchr(path, '/');
    int directory_bytes = slash == NULL ? 0 : (int)(slash - path) + 1;
    char *shard = NULL;

    if (asprintf(&shard, "%.*s%s", directory_bytes, path, name) >= 0)
        return shard;
    safetensors_fail(failure, -ENOMEM, path, NULL, "out of memory");
    return NULL;
}

/* Appends the name of a missing shard, up to a limit. */
static void index_put_missing(size_t missing, const char *name, char *text, size_t size_bytes)
{
    size_t used = strlen(text);

    if (missing <= SHOWN_SHARDS)
        snprintf(text + used, size_bytes - used, "%s'%.250s'", missing > 1 ? ", " : "", name);
}

/* Checks that every shard in the index exists; it may be a symbolic link into a cache. */
static int index_check_shards(const char *path, const char *const *names, size_t count,
                              struct failure *failure)
{
    char text[SHOWN_SHARDS * 260] = "", more[32] = "", unfinished[UNFINISHED_BYTES];
    const char *slash = strrchr(path, '/');
    char *directory;
    size_t missing = 0;

    for (size_t i = 0; i < count; i++) {
        char *shard = index_shard_path(path, names[i], failure);
        if (shard == NULL)
            return -ENOMEM;
        if (access(shard, F_OK) != 0 && errno == ENOENT)
            index_put_missing(++missing, names[i], text, sizeof(text));
        free(shard);
    }
    if (missing == 0)
        return 0;
    directory = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    if (directory == NULL)
        return safetensors_fail(failure, -ENOMEM, path, NULL, "out of memory");
    find_unfinished(directory, unfinished);
    free(directory);
    if (missing > SHOWN_SHARDS)
        snprintf(more, sizeof(more), " and %zu more", missing - SHOWN_SHARDS);
    return safetensors_fail(
        failure, -ENOENT, path, NULL,
        "of the %zu shards that this index names these are not there: %s%s; the "
        "download may not have finished%s: fetch the model again",
        count, text, more, unfinished);
}

static int index_add_shard(struct model *model, const char *path, const char *name,
                           struct failure *failure)
{
    SCOPED_FREE char *shard = index_shard_path(path, name, failure);

    return shard == NULL ? -ENOMEM : safetensors_add_file(model, shard, failure);
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

int safetensors_add_index(struct model *model, const char *path, struct failure *failure)
{
    json_t *root = NULL;
    json_t *map = NULL;
    const char **shards = NULL;
    size_t count = 0;
    int error = index_read(path, &root, failure);

    if (error == 0)
        error = index_check(path, root, &map, failure);
    if (error != 0)
        goto out;
    error = index_shards(map, &shards, &count);
    if (error != 0) {
        safetensors_fail(failure, error, path, NULL, "out of memory");
        goto out;
    }
    error = index_check_shards(path, shards, count, failure);
    for (size_t i = 0; i < count && error == 0; i++)
        error = index_add_shard(model, path, shards[i], failure);
    if (error == 0)
        error = safetensors_finish(model, failure);
    if (error == 0)
        error = index_compare(model, path, map, shards, failure);
out:
    free(shards);
    json_decref(root);
    return error;
}
