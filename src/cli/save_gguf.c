/* SPDX-License-Identifier: Apache-2.0 */
/* What a GGUF file will say: key-values that may lie in the store's memory, and the tensors. */
#include "base/failure.h"
#include "cli/save.h"

#include "cli/store_memory.h"
#include "model/gguf.h"
#include "mover/work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Long values, as they are fetched from the store's memory. */
struct gguf_fetch {
    struct save *save;
    struct gguf_pair *pairs;
    const uint8_t **from; /* of each; NULL: it is there */
    uint64_t *sizes;      /* of each, where it has to be fetched; else 0 */
    char **fetched;
    size_t count;
};

static int gguf_refuse(const struct save *save, const char *key, const char *why)
{
    cli_error("%s: '%s': %s; save it as safetensors", save->store, key, why);
    return CLI_FAILURE;
}

/* ---- key-values ---------------------------------------------------------------------------- */

/* Where a value lies that is too long for an entry. */
static int fetch_plan_long(struct gguf_fetch *fetch, const struct gmsfs_layout_entry *entry)
{
    const struct reader *reader = &fetch->save->reader;
    uint64_t size_bytes = 0;
    const struct gmsfs_mapping *mapping;

    if (entry->rank >= reader->mapping_count ||
        gguf_parse_long_value(entry->value, entry->value_bytes, &size_bytes) != 0)
        return gguf_refuse(fetch->save, entry->key, "no value of a GGUF file");
    mapping = &reader->mappings[entry->rank];
    if (size_bytes > GGUF_MAX_HEADER_BYTES || entry->offset > mapping->aligned_bytes ||
        size_bytes > mapping->aligned_bytes - entry->offset)
        return gguf_refuse(fetch->save, entry->key, "it reaches beyond its allocation");
    fetch->from[fetch->count] = (const uint8_t *)mapping->ptr + entry->offset;
    fetch->sizes[fetch->count] = size_bytes;
    return CLI_OK;
}

static int fetch_plan_one(struct gguf_fetch *fetch, const char *key)
{
    struct gguf_pair *pair = &fetch->pairs[fetch->count];
    const struct gmsfs_layout_entry *entry;
    char name[GMSFS_NAME_MAX + 1];
    int status = CLI_OK;

    if (strlen(GGUF_KEY_PREFIX) + strlen(key) >= sizeof(name))
        return gguf_refuse(fetch->save, key, "its key is too long");
    strcpy(name, GGUF_KEY_PREFIX);
    strcat(name, key);
    entry = reader_find(&fetch->save->reader, name);
    if (!entry)
        return gguf_refuse(fetch->save, name, "the entry is not there");
    *pair = (struct gguf_pair){key, entry->value, entry->value_bytes};
    if (entry->rank != GMSFS_SLOT_NONE)
        status = fetch_plan_long(fetch, entry);
    fetch->count++;
    return status;
}

static int fetch_piece(void *context, const struct work_piece *piece, void *own)
{
    struct gguf_fetch *fetch = context;
    char *to = fetch->fetched[piece->item];
    const uint8_t *part;
    size_t step = 1;
    int error = staging_fetch(own, &fetch->save->reader.memory, fetch->from[piece->item],
                              piece->size_bytes, WORK_PIECE_BYTES);

    while (!error && step > 0) {
        error = staging_next(own, &part, &step);
        if (!error && step > 0) {
            memcpy(to, part, step);
            to += step;
        }
    }
    return error;
}

static int fetch_run(struct gguf_fetch *fetch)
{
    struct save *save = fetch->save;
    struct work work = {.item_bytes = fetch->sizes,
                        .item_count = fetch->count,
                        .whole = true,
                        .context = fetch,
                        .piece = fetch_piece};
    int error;

    for (size_t i = 0; i < fetch->count; i++) {
        if (!fetch->sizes[i])
            continue;
        fetch->fetched[i] = malloc(fetch->sizes[i]);
        if (!fetch->fetched[i])
            return cli_out_of_memory();
        fetch->pairs[i].bytes = fetch->fetched[i];
        fetch->pairs[i].size_bytes = fetch->sizes[i];
    }
    staging_equip(save->reader.staging, &work, &save->reader.memory, 1);
    error = work_run(&work);
    if (error && !store_explain_staging(save->reader.staging))
        cli_error("%s: cannot read its memory: %s", save->store, failure_thread_reason(error));
    return error ? CLI_FAILURE : CLI_OK;
}

