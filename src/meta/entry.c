/* SPDX-License-Identifier: Apache-2.0 */
/* Entries, and the blocks of memory that they share. */
#include "layout_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* A page, less the overhead of malloc. */
#define BLOCK_BYTES 4080u
#define LARGE_BYTES (16u << 10) /* of a value: worth a call of drop_pages */
#define PREFETCHED  8u

static void (*drop_pages)(void *at, size_t bytes);

/* References are counted for all its entries together; it is freed as a whole. */
struct layout_entry_block {
    atomic_size_t refs;
    size_t bytes; /* of the whole block */
    struct layout_entry first[];
};

int layout_compare_keys(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);

    if (order != 0)
        return order;
    return (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

/* Returns room for an entry of this size, in the current block if it fits. */
static struct layout_entry *maker_take(struct layout_entry_maker *maker, size_t cost_bytes)
{
    size_t room_bytes, refs;

    if (cost_bytes > maker->room_bytes - maker->used_bytes) {
        room_bytes = BLOCK_BYTES - sizeof *maker->block;
        if (room_bytes > maker->left_bytes)
            room_bytes = maker->left_bytes;
        if (room_bytes < cost_bytes)
            room_bytes = cost_bytes;
        size_t block_bytes = sizeof *maker->block + room_bytes;
        maker->block = malloc(block_bytes);
        maker->used_bytes = 0;
        maker->room_bytes = maker->block ? room_bytes : 0;
        if (!maker->block)
            return NULL;
        maker->block->bytes = block_bytes;
        atomic_init(&maker->block->refs, 0);
    }
    struct layout_entry *entry =
        (struct layout_entry *)((char *)maker->block->first + maker->used_bytes);
    maker->used_bytes += cost_bytes;
    maker->left_bytes -= cost_bytes;
    /* No other thread knows the block yet. */
    refs = atomic_load_explicit(&maker->block->refs, memory_order_relaxed);
    atomic_store_explicit(&maker->block->refs, refs + 1, memory_order_relaxed);
    return entry;
}

/* An entry is followed by its key and its value. */
struct layout_entry *layout_entry_new(struct layout_entry_maker *maker,
                                      const struct layout_put *put, uint64_t serial)
{
    struct layout_entry *entry = maker_take(maker, layout_entry_cost(put));

    if (!entry)
        return NULL;
    *entry = (struct layout_entry){
        .block = maker->block,
        .serial = serial,
        .slot = put->slot,
        .offset = put->offset,
        .key = (char *)(entry + 1),
        .value = (uint8_t *)(entry + 1) + put->key_bytes,
        .value_bytes = (uint32_t)put->value_bytes,
        .key_bytes = (uint16_t)put->key_bytes,
    };
    memcpy(entry->key, put->key, put->key_bytes);
    if (put->value_bytes > 0)
        memcpy(entry->value, put->value, put->value_bytes);
    return entry;
}

/* Counts the entries from the last backwards that lie in the same block: neighbours mostly do. */
static size_t count_in_block(struct layout_entry *const *entries, size_t count)
{
    const struct layout_entry_block *block = entries[count - 1]->block;
    size_t same = 0;

    do {
        if (same + PREFETCHED < count)
            __builtin_prefetch(entries[count - 1 - same - PREFETCHED]);
        same++;
    } while (same < count && entries[count - 1 - same]->block == block);
    return same;
}

void layout_entries_ref(struct layout_entry *const *entries, size_t count)
{
    while (count > 0) {
        size_t same = count_in_block(entries, count);

        atomic_fetch_add_explicit(&entries[count - 1]->block->refs, same, memory_order_relaxed);
        count -= same;
    }
}

void layout_drop_pages_by(void (*drop)(void *at, size_t bytes))
{
    drop_pages = drop;
}

/* First writes to the block's first and last byte: where a fork(2) shared their pages, free(3)
 * would wait for the copies while it holds malloc's lock. */
static void free_block(struct layout_entry_block *block, size_t value_bytes)
{
    volatile uint8_t *begin = (uint8_t *)block, *end = begin + block->bytes;

    if (drop_pages && value_bytes >= LARGE_BYTES)
        drop_pages(block, value_bytes);
    *begin = 0;
    end[-1] = 0;
    free(block);
}

void layout_entries_release(struct layout_entry *const *entries, size_t count)
{
    while (count > 0) {
        struct layout_entry_block *block = entries[count - 1]->block;
        size_t same = count_in_block(entries, count);

        /* The owner of all references needs no atomic subtraction: no other thread can get one. */
        if (atomic_load_explicit(&block->refs, memory_order_acquire) == same ||
            atomic_fetch_sub_explicit(&block->refs, same, memory_order_acq_rel) == same)
            free_block(block, entries[count - 1]->value_bytes);
        count -= same;
    }
}
