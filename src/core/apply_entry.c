/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of the metadata entries of a writer's working copy. */
#include "core/core_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int apply_entry_put(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core *core = apply->core;
    struct layout_put put = {.key = record->name,
                             .key_bytes = record->name_bytes,
                             .slot = record->slot,
                             .offset = record->offset,
                             .value = record->value,
                             .value_bytes = record->value_bytes,
                             .serial = core->next_id};
    struct change change;
    int error = apply_change_begin(apply, &change);

    if (error < 0)
        return error;
    error = layout_put(change.layout, &put);
    error = apply_change_end(apply, &change, error);
    if (error < 0)
        return error;
    const struct layout_entry *entry = layout_find_entry(change.layout, put.key, put.key_bytes);
    if (entry->serial == core->next_id)
        core->next_id++;
    apply->out->serial = entry->serial;
    apply->out->count = 1;
    return 0;
}

int apply_entry_put_many(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core *core = apply->core;
    const struct layout_put *puts = record->puts;
    struct layout_put *decoded = NULL;
    size_t count = record->put_count, culprit = 0, known = 0;
    struct change change;
    int error = apply_change_begin(apply, &change);

    if (error < 0)
        return error;
    if (!puts) {
        count = 0;
        error = record_rows_decode(record->value, record->value_bytes, &decoded, &count);
        puts = decoded;
    }
    culprit = count;
    if (error == 0)
        error = layout_put_rows(change.layout, puts, count, core->next_id, &known, &culprit);
    error = apply_change_end(apply, &change, error);
    if (error == 0)
        core->next_id += count;
    apply->out->count = error == 0 ? known : culprit;
    free(decoded);
    return error;
}

int apply_entry_delete(struct apply *apply)
{
    const struct record *record = apply->record;
    struct change change;
    int error = apply_change_begin(apply, &change);

    if (error < 0)
        return error;
    if (record->name_bytes == 0)
        error = -ENOENT;
    else
        error = layout_delete(change.layout, record->name, record->name_bytes);
    return apply_change_end(apply, &change, error);
}

/* Gives the entry a new key; it keeps its serial. A failure may leave `layout` half changed. */
static int move_entry(struct layout *layout, const struct layout_entry *entry, const char *key,
                      size_t key_bytes)
{
    struct layout_put put = {.key = key,
                             .key_bytes = key_bytes,
                             .slot = entry->slot,
                             .offset = entry->offset,
                             .value_bytes = entry->value_bytes,
                             .serial = entry->serial};
    /* a copy, because the entry is deleted first */
    uint8_t *value = malloc(entry->value_bytes + 1u);

    if (!value)
        return -ENOMEM;
    memcpy(value, entry->value, entry->value_bytes);
    put.value = value;
    int error = layout_delete(layout, entry->key, entry->key_bytes);
    if (error == 0 && key_bytes > 0 && layout_find_entry(layout, key, key_bytes))
        error = layout_delete(layout, key, key_bytes);
    if (error == 0)
        error = layout_put(layout, &put);
    free(value);
    return error;
}

int apply_entry_rename(struct apply *apply)
{
    const struct record *record = apply->record;
    struct change change;
    int error = apply_change_begin(apply, &change);

    if (error < 0)
        return error;
    const struct layout_entry *entry = layout_find_entry_serial(change.layout, record->serial);
    error = entry ? move_entry(change.layout, entry, record->name, record->name_bytes) : -ENOENT;
    return apply_change_end(apply, &change, error);
}
