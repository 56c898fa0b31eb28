/* SPDX-License-Identifier: Apache-2.0 */
#include "model/files.h"

#include "base/file_entry.h"
#include "base/scope.h"
#include "model/open.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "part_name.h"
#include "safetensors_parts.h"

/* A directory that is being read, and those that it was reached through. */
struct level {
    const struct level *above;
    dev_t device;
    ino_t inode;
};

struct walk {
    struct source *source;
    struct model *files;
    struct failure *failure;
    char *root;  /* real path of the given directory */
    char *blobs; /* and of blobs/ of the hub's cache that it lies in; NULL if in none */
};

static int fail_memory(const struct walk *walk, const char *path)
{
    return safetensors_fail(walk->failure, -ENOMEM, path, NULL, "out of memory");
}

static int fail_system(const struct walk *walk, const char *path, const char *doing)
{
    int error = -errno;

    return safetensors_fail(walk->failure, error, path, NULL, "cannot %s: %s", doing,
                            strerror(-error));
}

/* ---- one file ------------------------------------------------------------------------------ */

/* Describes the last file of the model. */
static int describe(const struct walk *walk, const char *relative)
{
    struct model *files = walk->files;
    uint32_t index = (uint32_t)files->file_count - 1;
    const struct model_file *file = &files->files[index];
    struct model_tensor *tensors =
        safetensors_grow(files->tensors, files->tensor_count, 1, sizeof(*tensors));
    struct model_tensor *tensor;
    int64_t mtime_ns = source_get(walk->source, file->number)->mtime_ns;

    if (!tensors)
        return fail_memory(walk, file->path);
    files->tensors = tensors;
    tensor = &tensors[files->tensor_count++];
    *tensor = (struct model_tensor){.dtype = SAFETENSORS_U8,
                                    .file = index,
                                    .size_bytes = file->size_bytes,
                                    .is_file = true,
                                    .mtime_ns = mtime_ns ? mtime_ns : FILE_ENTRY_NO_TIME};
    if (asprintf(&tensor->name, FILE_ENTRY_PREFIX "%s", relative) < 0) {
        tensor->name = NULL;
        return fail_memory(walk, file->path);
    }
    return 0;
}

static int check_path(const struct walk *walk, const char *path, const char *relative)
{
    const char *fault = file_entry_path_fault(relative, strlen(relative));

    if (!fault)
        return 0;
    return safetensors_fail(walk->failure, -EINVAL, path, NULL,
                            "no store can keep '%.300s': its path %s; rename it", relative, fault);
}

/* Adds the file at a place, or that name in the tree there. */
static int add_file(const struct walk *walk, const char *place, const char *name,
                    const char *relative)
{
    size_t file;
    int error = check_path(walk, place, relative);

    if (!error)
        error = source_add(walk->source, place, name, 0, &file, walk->failure);
    if (!error)
        error = safetensors_add_opened(walk->files, file, walk->failure);
    return error ? error : describe(walk, relative);
}

/* ---- a directory --------------------------------------------------------------------------- */

static int add_directory(const struct walk *walk, const char *path, const char *relative,
                         const struct level *above);

static bool lies_in(const char *path, const char *directory)
{
    size_t bytes = directory ? strlen(directory) : 0;

    return directory && strncmp(path, directory, bytes) == 0 &&
           (path[bytes] == '/' || strcmp(directory, "/") == 0);
}

static bool is_above(const struct level *level, const struct stat *status)
{
    for (; level; level = level->above)
        if (level->device == status->st_dev && level->inode == status->st_ino)
            return true;
    return false;
}

/* Follows a symbolic link; *real is its target, which the caller frees. */
static int follow(const struct walk *walk, const char *path, const struct level *above, char **real,
                  struct stat *status)
{
    *real = realpath(path, NULL);
    if (!*real || lstat(*real, status) < 0)
        return fail_system(walk, path, "follow this link");
    if (S_ISDIR(status->st_mode) && is_above(above, status))
        return safetensors_fail(walk->failure, -EINVAL, path, NULL,
                                "is a link to a directory that it lies in; remove it");
    if (lies_in(*real, walk->root) || (lies_in(*real, walk->blobs) && S_ISREG(status->st_mode)))
        return 0;
    return safetensors_fail(walk->failure, -EINVAL, path, NULL,
                            "is a link to '%.300s', outside of the directory; copy the file to its "
                            "place",
                            *real);
}

static int add_name(const struct walk *walk, const char *path, const char *relative,
                    const struct level *above)
{
    SCOPED_FREE char *real = NULL;
    struct stat status;
    int error = 0;

    if (lstat(path, &status) < 0)
        return fail_system(walk, path, "look at it");
    if (S_ISLNK(status.st_mode))
        error = follow(walk, path, above, &real, &status);
    if (error)
        return error;
    if (S_ISDIR(status.st_mode))
        return add_directory(walk, real ? real : path, relative, above);
    if (S_ISREG(status.st_mode))
        return add_file(walk, real ? real : path, NULL, relative);
    return safetensors_fail(walk->failure, -EINVAL, path, NULL,
                            "is neither a file nor a directory; remove it");
}

static int add_names(const struct walk *walk, const char *path, const char *relative,
                     const struct level *level, struct dirent **names, int count)
{
    int error = 0;

    for (int i = 0; !error && i < count; i++) {
        SCOPED_FREE char *child = NULL;
        SCOPED_FREE char *child_relative = NULL;
        const char *name = names[i]->d_name;

        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        if (asprintf(&child, "%s/%s", path, name) < 0 ||
            asprintf(&child_relative, "%s%s%s", relative, *relative ? "/" : "", name) < 0)
            return fail_memory(walk, path);
        error = check_path(walk, child, child_relative);
        if (!error)
            error = add_name(walk, child, child_relative, level);
    }
    return error;
}

