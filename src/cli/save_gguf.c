/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a GGUF file: key-values, which may lie in the store's memory, and tensors. */
#include "cli/save.h"

#include "model/gguf.h"
#include "model/long_value.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The key-values of the file, and those of them that are fetched from the store's memory. */
struct gguf_fetch {
    struct save *save;
    struct gguf_pair *pairs;
    struct save_value *values; /* of each */
    size_t count;
};

static int gguf_refuse(const struct save *save, const char *key, const char *why)
{
    return cli_error("%s: '%s': %s; save it as safetensors", save->store, key, why);
}

/* ---- key-values ---------------------------------------------------------------------------- */

static int fetch_plan_one(struct gguf_fetch *fetch, const char *key)
{
    struct gguf_pair *pair = &fetch->pairs[fetch->count];
    const struct gmsfs_layout_entry *entry;
    char name[GMSFS_NAME_MAX + 1];
    const char *why = NULL;

    if (strlen(GGUF_KEY_PREFIX) + strlen(key) >= sizeof(name))
        return gguf_refuse(fetch->save, key, "its key is too long");
    strcpy(name, GGUF_KEY_PREFIX);
    strcat(name, key);
    entry = reader_find(&fetch->save->reader, name);
    if (!entry)
        return gguf_refuse(fetch->save, name, "the entry is not there");
    *pair = (struct gguf_pair){key, entry->value, entry->value_bytes};
    if (entry->rank != GMSFS_SLOT_NONE)
        why = save_find_value(fetch->save, entry, LONG_VALUE_GGUF, GGUF_MAX_HEADER_BYTES,
                              &fetch->values[fetch->count]);
    fetch->count++;
    return why ? gguf_refuse(fetch->save, entry->key, why) : CLI_OK;
}

static int fetch_all(struct gguf_fetch *fetch, const json_t *keys)
{
    size_t room = json_array_size(keys) + 1, i;
    int status = CLI_OK;
    json_t *key;

    fetch->pairs = calloc(room, sizeof(*fetch->pairs));
    fetch->values = calloc(room, sizeof(*fetch->values));
    if (!fetch->pairs || !fetch->values)
        return cli_out_of_memory();
    json_array_foreach (keys, i, key) {
        status = fetch_plan_one(fetch, json_string_value(key));
        if (status != CLI_OK)
            return status;
    }
    status = save_fetch_values(fetch->save, fetch->values, fetch->count);
    for (i = 0; status == CLI_OK && i < fetch->count; i++)
        if (fetch->values[i].bytes) {
            fetch->pairs[i].bytes = fetch->values[i].bytes;
            fetch->pairs[i].size_bytes = fetch->values[i].size_bytes;
        }
    return status;
}

static void fetch_free(struct gguf_fetch *fetch)
{
    save_free_values(fetch->values, fetch->count);
    free(fetch->pairs);
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
                                   &plan.alignment_bytes, &keys) != 0)
        return cli_error("%s: %s entry " GGUF_ENTRY
                         ", which 'gmsfs load' makes of a GGUF file; save it "
                         "as safetensors",
                         save->store, entry ? "nothing is understood of its" : "it has no");
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
