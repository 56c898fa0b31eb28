/* SPDX-License-Identifier: Apache-2.0 */
#include "model/files.h"

#include "base/file_entry.h"
#include "base/scope.h"
#include "model/open.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "part_name.h"
#include "safetensors_parts.h"

/* Of a tree with more files, each is opened anew for each read. */
#define FILES_HELD_OPEN 256u

/* ---- one file ------------------------------------------------------------------------------ */

/* Adds a file of the source to the model, by its path in the store. */
static int add_file(struct model *files, size_t number, const char *relative,
                    struct failure *failure)
{
    const struct source_file *from = source_get(files->source, number);
    struct model_tensor *tensors =
        safetensors_grow(files->tensors, files->tensor_count, 1, sizeof(*files->tensors));
    int error = tensors ? safetensors_add_opened(files, number, failure)
                        : safetensors_fail(failure, -ENOMEM, from->shown, NULL, "out of memory");

    if (tensors)
        files->tensors = tensors;
    if (error)
        return error;
    struct model_tensor *tensor = &tensors[files->tensor_count++];
    *tensor =
        (struct model_tensor){.dtype = SAFETENSORS_U8,
                              .file = (uint32_t)files->file_count - 1,
                              .size_bytes = from->size_bytes,
                              .is_file = true,
                              .mtime_ns = from->mtime_ns ? from->mtime_ns : FILE_ENTRY_NO_TIME};
    if (asprintf(&tensor->name, FILE_ENTRY_PREFIX "%s", relative) >= 0)
        return 0;
    tensor->name = NULL;
    return safetensors_fail(failure, -ENOMEM, from->shown, NULL, "out of memory");
}

static int check_path(const char *place, const char *relative, struct failure *failure)
{
    const char *fault = file_entry_path_fault(relative, strlen(relative));

    if (!fault)
        return 0;
    return safetensors_fail(failure, -EINVAL, place, NULL,
                            "no store can keep '%.300s': its path %s; rename it", relative, fault);
}

/* ---- a tree, or files by their names -------------------------------------------------------- */

/* Checks all names before it opens a file. */
static int add_tree(struct model *files, const char *tree, struct failure *failure)
{
    struct source_list list = {0};
    int error = source_list(files->source, tree, NULL, true, &list, failure);
    unsigned flags = SOURCE_LISTED | (list.count > FILES_HELD_OPEN ? SOURCE_IN_TURN : 0);

    for (size_t i = 0; !error && i < list.count; i++)
        error = check_path(tree, list.entries[i].name, failure);
    for (size_t i = 0, number; !error && i < list.count; i++) {
        error = source_add(files->source, tree, list.entries[i].name, flags, &number, failure);
        if (!error)
            error = add_file(files, number, list.entries[i].name, failure);
    }
    if (!error && list.count == 0)
        error = safetensors_fail(failure, -ENOENT, tree, NULL, "has no files");
    source_list_free(&list);
    return error;
}

static int add_named(struct model *files, const char *place, struct failure *failure)
{
    SCOPED_FREE char *shown = source_show(place), *relative = NULL;
    size_t number;
    int error = shown ? source_file_name(place, &relative) : -ENOMEM;

    if (error == -ENOMEM)
        return safetensors_fail(failure, -ENOMEM, "files", NULL, "out of memory");
    if (source_is_tree(place))
        return safetensors_fail(failure, -EINVAL, shown, NULL,
                                "is a directory; name one directory alone, or files");
    if (error)
        return safetensors_fail(failure, error, shown, NULL,
                                "no store can keep it under the last part of its address: a '%%' "
                                "there encodes a slash, a NUL or nothing");
    if (!*relative)
        return safetensors_fail(failure, -EINVAL, shown, NULL,
                                "ends in '/', so it names no file, and a server's folder cannot be "
                                "listed; name its files");
    error = check_path(shown, relative, failure);
    if (!error)
        error = source_add(files->source, place, NULL, 0, &number, failure);
    return error ? error : add_file(files, number, relative, failure);
}

static int compare(const void *left, const void *right)
{
    const struct model_tensor *a = left, *b = right;

    return strcmp(a->name, b->name);
}

