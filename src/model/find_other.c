/* SPDX-License-Identifier: Apache-2.0 */
#include "find_other.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors_parts.h"

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

/* Hidden files are looked at, too: some tools hide what they have not finished. */
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

/* ---- no model ------------------------------------------------------------------------------ */

int find_say_none(const char *directory, const struct file_names *names, struct failure *failure)
{
    static const char *const others[] = {".bin", ".pt",      ".pth",  ".npz", ".onnx",
                                         ".h5",  ".msgpack", ".ckpt", NULL};
    char unfinished[UNFINISHED_BYTES];

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
