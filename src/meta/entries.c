/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of a layout: finding, walking, removing; put.c puts them. */
#include "layout_internal.h"

#include "base/scope.h"

#include <errno.h>
#include <stdlib.h>

size_t layout_count_entries(const struct layout *layout)
{
    return layout->entry_count;
}

uint64_t layout_entry_bytes(const struct layout *layout)
{
    return layout->entry_bytes;
}

/* ---- finding ------------------------------------------------------------------------------- */

const struct layout_entry *layout_find_entry(const struct layout *layout, const void *key,
                                             size_t key_bytes)
{
    const struct index_target target = {.key = key, .key_bytes = key_bytes};
    struct index_place place;

    return layout_index_find(&layout->by_key, &target, &place);
}

const struct layout_entry *layout_find_entry_serial(const struct layout *layout, uint64_t serial)
{
    const struct index_target target = {.serial = serial};
    struct index_place place;

    return layout_index_find(&layout->by_serial, &target, &place);
}

/* ---- walking ------------------------------------------------------------------------------- */

static void enter_chunk(struct layout_cursor *cursor, size_t chunk, size_t offset)
{
    const struct layout_index *index = cursor->index;

    cursor->chunk = chunk;
    cursor->next = cursor->end = NULL;
    if (chunk >= index->chunk_count)
        return;
    cursor->next = layout_index_entries(index, chunk) + offset;
    cursor->end = layout_index_entries(index, chunk) + index->chunks[chunk].count;
}

static void seek(struct layout_cursor *cursor, const struct layout_index *index,
                 const struct index_target *target)
{
    struct index_place place;

    layout_index_find(index, target, &place);
    cursor->index = index;
    enter_chunk(cursor, place.chunk, place.offset);
}

void layout_cursor_first(struct layout_cursor *cursor, const struct layout *layout)
{
    cursor->index = &layout->by_key;
    enter_chunk(cursor, 0, 0);
}

void layout_cursor_seek(struct layout_cursor *cursor, const struct layout *layout, const void *key,
                        size_t key_bytes)
{
    seek(cursor, &layout->by_key, &(struct index_target){.key = key, .key_bytes = key_bytes});
}

void layout_cursor_seek_serial(struct layout_cursor *cursor, const struct layout *layout,
                               uint64_t serial)
{
    seek(cursor, &layout->by_serial, &(struct index_target){.serial = serial});
}

const struct layout_entry *layout_cursor_cross(struct layout_cursor *cursor)
{
    if (cursor->chunk < cursor->index->chunk_count)
        enter_chunk(cursor, cursor->chunk + 1, 0);
    return cursor->next != cursor->end ? *cursor->next++ : NULL;
}

/* ---- changing ------------------------------------------------------------------------------ */

/* Updates the layout's counts; called before old entries may be freed. */
static void account(struct layout *layout, const struct layout_entry *comes,
                    const struct layout_entry *goes)
{
    if (comes) {
        layout->entry_count++;
        layout->entry_bytes += (uint64_t)comes->key_bytes + comes->value_bytes;
    }
    if (goes) {
        layout->entry_count--;
        layout->entry_bytes -= (uint64_t)goes->key_bytes + goes->value_bytes;
        if (goes->slot != LAYOUT_UNBOUND)
            layout_slot(layout, goes->slot, NULL)->bound_entries--;
    }
}

int layout_edit_entries(struct layout *layout, const struct index_edit *by_key,
                        const struct index_edit *by_serial, size_t count, bool only_inserts)
{
    struct index_change keys = {.edits = by_key, .count = count, .only_inserts = only_inserts};
    struct index_change serials = {
        .edits = by_serial, .count = count, .only_inserts = only_inserts};
    int error = layout_index_prepare(&layout->by_key, &keys);

    if (error < 0)
        return error;
    error = layout_index_prepare(&layout->by_serial, &serials);
    if (error < 0) {
        layout_index_cancel(&keys);
        return error;
    }
    for (size_t i = 0; i < count; i++)
        account(layout, by_key[i].entry, by_key[i].old);
    layout_index_commit(&layout->by_key, &keys);
    layout_index_commit(&layout->by_serial, &serials); /* may free old entries */
    return 0;
}

static uint64_t edit_serial(const struct index_edit *edit)
{
    return edit->entry ? edit->entry->serial : edit->old->serial;
}

static int compare_serials(const void *left, const void *right)
{
    uint64_t a = edit_serial(left), b = edit_serial(right);

    return (a > b) - (a < b);
}

size_t layout_place_by_serial(const struct layout *layout, struct index_edit *edits, size_t count)
{
    const struct layout_index *index = &layout->by_serial;
    struct index_place place;
    size_t sorted = 1;

    while (sorted < count && edit_serial(&edits[sorted - 1]) < edit_serial(&edits[sorted]))
        sorted++;
    if (sorted < count)
        qsort(edits, count, sizeof *edits, compare_serials);
    for (size_t i = 0; i < count; i++) {
        const struct index_target target = {.serial = edit_serial(&edits[i])};
        const struct layout_entry *there = i == 0 ? layout_index_find(index, &target, &place)
                                                  : layout_index_find_on(index, &target, &place);

        if (there != edits[i].old ||
            (sorted < count && i > 0 && edit_serial(&edits[i - 1]) == target.serial))
            return i;
        edits[i].at = place;
    }
    return count;
}

int layout_delete(struct layout *layout, const void *key, size_t key_bytes)
{
    const struct index_target target = {.key = key, .key_bytes = key_bytes};
    struct index_edit by_key = {0}, by_serial;

    layout_assert_unshared(layout);
    by_key.old = layout_index_find(&layout->by_key, &target, &by_key.at);
    if (!by_key.old)
        return -ENOENT;
    by_serial = by_key;
    layout_place_by_serial(layout, &by_serial, 1);
    return layout_edit_entries(layout, &by_key, &by_serial, 1, false);
}

/* Collects the `count` entries bound to the slot, sorted by key. */
static void find_bound(const struct layout *layout, uint64_t slot, struct index_edit *edits,
                       size_t count)
{
    const struct layout_index *index = &layout->by_key;
    size_t found = 0;

    for (size_t chunk = 0; found < count; chunk++) {
        struct layout_entry *const *entries = layout_index_entries(index, chunk);
        for (size_t i = 0; i < index->chunks[chunk].count && found < count; i++) {
            if (entries[i]->slot == slot)
                edits[found++] =
                    (struct index_edit){.old = entries[i], .at = {(uint32_t)chunk, (uint32_t)i}};
        }
    }
}

int layout_remove_bound(struct layout *layout, const struct layout_allocation *allocation)
{
    size_t count = (size_t)allocation->bound_entries;
    SCOPED_FREE struct index_edit *edits = NULL;

    if (count == 0)
        return 0;
    edits = malloc(2 * count * sizeof *edits);
    if (!edits)
        return -ENOMEM;
    find_bound(layout, allocation->slot, edits, count);
    for (size_t i = 0; i < count; i++)
        edits[count + i] = edits[i];
    layout_place_by_serial(layout, edits + count, count);
    return layout_edit_entries(layout, edits, edits + count, count, false);
}