static int fetch_all(struct gguf_fetch *fetch, const json_t *keys)
{
    size_t room = json_array_size(keys) + 1, i;
    int status = CLI_OK;
    json_t *key;

    fetch->pairs = calloc(room, sizeof(*fetch->pairs));
    fetch->from = calloc(room, sizeof(*fetch->from));
    fetch->sizes = calloc(room, sizeof(*fetch->sizes));
    fetch->fetched = calloc(room, sizeof(*fetch->fetched));
    if (!fetch->pairs || !fetch->from || !fetch->sizes || !fetch->fetched)
        return cli_out_of_memory();
    json_array_foreach (keys, i, key) {
        status = fetch_plan_one(fetch, json_string_value(key));
        if (status != CLI_OK)
            return status;
    }
    return fetch_run(fetch);
}

static void fetch_free(struct gguf_fetch *fetch)
{
    for (size_t i = 0; fetch->fetched && i < fetch->count; i++)
        free(fetch->fetched[i]);
    free(fetch->pairs);
    free(fetch->from);
    free(fetch->sizes);
    free(fetch->fetched);
}

/* ---- the file ------------------------------------------------------------------------------ */

/* From one tensor to the next are as many zeros as the alignment asks for. */
static int gguf_make_file(struct save *save, const struct gguf_plan *plan)
{
    struct save_file *file = save->files;
    size_t culprit = 0;
    const char *why = NULL;
    int error =
        gguf_make_header(plan, &file->head, &file->head_bytes, save->offsets, &culprit, &why);

    if (error == -EINVAL)
        return gguf_refuse(save, save->models[culprit]->name, why);
    if (error == -EFBIG)
        return gguf_refuse(save, GGUF_ENTRY, "the file's header would have more than 100 MB");
    if (error)
        return cli_out_of_memory();
    file->count = save->tensors.count;
    file->size_bytes = save->offsets[file->count];
    save->size_bytes = file->size_bytes;
    save->tensors.others -= plan->pair_count + 1;
    return CLI_OK;
}

static int gguf_plan_file(struct save *save)
{
    save->files = calloc(2, sizeof(*save->files));
    if (!save->files)
        return cli_out_of_memory();
    save->file_count = 1;
    save->files[0].path = strdup(save->path);
    return save->files[0].path ? CLI_OK : cli_out_of_memory();
}

int save_plan_gguf(struct save *save)
{
    const struct gmsfs_layout_entry *entry = reader_find(&save->reader, GGUF_ENTRY);
    struct gguf_plan plan = {.tensors = save->models, .tensor_count = save->tensors.count};
    struct gguf_fetch fetch = {.save = save};
    json_t *keys = NULL;
    int status;

    if (!entry || gguf_parse_entry(entry->value, entry->value_bytes, &plan.version,
                                   &plan.alignment_bytes, &keys) != 0) {
        cli_error("%s: %s entry " GGUF_ENTRY ", which 'gmsfs load' makes of a GGUF file; save it "
                  "as safetensors",
                  save->store, entry ? "nothing is understood of its" : "it has no");
        return CLI_FAILURE;
    }
    status = gguf_plan_file(save);
    if (status == CLI_OK)
        status = fetch_all(&fetch, keys);
    plan.pairs = fetch.pairs;
    plan.pair_count = fetch.count;
    if (status == CLI_OK)
        status = gguf_make_file(save, &plan);
    fetch_free(&fetch);
    json_decref(keys);
    return status;
}
