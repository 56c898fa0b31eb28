/* SPDX-License-Identifier: Apache-2.0 */
#include "find_other.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "safetensors_parts.h"

#define CACHE_PREFIX  "models--"
#define COMMIT_BYTES  72u
#define LOOKED_AT     64u /* folders */
#define SHOWN_FOLDERS 4u

/* ---- no model here, but below -------------------------------------------------------------- */

static bool has_name(const struct source_list *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->entries[i].name, name) == 0)
            return true;
    return false;
}

static bool has_model(struct source *source, const char *tree, const char *folder)
{
    static const char *const endings[] = {".safetensors", ".gguf", NULL};
    struct source_list names;
    struct failure unused;
    bool is_found = false;

    if (source_list(source, tree, folder, false, &names, &unused) != 0)
        return false;
    for (size_t i = 0; i < names.count && !is_found; i++)
        is_found = source_name_ends(names.entries[i].name, endings);
    source_list_free(&names);
    return is_found;
}

/* Writes the names of folders with a model, " 'unet', 'vae'", and returns their number. */
static size_t find_folders(struct source *source, const char *tree, const struct source_list *names,
                           char text[UNFINISHED_BYTES])
{
    size_t count = 0, used = 0, looked_at = 0;

    text[0] = '\0';
    for (size_t i = 0; i < names->count && looked_at < LOOKED_AT && count < SHOWN_FOLDERS; i++) {
        const char *name = names->entries[i].name;

        looked_at += names->entries[i].is_folder;
        if (names->entries[i].is_folder && has_model(source, tree, name))
            used += (size_t)snprintf(text + used, UNFINISHED_BYTES - used, "%s '%.60s'",
                                     count++ ? "," : "", name);
    }
    return count;
}

/* Reads the name of the main branch's snapshot in a repository of the hub's cache. */
static bool read_main(struct source *source, const char *tree, char commit[COMMIT_BYTES])
{
    struct failure unused;
    size_t file, size_bytes;

    if (source_add(source, tree, "refs/main", 0, &file, &unused) != 0)
        return false;
    size_bytes = (size_t)source_get(source, file)->size_bytes;
    if (size_bytes >= COMMIT_BYTES ||
        source_read(source, file, 0, commit, size_bytes, &unused) != 0)
        return false;
    commit[size_bytes] = '\0';
    commit[strcspn(commit, "\n")] = '\0';
    return commit[0] != '\0' && !strchr(commit, '/');
}

/* Explains caches of the hub, and pipelines; 0: neither. */
static int say_below(struct source *source, const char *directory, const struct source_list *names,
                     struct failure *failure)
{
    char text[UNFINISHED_BYTES], commit[COMMIT_BYTES];

    if (has_name(names, "snapshots") && (has_name(names, "refs") || has_name(names, "blobs")))
        return safetensors_fail(failure, -ENOENT, directory, NULL,
                                "is a model in the hub's cache; name its snapshot, '%.300s/"
                                "snapshots/%s'",
                                directory, read_main(source, directory, commit) ? commit : "...");
    for (size_t i = 0; i < names->count; i++)
        if (strncmp(names->entries[i].name, CACHE_PREFIX, strlen(CACHE_PREFIX)) == 0)
            return safetensors_fail(failure, -ENOENT, directory, NULL,
                                    "is the hub's cache of many models; name a snapshot of one, "
                                    "'%.300s/%.200s/snapshots/...'",
                                    directory, names->entries[i].name);
    if (find_folders(source, directory, names, text) == 0)
        return 0;
    return safetensors_fail(
        failure, -ENOENT, directory, NULL,
        "%shas no safetensors and no GGUF file, but folders that have:%s; name "
        "one of them, and load each into a store of its own",
        has_name(names, "model_index.json") ? "is a pipeline of diffusers: it " : "", text);
}

/* ---- no model ------------------------------------------------------------------------------ */

int find_say_none(struct source *source, const char *directory, const struct source_list *names,
                  struct failure *failure)
{
    static const char *const others[] = {".bin", ".pt",      ".pth",  ".npz", ".onnx",
                                         ".h5",  ".msgpack", ".ckpt", NULL};
    char unfinished[UNFINISHED_BYTES];
    int error = say_below(source, directory, names, failure);

    if (error)
        return error;
    for (size_t i = 0; i < names->count; i++)
        if (source_name_ends(names->entries[i].name, others))
            return safetensors_fail(failure, -ENOENT, directory, NULL,
                                    "has no safetensors and no GGUF file; '%.200s' is of a "
                                    "format that gmsfs does not load: fetch the model as "
                                    "safetensors, or convert it",
                                    names->entries[i].name);
    source_tell_unfinished(source, directory, unfinished, sizeof(unfinished));
    if (unfinished[0])
        return safetensors_fail(failure, -ENOENT, directory, NULL,
                                "has no safetensors and no GGUF file; the download may not have "
                                "finished%s: fetch the model again",
                                unfinished);
    return safetensors_fail(failure, -ENOENT, directory, NULL,
                            "has no safetensors and no GGUF file; name the directory or the files "
                            "of a model");
}
