/* SPDX-License-Identifier: Apache-2.0 */
#include "find_other.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors_parts.h"

#define CACHE_PREFIX  "models--"
#define COMMIT_BYTES  72u
#define LOOKED_AT     64u /* names that may be folders */
#define SHOWN_FOLDERS 4u

static bool has_ending(const char *name, const char *const *endings)
{
    size_t length = strlen(name);

    for (; *endings; endings++)
        if (length > strlen(*endings) && strcmp(name + length - strlen(*endings), *endings) == 0)
            return true;
    return false;
}

/* ---- names --------------------------------------------------------------------------------- */

static int name_compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

void file_names_free(struct file_names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
}

static int names_add(struct file_names *names, const char *name)
{
    char **grown = safetensors_grow(names->list, names->count, 1, sizeof(*grown));

    if (!grown)
        return -ENOMEM;
    names->list = grown;
    grown[names->count] = strdup(name);
    if (!grown[names->count])
        return -ENOMEM;
    names->count++;
    return 0;
}

int file_names_read(const char *directory, struct file_names *names, struct failure *failure)
{
    DIR *dir = opendir(directory);
    struct dirent *entry;
    int error = dir ? 0 : -errno;

    while (!error && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            error = names_add(names, entry->d_name);
    if (dir)
        closedir(dir);
    if (error)
        return safetensors_fail(failure, error, directory, NULL, "cannot list it: %s",
                                failure_reason(error));
    if (names->count)
        qsort(names->list, names->count, sizeof(*names->list), name_compare);
    return 0;
}

/* ---- downloads ----------------------------------------------------------------------------- */

/* Searches hidden files, too: some tools hide unfinished files. */
static bool find_in(const char *directory, const char *below, char text[UNFINISHED_BYTES])
{
    static const char *const endings[] = {".incomplete", ".aria2",      ".part",
                                          ".partial",    ".crdownload", NULL};
    struct dirent *entry;
    bool is_found = false;
    char *path = NULL;
    DIR *dir = NULL;

    if (asprintf(&path, "%s/%s", directory, below) < 0)
        return false;
    dir = opendir(path);
    while (dir && !is_found && (entry = readdir(dir))) {
        is_found = has_ending(entry->d_name, endings);
        if (is_found)
            snprintf(text, UNFINISHED_BYTES, " ('%s%.250s' is still there)", below, entry->d_name);
    }
    if (dir)
        closedir(dir);
    free(path);
    return is_found;
}

void find_unfinished(const char *directory, char text[UNFINISHED_BYTES])
{
    static const char *const places[] = {"", ".cache/huggingface/download/", "../../blobs/"};

    text[0] = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (find_in(directory, places[i], text))
            return;
}

/* ---- no model here, but below -------------------------------------------------------------- */

static bool has_name(const struct file_names *names, const char *name)
{
    for (size_t i = 0; i < names->count; i++)
        if (strcmp(names->list[i], name) == 0)
            return true;
    return false;
}

static bool has_model(const char *directory, const char *below)
{
    static const char *const endings[] = {".safetensors", ".gguf", NULL};
    struct file_names names = {0};
    struct failure unused;
    char *path = NULL;
    bool is_found = false;

    if (asprintf(&path, "%s/%s", directory, below) < 0)
        return false;
    if (file_names_read(path, &names, &unused) == 0)
        for (size_t i = 0; i < names.count && !is_found; i++)
            is_found = has_ending(names.list[i], endings);
    file_names_free(&names);
    free(path);
    return is_found;
}

/* Writes the names of folders with a model, " 'unet', 'vae'", and returns their number. */
static size_t find_folders(const char *directory, const struct file_names *names,
                           char text[UNFINISHED_BYTES])
{
    size_t count = 0, used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < names->count && i < LOOKED_AT && count < SHOWN_FOLDERS; i++) {
        if (!has_model(directory, names->list[i]))
            continue;
        used += (size_t)snprintf(text + used, UNFINISHED_BYTES - used, "%s '%.60s'",
                                 count++ ? "," : "", names->list[i]);
    }
    return count;
}

/* Reads the name of the main branch's snapshot in a repository of the hub's cache. */
static bool read_main(const char *directory, char commit[COMMIT_BYTES])
{
    char *path = NULL;
    FILE *file;
    bool is_read;

    if (asprintf(&path, "%s/refs/main", directory) < 0)
        return false;
    file = fopen(path, "re");
    is_read = file && fgets(commit, COMMIT_BYTES, file);
    if (file)
        fclose(file);
    free(path);
    if (!is_read)
        return false;
    commit[strcspn(commit, "\n")] = '\0';
    return commit[0] != '\0' && !strchr(commit, '/');
}

/* Explains caches of the hub, and pipelines; 0: neither. */
static int say_below(const char *directory, const struct file_names *names, struct failure *failure)
{
    char text[UNFINISHED_BYTES], commit[COMMIT_BYTES];

    if (has_name(names, "snapshots") && (has_name(names, "refs") || has_name(names, "blobs")))
        return safetensors_fail(failure, -ENOENT, directory, NULL,
                                "is a model in the hub's cache; name its snapshot, '%.300s/"
                                "snapshots/%s'",
                                directory, read_main(directory, commit) ? commit : "...");
    for (size_t i = 0; i < names->count; i++)
        if (strncmp(names->list[i], CACHE_PREFIX, strlen(CACHE_PREFIX)) == 0)
            return safetensors_fail(failure, -ENOENT, directory, NULL,
                                    "is the hub's cache of many models; name a snapshot of one, "
                                    "'%.300s/%.200s/snapshots/...'",
                                    directory, names->list[i]);
    if (find_folders(directory, names, text) == 0)
        return 0;
    return safetensors_fail(
        failure, -ENOENT, directory, NULL,
        "%shas no safetensors and no GGUF file, but folders that have:%s; name "
        "one of them, and load each into a store of its own",
        has_name(names, "model_index.json") ? "is a pipeline of diffusers: it " : "", text);
}

/* ---- no model ------------------------------------------------------------------------------ */

int find_say_none(const char *directory, const struct file_names *names, struct failure *failure)
{
    static const char *const others[] = {".bin", ".pt",      ".pth",  ".npz", ".onnx",
                                         ".h5",  ".msgpack", ".ckpt", NULL};
    char unfinished[UNFINISHED_BYTES];
    int error = say_below(directory, names, failure);

    if (error)
        return error;
    for (size_t i = 0; i < names->count; i++)
        if (has_ending(names->list[i], others))
            return safetensors_fail(failure, -ENOENT, directory, NULL,
                                    "has no safetensors and no GGUF file; '%.200s' is of a "
                                    "format that gmsfs does not load: fetch the model as "
                                    "safetensors, or convert it",
                                    names->list[i]);
    find_unfinished(directory, unfinished);
    if (unfinished[0])
        return safetensors_fail(failure, -ENOENT, directory, NULL,
                                "has no safetensors and no GGUF file; the download may not have "
                                "finished%s: fetch the model again",
                                unfinished);
    return safetensors_fail(failure, -ENOENT, directory, NULL,
                            "has no safetensors and no GGUF file; name the directory or the files "
                            "of a model");
}
