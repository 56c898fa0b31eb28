/* SPDX-License-Identifier: Apache-2.0 */
/* The value of a file that lies in the store's memory, because it is too long for an entry. */
#include "base/failure.h"
#include "cli/save.h"

#include "cli/store_memory.h"
#include "mover/work.h"
#include "tensor/long_value.h"

#include <stdlib.h>
#include <string.h>

/* The value as work for threads. */
struct fetch {
    struct save *save;
    struct save_value *value;
};

bool save_find_value(const struct save *save, const struct gmsfs_layout_entry *entry,
                     struct save_value *value)
{
    const struct reader *reader = &save->reader;

    if (entry->rank >= reader->mapping_count ||
        long_value_parse(LONG_VALUE_SAFETENSORS, entry->value, entry->value_bytes,
                         &value->size_bytes) != 0)
        return false;
    const struct gmsfs_mapping *mapping = &reader->mappings[entry->rank];
    if (value->size_bytes > SAFETENSORS_MAX_HEADER_BYTES ||
        entry->offset > mapping->aligned_bytes ||
        value->size_bytes > mapping->aligned_bytes - entry->offset)
        return false;
    value->from = (const uint8_t *)mapping->ptr + entry->offset;
    return true;
}

static int fetch_piece(void *context, const struct work_piece *piece, void *own)
{
    struct fetch *fetch = context;
    struct save_value *value = fetch->value;
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

int save_fetch_value(struct save *save, struct save_value *value)
{
    struct fetch fetch = {.save = save, .value = value};
    struct work work = {.item_bytes = &value->size_bytes,
                        .item_count = 1,
                        .whole = true,
                        .context = &fetch,
                        .piece = fetch_piece};

    value->bytes = cli_need(malloc(value->size_bytes));
    staging_equip(save->reader.staging, &work, &save->reader.memory, 1);
    int error = work_run(&work);
    if (error && !store_explain_staging(save->reader.staging))
        cli_error("%s: cannot read its memory: %s", save->store, failure_thread_reason(error));
    return error ? CLI_FAILURE : CLI_OK;
}
