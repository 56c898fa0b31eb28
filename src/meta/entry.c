/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of a layout, apart from putting them (put.c). */
#include "layout_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int layout_compare_keys(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);

    if (order != 0)
        return order;
    return (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* A little less than a page: with what malloc adds to it, it is one. */
#define BLOCK_BYTES 4080u

struct layout_entry_block {
    size_t entries; /* that are referred to */
    struct layout_entry first[];
};

size_t layout_entry_cost(const struct layout_put *put)
{
    const size_t mask = _Alignof(struct layout_entry) - 1;

    return (sizeof(struct layout_entry) + put->key_bytes + put->value_bytes + mask) & ~mask;
}

/* Room for an entry of this cost, in the block of the one before it if it fits. */
static struct layout_entry *maker_take(struct layout_entry_maker *maker, size_t cost_bytes)
{
    struct layout_entry *entry;
    size_t room_bytes;

    if (cost_bytes > maker->room_bytes - maker->used_bytes) {
        room_bytes = BLOCK_BYTES - sizeof *maker->block;
        if (room_bytes > maker->left_bytes)
            room_bytes = maker->left_bytes;
        if (room_bytes < cost_bytes)
            room_bytes = cost_bytes;
        maker->block = malloc(sizeof *maker->block + room_bytes);
        maker->used_bytes = 0;
        maker->room_bytes = maker->block ? room_bytes : 0;
        if (!maker->block)
            return NULL;
        maker->block->entries = 0;
    }
    entry = (struct layout_entry *)((char *)maker->block->first + maker->used_bytes);
    maker->used_bytes += cost_bytes;
    maker->left_bytes -= cost_bytes;
    maker->block->entries++;
    return entry;
}

/* An entry, its key and its value lie one behind the other. */
struct layout_entry *layout_entry_new(struct layout_entry_maker *maker,
                                      const struct layout_put *put, uint64_t serial)
{
    struct layout_entry *entry = maker_take(maker, layout_entry_cost(put));

    if (!entry)
        return NULL;
    *entry = (struct layout_entry){
        .block = maker->block,
        .refs = 1,
        .value_bytes = (uint32_t)put->value_bytes,
        .serial = serial,
        .slot = put->slot,
        .offset = put->offset,
        .key_bytes = (uint16_t)put->key_bytes,
        .key = (char *)(entry + 1),
        .value = (uint8_t *)(entry + 1) + put->key_bytes,
    };
    memcpy(entry->key, put->key, put->key_bytes);
    if (put->value_bytes > 0)
        memcpy(entry->value, put->value, put->value_bytes);
    return entry;
}

void layout_entry_release(struct layout_entry *entry)
{
    if (--entry->refs == 0 && --entry->block->entries == 0)
        free(entry->block);
}

size_t layout_count_entries(const struct layout *layout)
{
    return layout->entry_count;
}

uint64_t layout_entry_bytes(const struct layout *layout)
{
    return layout->entry_bytes;
}

size_t layout_entry_lower_bound(const struct layout *layout, const void *key, size_t key_bytes)
{
    size_t low = 0, high = layout->entry_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct layout_entry *entry = layout->by_key[middle];
        if (layout_compare_keys(entry->key, entry->key_bytes, key, key_bytes) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t layout_serial_lower_bound(const struct layout *layout, uint64_t serial)
{
    size_t low = 0, high = layout->entry_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (layout->by_serial[middle].serial < serial)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct layout_entry *layout_entry_at(const struct layout *layout, size_t index)
{
    return index < layout->entry_count ? layout->by_key[index] : NULL;
}

const struct layout_entry *layout_find_entry(const struct layout *layout, const void *key,
                                             size_t key_bytes)
{
    const struct layout_entry *entry =
        layout_entry_at(layout, layout_entry_lower_bound(layout, key, key_bytes));

    if (!entry || layout_compare_keys(entry->key, entry->key_bytes, key, key_bytes) != 0)
        return NULL;
    return entry;
}

const struct layout_entry *layout_find_entry_serial(const struct layout *layout, uint64_t serial)
{
    size_t at = layout_serial_lower_bound(layout, serial);

    if (at == layout->entry_count || layout->by_serial[at].serial != serial)
        return NULL;
    return layout->by_serial[at].entry;
}

int layout_reserve_entries(struct layout *layout, size_t count)
{
    size_t capacity = layout->entry_capacity;
    struct layout_entry_ref *by_serial;
    struct layout_entry **by_key;

    if (count <= capacity)
        return 0;
    capacity += capacity / 2;
    if (capacity < count)
        capacity = count < 8 ? 8 : count;
    by_key = realloc(layout->by_key, capacity * sizeof *by_key);
    if (!by_key)
        return -ENOMEM;
    layout->by_key = by_key;
    by_serial = realloc(layout->by_serial, capacity * sizeof *by_serial);
    if (!by_serial)
        return -ENOMEM;
    layout->by_serial = by_serial;
    layout->entry_capacity = capacity;
    return 0;
}

int layout_clone_entries(struct layout *copy, const struct layout *layout)
{
    size_t count = layout->entry_count;
    int rc;

    if (count == 0)
        return 0;
    rc = layout_reserve_entries(copy, count);
    if (rc < 0)
        return rc;
    memcpy(copy->by_key, layout->by_key, count * sizeof copy->by_key[0]);
    memcpy(copy->by_serial, layout->by_serial, count * sizeof copy->by_serial[0]);
    /* In order of creation, which is mostly that of their addresses. */
    for (size_t i = 0; i < count; i++)
        copy->by_serial[i].entry->refs++;
    copy->entry_count = count;
    copy->entry_bytes = layout->entry_bytes;
    return 0;
}

void layout_clear_entries(struct layout *layout)
{
    for (size_t i = 0; i < layout->entry_count; i++)
        layout_entry_release(layout->by_serial[i].entry);
    for (size_t i = 0; i < layout->allocation_count; i++)
        layout->by_slot[i]->bound_entries = 0;
    layout->entry_count = 0;
    layout->entry_bytes = 0;
}

size_t layout_remove_bound(struct layout *layout, uint64_t slot)
{
    struct layout_allocation *allocation = layout_slot(layout, slot, NULL);
    size_t count = layout->entry_count, kept = 0;

    for (size_t i = 0; i < count; i++) {
        if (layout->by_key[i]->slot != slot)
            layout->by_key[kept++] = layout->by_key[i];
    }
    kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct layout_entry *entry = layout->by_serial[i].entry;
        if (entry->slot != slot) {
            layout->by_serial[kept++] = layout->by_serial[i];
            continue;
        }
        layout->entry_bytes -= (uint64_t)entry->key_bytes + entry->value_bytes;
        layout_entry_release(entry);
    }
    layout->entry_count = kept;
    allocation->bound_entries = 0;
    return count - kept;
}

int layout_delete(struct layout *layout, const void *key, size_t key_bytes)
{
    size_t at = layout_entry_lower_bound(layout, key, key_bytes);
    struct layout_allocation *allocation;
    struct layout_entry *entry;
    size_t serial_at;

    if (!layout_find_entry(layout, key, key_bytes))
        return -ENOENT;
    entry = layout->by_key[at];
    serial_at = layout_serial_lower_bound(layout, entry->serial);
    layout->entry_count--;
    memmove(layout->by_key + at, layout->by_key + at + 1,
            (layout->entry_count - at) * sizeof layout->by_key[0]);
    memmove(layout->by_serial + serial_at, layout->by_serial + serial_at + 1,
            (layout->entry_count - serial_at) * sizeof layout->by_serial[0]);
    allocation = layout_slot(layout, entry->slot, NULL);
    if (allocation)
        allocation->bound_entries--;
    layout->entry_bytes -= (uint64_t)entry->key_bytes + entry->value_bytes;
    layout_entry_release(entry);
    return 0;
}
