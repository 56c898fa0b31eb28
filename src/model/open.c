/* SPDX-License-Identifier: Apache-2.0 */
#include "model/open.h"

#include "base/scope.h"
#include "model/gguf.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "part_name.h"
#include "safetensors_parts.h"

#define INDEX_SUFFIX ".json"

/* Returns false for a file that cannot be read; reading its header reports the error. */
static bool is_gguf(struct source *source, size_t file)
{
    char magic[sizeof(GGUF_MAGIC) - 1];
    struct failure unused;

    return source_read(source, file, 0, magic, sizeof(magic), &unused) == 0 &&
           memcmp(magic, GGUF_MAGIC, sizeof(magic)) == 0;
}

static int open_gguf(struct source *source, const size_t *files, size_t count, struct model **model,
                     struct failure *failure)
{
    struct model *opened = calloc(1, sizeof(*opened));
    int error = opened ? 0 : safetensors_fail(failure, -ENOMEM, "model", NULL, "out of memory");

    if (opened)
        opened->source = source;
    for (size_t i = 0; !error && i < count; i++)
        error = gguf_add_file(opened, files[i], count, failure);
    if (!error)
        error = safetensors_finish(opened, failure);
    if (error)
        safetensors_close(opened);
    else
        *model = opened;
    return error;
}

int model_open_added(struct source *source, const size_t *files, size_t count, struct model **model,
                     struct failure *failure)
{
    size_t gguf = 0;

    for (size_t i = 0; i < count; i++)
        gguf += is_gguf(source, files[i]);
    if (gguf && gguf < count)
        return safetensors_fail(failure, -EINVAL, source_get(source, files[0])->shown, NULL,
                                "and the others are files of more than one format; load files of "
                                "one");
    return gguf ? open_gguf(source, files, count, model, failure)
                : safetensors_open_added(source, files, count, model, failure);
}

int model_open(struct source *source, const char *const *places, size_t count, struct model **model,
               struct failure *failure)
{
    SCOPED_FREE size_t *files = NULL;
    int error;

    *model = NULL;
    if (count == 1 && source_is_tree(places[0]))
        error = model_find(source, places[0], &files, &count, failure);
    else
        error = safetensors_add_places(source, places, count, &files, failure);
    return error ? error : model_open_added(source, files, count, model, failure);
}

/* ---- parts among a user's places --------------------------------------------------------------
 */

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

int model_check_parts(const char *const *places, size_t count, struct failure *failure)
{
    SCOPED_FREE struct part_name *parts = calloc(count + 1, sizeof(*parts));
    char fault[PART_TEXT_BYTES];
    size_t used = 0, length;
    int error = 0;

    if (!parts)
        return safetensors_fail(failure, -ENOMEM, "model", NULL, "out of memory");
    for (size_t i = 0; i < count; i++)
        if (!part_name_ends_with(places[i], INDEX_SUFFIX) && !source_is_tree(places[i]))
            parts[used++] = part_name_read(places[i]);
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