static int check_names(struct model *files, struct failure *failure)
{
    qsort(files->tensors, files->tensor_count, sizeof(*files->tensors), compare);
    for (size_t i = 1; i < files->tensor_count; i++) {
        const struct model_tensor *file = &files->tensors[i];

        if (strcmp(file[-1].name, file->name) == 0)
            return safetensors_fail(failure, -EINVAL, files->files[file->file].path, NULL,
                                    "has the name of %.300s, and a store keeps one '%s'; load "
                                    "their directory, or one of them",
                                    files->files[file[-1].file].path, files_path(file));
    }
    return 0;
}

int files_open(struct source *source, const char *const *places, size_t count, struct model **files,
               struct failure *failure)
{
    struct model *made = calloc(1, sizeof(*made));
    int error = 0;

    *files = NULL;
    if (!made)
        return safetensors_fail(failure, -ENOMEM, places[0], NULL, "out of memory");
    made->source = source;
    if (count == 1 && source_is_tree(places[0]))
        error = add_tree(made, places[0], failure);
    else
        for (size_t i = 0; !error && i < count; i++)
            error = add_named(made, places[i], failure);
    if (!error)
        error = check_names(made, failure);
    if (!error)
        error = safetensors_finish(made, failure);
    if (error)
        safetensors_close(made);
    else
        *files = made;
    return error;
}

const char *files_path(const struct model_tensor *file)
{
    return file->name + FILE_ENTRY_PREFIX_BYTES;
}

/* ---- the model in them ---------------------------------------------------------------------- */

static int open_model_of(struct source *source, const char *tree, struct model **model,
                         struct failure *failure)
{
    SCOPED_FREE size_t *files = NULL;
    size_t count;
    int error = model_find(source, tree, &files, &count, failure);

    if (error)
        return error == -ENOENT ? 0 : error;
    return model_open_added(source, files, count, model, failure);
}

/* Adds the place to the list, if its name, without a query, is that of a file with tensors.
 * -ENOMEM. */
static int add_with_tensors(const char *place, const char **list, size_t *count)
{
    SCOPED_FREE char *shown = source_show(place);

    if (!shown)
        return -ENOMEM;
    if (part_name_ends_with(shown, ".safetensors") || part_name_ends_with(shown, ".gguf"))
        list[(*count)++] = place;
    return 0;
}

/* An index alone would replace the model that it is of. */
static int refuse_index(const char *const *places, size_t count, struct failure *failure)
{
    for (size_t i = 0; i < count; i++) {
        SCOPED_FREE char *shown = source_show(places[i]);

        if (shown && part_name_ends_with(shown, ".safetensors.index.json"))
            return safetensors_fail(failure, -EINVAL, shown, NULL,
                                    "this index would be kept without the files that it names; "
                                    "name these too, or their directory");
    }
    return 0;
}

int files_open_model(struct source *source, const char *const *places, size_t count,
                     struct model **model, struct failure *failure)
{
    SCOPED_FREE const char **with_tensors = calloc(count, sizeof(*with_tensors));
    size_t used = 0;
    int error = with_tensors ? 0 : -ENOMEM;

    *model = NULL;
    for (size_t i = 0; !error && i < count; i++)
        error = add_with_tensors(places[i], with_tensors, &used);
    if (error)
        return safetensors_fail(failure, -ENOMEM, places[0], NULL, "out of memory");
    if (count == 1 && source_is_tree(places[0]))
        return open_model_of(source, places[0], model, failure);
    return used ? model_open(source, with_tensors, used, model, failure)
                : refuse_index(places, count, failure);
}

int files_find(const struct model *files, const struct model_file *file, size_t *index,
               struct failure *failure)
{
    for (*index = 0; *index < files->tensor_count; ++*index)
        if (source_is_same(files->source, files->files[files->tensors[*index].file].number,
                           file->number))
            return 0;
    return safetensors_fail(failure, -ENOENT, file->path, NULL,
                            "the model's index names it, and it is not among the files to be kept; "
                            "load the directory that has both");
}
