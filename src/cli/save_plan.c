/* SPDX-License-Identifier: Apache-2.0 */
/* Plans the names and headers of the files, before the first is made. */
#include "base/scope.h"
#include "cli/save.h"

#include "model/safetensors_write.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_SUFFIX ".index.json"

/* The length of FILE without its ending, directory included. */
static int save_stem_length(const struct save *save)
{
    return (int)(strlen(save->path) - strlen(SAFETENSORS_SUFFIX));
}

/* ---- metadata ------------------------------------------------------------------------------ */

/* Parses the entry, or its long value in the store's memory. */
static int save_parse_metadata(struct save *save, const struct gmsfs_layout_entry *entry,
                               json_t **metadata)
{
    struct save_value value = {0};
    bool is_long = save_find_value(save, entry, &value);
    int status = is_long ? save_fetch_value(save, &value) : CLI_OK;

    *metadata = NULL;
    if (status == CLI_OK)
        *metadata =
            is_long ? json_loadb(value.bytes, value.size_bytes, JSON_REJECT_DUPLICATES, NULL)
                    : json_loadb(entry->value, entry->value_bytes, JSON_REJECT_DUPLICATES, NULL);
    free(value.bytes);
    return status;
}

/* *metadata: an object of strings, or NULL where the store has none. */
static int save_get_metadata(struct save *save, json_t **metadata)
{
    const struct gmsfs_layout_entry *entry = reader_find(&save->reader, SAFETENSORS_METADATA_KEY);
    const char *key;
    json_t *value;

    *metadata = NULL;
    if (!entry)
        return CLI_OK;
    if (save_parse_metadata(save, entry, metadata) != CLI_OK)
        return CLI_FAILURE;
    if (!json_is_object(*metadata))
        return cli_error(
            "%s: the entry %s is not a JSON object, so no safetensors file can hold it; "
            "change or remove it with 'gmsfs metadata'",
            save->store, SAFETENSORS_METADATA_KEY);
    json_object_foreach (*metadata, key, value) {
        if (json_is_string(value))
            continue;
        return cli_error(
            "%s: '%s' in the entry %s is not a string, so no safetensors file can hold it; "
            "change it with 'gmsfs metadata put'",
            save->store, key, SAFETENSORS_METADATA_KEY);
    }
    return CLI_OK;
}

/* ---- files --------------------------------------------------------------------------------- */

/* Adds the text, and the bytes of the file's tensors, to its plan. */
static void save_make(const struct save *save, struct save_file *file, const char *text,
                      size_t bytes)
{
    char *to = file_plan_add_text(&file->plan, bytes);

    if (to)
        memcpy(to, text, bytes);
    for (size_t i = file->first; i < file->first + file->count; i++) {
        const struct reader_tensor *tensor = &save->tensors.list[i];

        file_plan_add_memory(&file->plan, tensor->rank, tensor->offset_bytes,
                             tensor->tensor.size_bytes);
    }
}

static void save_plan_parts(struct save *save, struct save_file *file, const char *text,
                            size_t bytes)
{
    save_make(save, file, text, bytes);
    if (file_plan_room(&file->plan) != 0)
        cli_out_of_memory();
    save_make(save, file, text, bytes);
    save->size_bytes += file->plan.size_bytes;
}

static int save_plan_head(struct save *save, struct save_file *file, json_t *metadata)
{
    SCOPED_FREE char *head = NULL;
    size_t head_bytes;
    int error = safetensors_make_header(save->models + file->first, file->count, metadata, &head,
                                        &head_bytes);

    if (error == -EFBIG)
        return cli_error("%s: the header would have more than the %u bytes that readers accept; "
                         "choose a smaller --shard-size",
                         file->path, SAFETENSORS_MAX_HEADER_BYTES);
    if (error)
        cli_out_of_memory();
    save_plan_parts(save, file, head, head_bytes);
    return CLI_OK;
}

