/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/reader.h"

#include "base/array.h"
#include "base/file_entry.h"
#include "cli/cli.h"
#include "cli/store_connect.h"
#include "cli/store_explain.h"
#include "cli/store_memory.h"
#include "cli/store_open.h"
#include "model/safetensors_write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The lock is held: the layout cannot change any more. `moved`: its bytes have come to the device
 * since, which is another kind of memory. */
static int reader_attach(struct reader *reader, bool *moved)
{
    int status, error = gmsfs_read_layout(reader->handle, &reader->layout);

    if (error)
        return store_explain(reader->store, "read the layout", error);
    status = store_open_memory(reader->staging, reader->handle, reader->store, &reader->memory);
    if (status != CLI_OK)
        return status;
    error = gmsfs_attach_all(reader->handle, GMSFS_ACCESS_READ, &reader->mappings,
                             &reader->mapping_count);
    *moved = error == -EXDEV;
    if (error && !*moved)
        return store_explain_call(reader->handle, &reader->memory, "map the memory", error);
    return CLI_OK;
}

/* As it was before reader_connect. */
static void reader_step_back(struct reader *reader)
{
    gmsfs_free_layout(reader->layout);
    reader->layout = NULL;
    gmsfs_disconnect(reader->handle);
    staging_free(reader->staging);
    reader->staging = cli_need(staging_new());
}

/* Its bytes are read wherever they are; a reader is no reason to move them. */
static int reader_connect(struct reader *reader, uint64_t timeout_ms, bool quiet)
{
    bool moved = true;
    int status = CLI_OK;

    gmsfs_set_connect_flags(reader->handle, GMSFS_CONNECT_ANY);
    while (status == CLI_OK && moved) {
        moved = false;
        status = store_connect(reader->handle, reader->store, GMSFS_MODE_RO, timeout_ms, quiet);
        if (status == CLI_OK)
            status = reader_attach(reader, &moved);
        if (moved)
            reader_step_back(reader);
    }
    return status;
}

int reader_open(struct reader *reader, const char *store, uint64_t timeout_ms, bool quiet)
{
    struct gmsfs_info info;

    reader->store = store;
    reader->staging = cli_need(staging_new());
    if (store_open(store, &reader->handle) != 0)
        return CLI_FAILURE;
    int error = gmsfs_get_info(reader->handle, &info);
    if (!error && info.state == GMSFS_STATE_EMPTY)
        return cli_error("%s is EMPTY: nothing is committed in it; 'gmsfs load' does that", store);
    if (!error && info.state == GMSFS_STATE_LAYOUT_COMMITTED)
        return cli_error(
            "%s is LAYOUT_COMMITTED: its layout is sealed and waits for a writer of its bytes "
            "('gmsfs run --data'); nothing is committed in it that could be read",
            store);
    return reader_connect(reader, timeout_ms, quiet);
}

void reader_close(struct reader *reader)
{
    staging_free(reader->staging);
    free(reader->mappings);
    gmsfs_free_layout(reader->layout);
    gmsfs_close(reader->handle);
    memset(reader, 0, sizeof(*reader));
}

static int reader_compare_key(const struct gmsfs_layout_entry *entry, const char *key,
                              size_t key_bytes)
{
    size_t common = key_bytes < entry->key_bytes ? key_bytes : entry->key_bytes;
    int order = memcmp(entry->key, key, common);

    return order ? order : (entry->key_bytes > key_bytes) - (entry->key_bytes < key_bytes);
}

const struct gmsfs_layout_entry *reader_find(const struct reader *reader, const char *key)
{
    const struct gmsfs_layout *layout = reader->layout;
    const struct gmsfs_layout_entry *entries = layout->entries;
    size_t at = 0, key_bytes = strlen(key);

    ARRAY_SEARCH(at, layout->entry_count, reader_compare_key(&entries[at], key, key_bytes) < 0);
    return at < layout->entry_count && reader_compare_key(&entries[at], key, key_bytes) == 0
               ? &entries[at]
               : NULL;
}

/* ---- tensors ------------------------------------------------------------------------------- */

/* -ENOENT: the entry is no tensor in memory; -EINVAL with `why`; -ENOMEM. */
static int reader_take(const struct reader *reader, const struct gmsfs_layout_entry *entry,
                       struct reader_tensor *taken, const char **why)
{
    if (entry->rank >= reader->mapping_count)
        return -ENOENT;
    int error = safetensors_from_value(entry->value, entry->value_bytes, &taken->tensor, why);
    if (error)
        return error;
    const struct gmsfs_mapping *mapping = &reader->mappings[entry->rank];
    if (entry->offset > mapping->aligned_bytes ||
        taken->tensor.size_bytes > mapping->aligned_bytes - entry->offset) {
        *why = "it reaches beyond its allocation";
        free(taken->tensor.shape);
        return -EINVAL;
    }
    taken->tensor.name = (char *)entry->key;
    taken->bytes = (const uint8_t *)mapping->ptr + entry->offset;
    taken->rank = entry->rank;
    taken->offset_bytes = entry->offset;
    return 0;
}

static int reader_compare(const void *left, const void *right)
{
    const struct reader_tensor *a = left, *b = right;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->offset_bytes != b->offset_bytes)
        return a->offset_bytes < b->offset_bytes ? -1 : 1;
    return strcmp(a->tensor.name, b->tensor.name);
}

static int reader_add(const struct reader *reader, const struct gmsfs_layout_entry *entry,
                      const char *way_out, struct reader_tensors *tensors)
{
    struct reader_tensor *next = &tensors->list[tensors->count];
    const char *why = NULL;
    int error = reader_take(reader, entry, next, &why);

    if (error == -ENOMEM)
        cli_out_of_memory();
    if (error == -ENOENT) {
        if (strncmp(entry->key, FILE_ENTRY_PREFIX, FILE_ENTRY_PREFIX_BYTES) == 0)
            tensors->files++;
        else
            tensors->others += strcmp(entry->key, SAFETENSORS_METADATA_KEY) != 0;
        return CLI_OK;
    }
    if (!error) {
        tensors->count++;
        if (strlen(entry->key) != entry->key_bytes)
            why = "its name holds a NUL";
        else if (__builtin_add_overflow(tensors->size_bytes, next->tensor.size_bytes,
                                        &tensors->size_bytes))
            why = "all tensors together have more bytes than can be counted";
    }
    if (!why)
        return CLI_OK;
    return cli_error("%s: tensor '%s': %s; %s", reader->store, entry->key, why, way_out);
}

int reader_get_tensors(const struct reader *reader, const char *way_out,
                       struct reader_tensors *tensors)
{
    size_t count = reader->layout->entry_count;
    int status = CLI_OK;

    memset(tensors, 0, sizeof(*tensors));
    tensors->list = cli_need(calloc(count ? count : 1, sizeof(*tensors->list)));
    for (size_t i = 0; status == CLI_OK && i < count; i++)
        status = reader_add(reader, &reader->layout->entries[i], way_out, tensors);
    if (status == CLI_OK && tensors->count)
        qsort(tensors->list, tensors->count, sizeof(*tensors->list), reader_compare);
    return status;
}

void reader_tensors_free(struct reader_tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++)
        free(tensors->list[i].tensor.shape);
    free(tensors->list);
    memset(tensors, 0, sizeof(*tensors));
}
