/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of a tree that are its model. */
#include "model/open.h"

#include "base/failure.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "find_other.h"
#include "part_name.h"
#include "safetensors_parts.h"

#define INDEX_SUFFIX       ".safetensors.index.json"
#define SAFETENSORS_SUFFIX ".safetensors"
#define GGUF_SUFFIX        ".gguf"
#define USUAL_NAME         "model"
#define SHOWN_SETS         4u

/* Files of a directory that may be its model, sorted, so that the parts of a set are adjacent. */
struct candidates {
    struct part_name *list;
    size_t count;
    size_t sets;
};

/* One set of candidates. */
struct part_set {
    const struct part_name *parts;
    size_t length;
};

/* ---- sets ---------------------------------------------------------------------------------- */

/* Moves to the next set; to the first, if `set` is empty. Returns false at the end. */
static bool next_set(const struct candidates *all, struct part_set *set)
{
    set->parts = set->parts ? set->parts + set->length : all->list;
    set->length = part_set_length(set->parts, (size_t)(all->list + all->count - set->parts));
    return set->length > 0;
}

static bool pick(const struct source_list *names, const char *suffix, struct candidates *all)
{
    struct part_set set = {0};

    all->count = 0;
    all->sets = 0;
    for (size_t i = 0; i < names->count; i++)
        if (part_name_ends_with(names->entries[i].name, suffix))
            all->list[all->count++] = part_name_read(names->entries[i].name);
    qsort(all->list, all->count, sizeof(*all->list), part_name_compare);
    while (next_set(all, &set))
        all->sets++;
    return all->count > 0;
}

/* Returns true for model.safetensors, or the parts model-00001-of-... */
static bool is_usual(const struct part_set *set, const char *suffix)
{
    const struct part_name *part = set->parts;
    size_t usual = strlen(USUAL_NAME);

    if (strncmp(part->name, USUAL_NAME, usual) != 0)
        return false;
    if (part->count == 0)
        return strcmp(part->name + usual, suffix) == 0;
    return part->stem_bytes == usual + 1 && strcmp(part->name + part->tail_at, suffix) == 0;
}

/* Finds the one complete set with the usual name among several. */
static bool find_usual(const struct candidates *all, const char *suffix, struct part_set *found)
{
    struct part_set set = {0};
    size_t usual = 0;

    while (next_set(all, &set))
        if (is_usual(&set, suffix)) {
            *found = set;
            usual++;
        }
    return usual == 1 && part_set_is_whole(found->parts, found->length);
}

/* ---- refusals ------------------------------------------------------------------------------ */

/* Refuses an incomplete set. */
static int refuse_set(struct source *source, const char *directory, const struct part_set *set,
                      struct failure *failure)
{
    char fault[PART_TEXT_BYTES], unfinished[UNFINISHED_BYTES];

    part_set_fault(set->parts, set->length, "are missing", fault);
    source_tell_unfinished(source, directory, unfinished, sizeof(unfinished));
    return safetensors_fail(failure, -EINVAL, directory, NULL,
                            "its model is not whole: %s; the download may not have finished%s: "
                            "fetch the model again",
                            fault, unfinished);
}

/* Appends "'model-*-of-00003.safetensors' (2 of its 3 files)". */
static void put_set(const struct part_set *set, char text[PART_TEXT_BYTES])
{
    char pattern[PART_TEXT_BYTES];
    size_t used = strlen(text);
    bool is_whole = part_set_is_whole(set->parts, set->length);
    const char *before = used > 0 ? ", " : "";

    part_set_pattern(set->parts, pattern);
    if (is_whole && set->length == 1)
        snprintf(text + used, PART_TEXT_BYTES - used, "%s'%.250s'", before, pattern);
    else if (is_whole)
        snprintf(text + used, PART_TEXT_BYTES - used, "%s'%.250s' (all %zu parts)", before, pattern,
                 set->length);
    else
        snprintf(text + used, PART_TEXT_BYTES - used, "%s'%.250s' (%zu of %u parts, not whole)",
                 before, pattern, set->length, set->parts->count);
}

/* Refuses a directory with several models, and says how to name one of them. */
static int refuse_sets(struct source *source, const char *directory, const struct candidates *all,
                       struct failure *failure)
{
    char found[PART_TEXT_BYTES] = "", pattern[PART_TEXT_BYTES], unfinished[UNFINISHED_BYTES];
    struct part_set set = {0}, whole = {0};
    size_t shown = 0;

    while (next_set(all, &set)) {
        if (shown++ < SHOWN_SETS)
            put_set(&set, found);
        if (!whole.parts && part_set_is_whole(set.parts, set.length))
            whole = set;
    }
    if (all->sets > SHOWN_SETS)
        snprintf(found + strlen(found), sizeof(found) - strlen(found), " and %zu more",
                 all->sets - SHOWN_SETS);
    source_tell_unfinished(source, directory, unfinished, sizeof(unfinished));
    if (!whole.parts)
        return safetensors_fail(failure, -EINVAL, directory, NULL,
                                "no model in it is whole: %s; the download may not have "
                                "finished%s: fetch the model again",
                                found, unfinished);
    part_set_pattern(whole.parts, pattern);
    return safetensors_fail(failure, -ENOTUNIQ, directory, NULL,
                            "has more than one model: %s; name all files of one instead of the "
                            "directory, as in '%.300s/%.250s'",
                            found, directory, pattern);
}

/* ---- the model ------------------------------------------------------------------------------- */

static int add_set(struct source *source, const char *directory, const struct part_set *set,
                   size_t **files, size_t *count, struct failure *failure)
{
    int error = 0;

    *files = calloc(set->length, sizeof(**files));
    if (!*files)
        return safetensors_fail(failure, -ENOMEM, directory, NULL, "out of memory");
    for (*count = 0; !error && *count < set->length; ++*count)
        error =
            source_add(source, directory, set->parts[*count].name, 0, &(*files)[*count], failure);
    return error;
}

static int choose(struct source *source, const char *directory, const struct source_list *names,
                  struct candidates *all, struct part_set *model, struct failure *failure)
{
    static const char *const suffixes[] = {INDEX_SUFFIX, SAFETENSORS_SUFFIX, GGUF_SUFFIX};

    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        if (!pick(names, suffixes[i], all))
            continue;
        if (all->sets > 1)
            return find_usual(all, suffixes[i], model)
                       ? 0
                       : refuse_sets(source, directory, all, failure);
        next_set(all, model);
        return part_set_is_whole(model->parts, model->length)
                   ? 0
                   : refuse_set(source, directory, model, failure);
    }
    return find_say_none(source, directory, names, failure);
}

int model_find(struct source *source, const char *directory, size_t **files, size_t *count,
               struct failure *failure)
{
    struct source_list names;
    struct candidates all = {0};
    struct part_set model = {0};
    int error = source_list(source, directory, NULL, false, &names, failure);

    *files = NULL;
    *count = 0;
    if (!error)
        all.list = calloc(names.count + 1, sizeof(*all.list));
    if (!error && !all.list)
        error = safetensors_fail(failure, -ENOMEM, directory, NULL, "out of memory");
    if (!error)
        error = choose(source, directory, &names, &all, &model, failure);
    if (!error)
        error = add_set(source, directory, &model, files, count, failure);
    free(all.list);
    source_list_free(&names);
    return error;
}
