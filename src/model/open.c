/* SPDX-License-Identifier: Apache-2.0 */
#include "model/open.h"

#include "base/file_io.h"
#include "model/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "part_name.h"
#include "safetensors_parts.h"

#define INDEX_SUFFIX ".json"

static bool is_directory(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* Returns false for a file that cannot be opened; opening it later reports the error. */
static bool is_gguf(const char *path)
{
    char magic[sizeof(GGUF_MAGIC) - 1];
    SCOPED_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t got = fd < 0 ? -1 : pread(fd, magic, sizeof(magic), 0);

    return got == (ssize_t)sizeof(magic) && memcmp(magic, GGUF_MAGIC, sizeof(magic)) == 0;
}

static int open_gguf(const char *const *paths, size_t count, struct model **model,
                     struct failure *failure)
{
    struct model *opened = calloc(1, sizeof(*opened));
    int error = opened ? 0 : safetensors_fail(failure, -ENOMEM, "model", NULL, "out of memory");

    *model = NULL;
    for (size_t i = 0; !error && i < count; i++)
        error = gguf_add_file(opened, paths[i], count, failure);
    if (!error)
        error = safetensors_finish(opened, failure);
    if (error)
        safetensors_close(opened);
    else
        *model = opened;
    return error;
}

static int open_files(const char *const *paths, size_t count, struct model **model,
                      struct failure *failure)
{
    size_t gguf = 0;

    for (size_t i = 0; i < count; i++)
        gguf += is_gguf(paths[i]);
    if (gguf && gguf < count) {
        *model = NULL;
        return safetensors_fail(failure, -EINVAL, paths[0], NULL,
                                "and the others are files of more than one format; load files of "
                                "one");
    }
    return gguf ? open_gguf(paths, count, model, failure)
                : safetensors_open(paths, count, model, failure);
}

int model_open(const char *const *paths, size_t count, struct model **model,
               struct failure *failure)
{
    char **found = NULL;
    size_t found_count = 0;
    int error;

    if (count != 1 || !is_directory(paths[0]))
        return open_files(paths, count, model, failure);
    *model = NULL;
    error = model_find(paths[0], &found, &found_count, failure);
    if (!error)
        error = open_files((const char *const *)found, found_count, model, failure);
    for (size_t i = 0; i < found_count; i++)
        free(found[i]);
    free(found);
    return error;
}

/* ---- parts among a user's paths -------------------------------------------------------------- */

/* Sorts the parts, and drops repeated names: they are for another rank, or a mistake that the
 * tensors reveal. */
static size_t sort_parts(struct part_name *parts, size_t count)
{
    size_t kept = 0;

    qsort(parts, count, sizeof(*parts), part_name_compare);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || strcmp(parts[kept - 1].name, parts[i].name) != 0)
            parts[kept++] = parts[i];
    return kept;
}

int model_check_parts(const char *const *paths, size_t count, struct failure *failure)
{
    SCOPED_FREE struct part_name *parts = calloc(count + 1, sizeof(*parts));
    char fault[PART_TEXT_BYTES];
    size_t used = 0, length;
    int error = 0;

    if (!parts)
        return safetensors_fail(failure, -ENOMEM, "model", NULL, "out of memory");
    for (size_t i = 0; i < count; i++)
        if (!part_name_ends_with(paths[i], INDEX_SUFFIX) && !is_directory(paths[i]))
            parts[used++] = part_name_read(paths[i]);
    used = sort_parts(parts, used);
    for (size_t i = 0; !error && i < used; i += length) {
        length = part_set_length(parts + i, used - i);
        if (parts[i].count == 0 || part_set_is_whole(parts + i, length))
            continue;
        part_set_fault(parts + i, length, "are not named", fault);
        error = safetensors_fail(failure, -EINVAL, parts[i].name, NULL,
                                 "is one part of a model, and %s; name all parts, their index, or "
                                 "the directory",
                                 fault);
    }
    return error;
}