/* Room for one file more, the index. */
static int save_plan_shards(struct save *save)
{
    size_t count = save->tensors.count, shards = 0, first = 0;

    do {
        first += safetensors_shard_count(save->models, count, first, save->shard_bytes);
        shards++;
    } while (first < count);
    if (shards > SAFETENSORS_MAX_FILES)
        return cli_error(
            "%s: %zu files would be made, and a model has at most %u; choose a larger --shard-size",
            save->path, shards, SAFETENSORS_MAX_FILES);
    save->files = cli_need(calloc(shards + 1, sizeof(*save->files)));
    first = 0;
    for (size_t i = 0; i < shards; i++) {
        struct save_file *file = &save->files[i];
        file->first = first;
        file->count = safetensors_shard_count(save->models, count, first, save->shard_bytes);
        first += file->count;
    }
    save->file_count = shards;
    return CLI_OK;
}

static void save_plan_names(struct save *save)
{
    for (size_t i = 0; i < save->file_count; i++) {
        save->files[i].path =
            save->shard_bytes
                ? cli_format("%.*s-%05zu-of-%05zu" SAFETENSORS_SUFFIX, save_stem_length(save),
                             save->path, i + 1, save->file_count)
                : cli_format("%s", save->path);
    }
}

/* ---- index --------------------------------------------------------------------------------- */

static json_t *save_make_map(const struct save *save)
{
    json_t *map = json_object();

    for (size_t i = 0; i < save->file_count; i++) {
        const struct save_file *file = &save->files[i];
        const char *slash = strrchr(file->path, '/');
        const char *name = slash ? slash + 1 : file->path;
        for (size_t j = file->first; j < file->first + file->count; j++) {
            /* Setting in NULL, or NULL, fails. */
            if (json_object_set_new(map, save->models[j]->name, json_string(name)) != 0) {
                json_decref(map);
                return NULL;
            }
        }
    }
    return map;
}

/* A file name that is no UTF-8 has no place in JSON. */
static int save_plan_index(struct save *save)
{
    struct save_file *index = &save->files[save->file_count];
    SCOPED_FREE char *text = NULL;
    json_t *map = save_make_map(save);
    json_t *json = map ? json_pack("{s:{s:I},s:o}", "metadata", "total_size",
                                   (json_int_t)save->tensors.size_bytes, "weight_map", map)
                       : NULL;

    if (json)
        text = json_dumps(json, JSON_INDENT(2) | JSON_SORT_KEYS);
    json_decref(json);
    if (!text)
        return cli_error("%s: cannot make the index: out of memory, or the name is not UTF-8",
                         save->path);
    index->path = cli_format("%s" INDEX_SUFFIX, save->path);
    save->has_index = true;
    save->file_count++;
    save_plan_parts(save, index, text, strlen(text));
    return CLI_OK;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int save_plan_tensors(struct save *save)
{
    size_t count = save->tensors.count;

    save->models = cli_need(calloc(count + 1, sizeof(struct model_tensor *)));
    for (size_t i = 0; i < count; i++) {
        save->models[i] = &save->tensors.list[i].tensor;
        if (strcmp(save->models[i]->name, SAFETENSORS_METADATA_KEY) == 0)
            return cli_error(
                "%s: a tensor is called %s, which means something else in a safetensors "
                "file; give it another key",
                save->store, SAFETENSORS_METADATA_KEY);
    }
    return CLI_OK;
}

int save_plan(struct save *save)
{
    json_auto_t *metadata = NULL;
    int status = save_plan_tensors(save);

    if (status == CLI_OK && save->as_gguf)
        return save_plan_gguf(save);
    if (status == CLI_OK)
        status = save_get_metadata(save, &metadata);
    if (status == CLI_OK)
        status = save_plan_shards(save);
    if (status == CLI_OK)
        save_plan_names(save);
    for (size_t i = 0; status == CLI_OK && i < save->file_count; i++)
        status = save_plan_head(save, &save->files[i], metadata);
    if (status == CLI_OK && save->shard_bytes)
        status = save_plan_index(save);
    return status;
}

void save_plan_free(struct save *save)
{
    for (size_t i = 0; save->files && i < save->file_count; i++) {
        free(save->files[i].path);
        file_plan_free(&save->files[i].plan);
    }
    free(save->files);
    free(save->models);
}
