/* SPDX-License-Identifier: Apache-2.0 */
/* Which files of a directory are its model. */
#include "model/open.h"

#include "base/failure.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors_parts.h"

#define INDEX_SUFFIX       ".safetensors.index.json"
#define SAFETENSORS_SUFFIX ".safetensors"
#define GGUF_SUFFIX        ".gguf"
#define USUAL_NAME         "model"

/* The names of a directory that end so, sorted. */
struct names {
    char **list;
    size_t count;
};

static bool ends_with(const char *name, const char *suffix)
{
    size_t length = strlen(name), end = strlen(suffix);

    return length > end && strcmp(name + length - end, suffix) == 0;
}

static int name_compare(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static void names_free(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->list[i]);
    free(names->list);
}

static int names_add(struct names *names, const char *name)
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

/* Hidden files are what others have not finished. */
static int names_read(const char *directory, struct names *names, struct failure *failure)
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

/* ---- files that are one model -------------------------------------------------------------- */

/* STEM-00002-of-00005.safetensors: the length of the stem, and of how many files; 0: no such name.
 */
static size_t split_stem(const char *name, const char *suffix, unsigned *count)
{
    const char *of = strstr(name, "-of-"), *end = name + strlen(name) - strlen(suffix);
    unsigned number;
    int length = 0;

    while (of && strstr(of + 1, "-of-"))
        of = strstr(of + 1, "-of-");
    if (!of || of - name < 7 || sscanf(of - 6, "-%5u-of-%5u%n", &number, count, &length) != 2 ||
        of - 6 + length != end)
        return 0;
    return (size_t)(of - name) - 6;
}

/* The only one of its kind, or all the parts of one; others of that kind are another model. */
static bool is_one_model(const struct names *names, const char *suffix)
{
    size_t stem = 0, length;
    unsigned count = 0, parts;

    if (names->count == 1)
        return true;
    for (size_t i = 0; i < names->count; i++) {
        length = split_stem(names->list[i], suffix, &parts);
        if (length == 0 || (i > 0 && (length != stem || parts != count ||
                                      memcmp(names->list[i], names->list[0], stem) != 0)))
            return false;
        stem = length;
        count = parts;
    }
    return names->count > 0 && names->count == count;
}

/* Those of all that end so; an ending of another kind that ends alike is none. */
static int names_pick(const struct names *all, const char *suffix, struct names *picked)
{
    int error = 0;

    for (size_t i = 0; !error && i < all->count; i++)
        if (ends_with(all->list[i], suffix))
            error = names_add(picked, all->list[i]);
    return error;
}

/* The one that is called as most are, where it is there. */
static void names_keep_usual(struct names *names, const char *suffix)
{
    for (size_t i = 0; names->count > 1 && i < names->count; i++) {
        if (strncmp(names->list[i], USUAL_NAME, strlen(USUAL_NAME)) != 0 ||
            strcmp(names->list[i] + strlen(USUAL_NAME), suffix) != 0)
            continue;
        char *kept = names->list[i];
        names->list[i] = names->list[0];
        names->list[0] = kept;
        for (size_t j = 1; j < names->count; j++)
            free(names->list[j]);
        names->count = 1;
    }
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int say_none(const char *directory, const struct names *all, struct failure *failure)
{
    static const char *const others[] = {".bin",  ".pt", ".pth",     ".npz",
                                         ".onnx", ".h5", ".msgpack", ".ckpt"};

    for (size_t i = 0; i < all->count; i++)
        for (size_t j = 0; j < sizeof(others) / sizeof(others[0]); j++)
            if (ends_with(all->list[i], others[j]))
                return safetensors_fail(failure, -ENOENT, directory, NULL,
                                        "has no safetensors and no GGUF file; '%.200s' is of a "
                                        "format that gmsfs does not load: fetch the model as "
                                        "safetensors, or convert it",
                                        all->list[i]);
    return safetensors_fail(failure, -ENOENT, directory, NULL,
                            "has no safetensors and no GGUF file; name the directory or the files "
                            "of a model");
}

static int make_paths(const char *directory, const struct names *names, char ***paths,
                      size_t *count)
{
    *paths = calloc(names->count, sizeof(**paths));
    if (!*paths)
        return -ENOMEM;
    for (*count = 0; *count < names->count; ++*count)
        if (asprintf(&(*paths)[*count], "%s/%s", directory, names->list[*count]) < 0)
            return -ENOMEM;
    return 0;
}

static int choose(const char *directory, const struct names *all, struct names *picked,
                  struct failure *failure)
{
    static const char *const suffixes[] = {INDEX_SUFFIX, SAFETENSORS_SUFFIX, GGUF_SUFFIX};

    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        if (names_pick(all, suffixes[i], picked) != 0)
            return safetensors_fail(failure, -ENOMEM, directory, NULL, "out of memory");
        if (picked->count == 0)
            continue;
        names_keep_usual(picked, suffixes[i]);
        if (is_one_model(picked, suffixes[i]))
            return 0;
        return safetensors_fail(failure, -EINVAL, directory, NULL,
                                "has more than one model ('%.200s' and '%.200s'); name the files "
                                "of one",
                                picked->list[0], picked->list[1]);
    }
    return say_none(directory, all, failure);
}

int model_find(const char *directory, char ***paths, size_t *count, struct failure *failure)
{
    struct names all = {0}, picked = {0};
    int error = names_read(directory, &all, failure);

    *paths = NULL;
    *count = 0;
    if (!error)
        error = choose(directory, &all, &picked, failure);
    if (!error && make_paths(directory, &picked, paths, count) != 0) {
        for (size_t i = 0; *paths && i < *count; i++)
            free((*paths)[i]);
        free(*paths);
        *paths = NULL;
        error = safetensors_fail(failure, -ENOMEM, directory, NULL, "out of memory");
    }
    names_free(&all);
    names_free(&picked);
    return error;
}
