/* SPDX-License-Identifier: Apache-2.0 */
/* Values of a file that lie in the store's memory, for no entry has room for them. */
#include "base/failure.h"
#include "base/scope.h"
#include "cli/save.h"

#include "cli/store_memory.h"
#include "model/long_value.h"
#include "mover/work.h"

#include <stdlib.h>
#include <string.h>

/* The values as work for threads: a value with a size is fetched. */
struct fetch {
    struct save *save;
    struct save_value *values;
};

const char *save_find_value(const struct save *save, const struct gmsfs_layout_entry *entry,
                            const char *format, uint64_t most_bytes, struct save_value *value)
{
    const struct reader *reader = &save->reader;
    const struct gmsfs_mapping *mapping;

    if (entry->rank >= reader->mapping_count ||
        long_value_parse(format, entry->value, entry->value_bytes, &value->size_bytes) != 0)
        return "no value of a file of that format";
    mapping = &reader->mappings[entry->rank];
    if (value->size_bytes > most_bytes || entry->offset > mapping->aligned_bytes ||
        value->size_bytes > mapping->aligned_bytes - entry->offset)
        return "it reaches beyond its allocation";
    value->from = (const uint8_t *)mapping->ptr + entry->offset;
    return NULL;
}

static int fetch_piece(void *context, const struct work_piece *piece, void *own)
{
    struct fetch *fetch = context;
    struct save_value *value = &fetch->values[piece->item];
    char *to = value->bytes;
    const uint8_t *part;
    size_t step = 1;
    int error = staging_fetch(own, &fetch->save->reader.memory, value->from, piece->size_bytes,
                              WORK_PIECE_BYTES);

    while (!error && step > 0) {
        error = staging_next(own, &part, &step);
        if (!error && step > 0) {
            memcpy(to, part, step);
            to += step;
        }
    }
    return error;
}

static int fetch_run(struct fetch *fetch, uint64_t *sizes, size_t count)
{
    struct save *save = fetch->save;
    struct work work = {.item_bytes = sizes,
                        .item_count = count,
                        .whole = true,
                        .context = fetch,
                        .piece = fetch_piece};
    int error;

    for (size_t i = 0; i < count; i++) {
        struct save_value *value = &fetch->values[i];
        sizes[i] = value->size_bytes;
        if (!sizes[i])
            continue;
        value->bytes = malloc(sizes[i]);
        if (!value->bytes)
            return cli_out_of_memory();
    }
    staging_equip(save->reader.staging, &work, &save->reader.memory, 1);
    error = work_run(&work);
    if (error && !store_explain_staging(save->reader.staging))
        cli_error("%s: cannot read its memory: %s", save->store, failure_thread_reason(error));
    return error ? CLI_FAILURE : CLI_OK;
}

int save_fetch_values(struct save *save, struct save_value *values, size_t count)
{
    struct fetch fetch = {.save = save, .values = values};
    SCOPED_FREE uint64_t *sizes = calloc(count + 1, sizeof(*sizes));

    return sizes ? fetch_run(&fetch, sizes, count) : cli_out_of_memory();
}

void save_free_values(struct save_value *values, size_t count)
{
    for (size_t i = 0; values && i < count; i++)
        free(values[i].bytes);
    free(values);
}