/* The depth is bounded by the length of a path. */
static int add_directory(const struct walk *walk, const char *path, const char *relative,
                         const struct level *above)
{
    struct level level = {.above = above};
    struct dirent **names = NULL;
    struct stat status;
    int count, error;

    if (stat(path, &status) < 0)
        return fail_system(walk, path, "look at it");
    level.device = status.st_dev;
    level.inode = status.st_ino;
    count = scandir(path, &names, NULL, alphasort);
    if (count < 0)
        return fail_system(walk, path, "read this directory");
    error = add_names(walk, path, relative, &level, names, count);
    for (int i = 0; i < count; i++)
        free(names[i]);
    free(names);
    return error;
}

/* blobs/ stands beside snapshots/ in a hub's cache. */
static int find_blobs(struct walk *walk)
{
    SCOPED_FREE char *blobs = NULL;
    const char *revision = strrchr(walk->root, '/');
    size_t above = (size_t)(revision - walk->root), bytes = strlen("/snapshots");

    if (above < bytes || memcmp(revision - bytes, "/snapshots", bytes) != 0)
        return 0;
    if (asprintf(&blobs, "%.*s/blobs", (int)(above - bytes), walk->root) < 0)
        return fail_memory(walk, walk->root);
    walk->blobs = realpath(blobs, NULL);
    return 0;
}

static int walk_directory(struct walk *walk, const char *path)
{
    int error = 0;

    walk->root = realpath(path, NULL);
    if (!walk->root)
        return fail_system(walk, path, "find this directory");
    error = find_blobs(walk);
    if (!error)
        error = add_directory(walk, path, "", NULL);
    free(walk->root);
    free(walk->blobs);
    return error;
}

/* A tree of another machine has no links. */
static int walk_list(const struct walk *walk, const char *tree)
{
    struct source_list list;
    int error = source_list(walk->source, tree, NULL, true, &list, walk->failure);

    for (size_t i = 0; !error && i < list.count; i++)
        error = add_file(walk, tree, list.entries[i].name, list.entries[i].name);
    source_list_free(&list);
    return error;
}

static int walk_tree(struct walk *walk, const char *tree)
{
    int error = source_has_scheme(tree) ? walk_list(walk, tree) : walk_directory(walk, tree);

    if (!error && walk->files->file_count == 0)
        error = safetensors_fail(walk->failure, -ENOENT, tree, NULL, "has no files");
    return error;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static int add_named(const struct walk *walk, const char *place)
{
    SCOPED_FREE char *shown = source_show(place);
    const char *slash = shown ? strrchr(shown, '/') : NULL;

    if (!shown)
        return fail_memory(walk, place);
    if (source_is_tree(place))
        return safetensors_fail(walk->failure, -EINVAL, place, NULL,
                                "is a directory; name one directory alone, or files");
    return add_file(walk, place, NULL, slash ? slash + 1 : shown);
}

static int compare(const void *left, const void *right)
{
    const struct model_tensor *a = left, *b = right;

    return strcmp(a->name, b->name);
}

static int check_names(const struct walk *walk)
{
    struct model *files = walk->files;

    qsort(files->tensors, files->tensor_count, sizeof(*files->tensors), compare);
    for (size_t i = 1; i < files->tensor_count; i++) {
        const struct model_tensor *file = &files->tensors[i];

        if (strcmp(file[-1].name, file->name) == 0)
            return safetensors_fail(walk->failure, -EINVAL, files->files[file->file].path, NULL,
                                    "has the name of %.300s, and a store keeps one '%s'; load "
                                    "their directory, or one of them",
                                    files->files[file[-1].file].path, files_path(file));
    }
    return 0;
}

int files_open(struct source *source, const char *const *paths, size_t count, struct model **files,
               struct failure *failure)
{
    struct walk walk = {
        .source = source, .files = calloc(1, sizeof(*walk.files)), .failure = failure};
    int error = walk.files ? 0 : fail_memory(&walk, paths[0]);

    *files = NULL;
    if (walk.files)
        walk.files->source = source;
    if (!error && count == 1 && source_is_tree(paths[0]))
        error = walk_tree(&walk, paths[0]);
    else
        for (size_t i = 0; !error && i < count; i++)
            error = add_named(&walk, paths[i]);
    if (!error)
        error = check_names(&walk);
    if (!error)
        error = safetensors_finish(walk.files, failure);
    if (error)
        safetensors_close(walk.files);
    else
        *files = walk.files;
    return error;
}

const char *files_path(const struct model_tensor *file)
{
    return file->name + FILE_ENTRY_PREFIX_BYTES;
}

static int open_model_of(struct source *source, const char *tree, struct model **model,
                         struct failure *failure)
{
    SCOPED_FREE size_t *files = NULL;
    size_t count;
    int error = model_find(source, tree, &files, &count, failure);

    if (error)
        return error == -ENOENT || error == -ENOTUNIQ ? 0 : error;
    return model_open_added(source, files, count, model, failure);
}

int files_open_model(struct source *source, const char *const *paths, size_t count,
                     struct model **model, struct failure *failure)
{
    SCOPED_FREE const char **with_tensors = calloc(count, sizeof(*with_tensors));
    size_t used = 0;

    *model = NULL;
    if (!with_tensors)
        return safetensors_fail(failure, -ENOMEM, paths[0], NULL, "out of memory");
    if (count == 1 && source_is_tree(paths[0]))
        return open_model_of(source, paths[0], model, failure);
    for (size_t i = 0; i < count; i++)
        if (part_name_ends_with(paths[i], ".safetensors") || part_name_ends_with(paths[i], ".gguf"))
            with_tensors[used++] = paths[i];
    return used ? model_open(source, with_tensors, used, model, failure) : 0;
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
