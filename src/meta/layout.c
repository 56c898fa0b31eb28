/* SPDX-License-Identifier: Apache-2.0 */
#include "layout_internal.h"

#include "base/array.h"
#include "base/clean.h"
#include "name.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AUTOMATIC_NAME_BYTES   24u /* "a", 20 digits, NUL */
#define ALLOCATION_SLACK_BYTES 24u /* three NULs, and the heap's overhead */
#define CLONED_ENTRY_BYTES     32u /* a pointer in each index; chunks may be half full */

static const struct layout_times NO_TIMES = {LAYOUT_NO_TIME, LAYOUT_NO_TIME};

/* An allocation and its texts are one block, which is replaced when a text changes. */
static struct layout_allocation *allocation_copy(const struct layout_allocation *from,
                                                 const char *name, const char *tag,
                                                 const char *wire_id)
{
    size_t name_bytes = strlen(name) + 1;
    size_t tag_bytes = strlen(tag) + 1;
    size_t wire_id_bytes = wire_id ? strlen(wire_id) + 1 : 0;
    struct layout_allocation *allocation =
        malloc(sizeof *allocation + name_bytes + tag_bytes + wire_id_bytes);

    if (!allocation)
        return NULL;
    *allocation = *from;
    allocation->name = (char *)(allocation + 1);
    allocation->tag = allocation->name + name_bytes;
    memcpy(allocation->name, name, name_bytes);
    memcpy(allocation->tag, tag, tag_bytes);
    allocation->wire_id = wire_id ? allocation->tag + tag_bytes : NULL;
    if (wire_id)
        memcpy(allocation->wire_id, wire_id, wire_id_bytes);
    return allocation;
}

static size_t count_texts(const struct layout_allocation *allocation)
{
    return strlen(allocation->name) + strlen(allocation->tag) +
           (allocation->wire_id ? strlen(allocation->wire_id) : 0);
}

/* Add an allocation's texts and times to the layout's counts, or subtract them. */
static void count_in(struct layout *layout, const struct layout_allocation *allocation)
{
    layout->text_bytes += count_texts(allocation);
    layout->timed_count += layout_has_times(&allocation->times);
}

static void count_out(struct layout *layout, const struct layout_allocation *allocation)
{
    layout->text_bytes -= count_texts(allocation);
    layout->timed_count -= layout_has_times(&allocation->times);
}

struct layout *layout_new(void)
{
    struct layout *layout = calloc(1, sizeof *layout);

    if (!layout)
        return NULL;
    atomic_init(&layout->holders, 1);
    layout->times = NO_TIMES;
    layout->by_serial.by_serial = true;
    return layout;
}

void layout_succeed(struct layout *fresh, const struct layout *before)
{
    layout_assert_unshared(fresh);
    assert(fresh->allocation_count == 0 && fresh->entry_count == 0);
    fresh->next_slot = before->next_slot;
    fresh->changes = before->changes + 1;
}

void layout_set_immutable(struct layout *layout)
{
    layout->is_immutable = true;
}

bool layout_is_immutable(const struct layout *layout)
{
    return layout->is_immutable;
}

struct layout *layout_ref(struct layout *layout)
{
    atomic_fetch_add_explicit(&layout->holders, 1, memory_order_relaxed);
    return layout;
}

bool layout_is_shared(const struct layout *layout)
{
    return atomic_load_explicit(&layout->holders, memory_order_acquire) != 1;
}

void layout_free(struct layout *layout)
{
    if (!layout || (layout_is_shared(layout) &&
                    atomic_fetch_sub_explicit(&layout->holders, 1, memory_order_acq_rel) != 1))
        return;
    layout_index_clear(&layout->by_key);
    layout_index_clear(&layout->by_serial);
    for (size_t i = 0; i < layout->allocation_count; i++)
        free(layout->by_slot[i]);
    free(layout->by_slot);
    free(layout->by_name);
    free(layout->by_wire_id);
    free(layout->by_key.chunks);
    free(layout->by_serial.chunks);
    free(layout);
}

/* Makes room for one more allocation. */
static int reserve_allocation(struct layout *layout)
{
    size_t count = layout->allocation_count + 1, room = layout->allocation_capacity;
    int error = ARRAY_RESERVE(layout->by_slot, room, count);

    return error ? error : ARRAY_RESERVE(layout->by_name, layout->allocation_capacity, count);
}

static int clone_allocations(struct layout *copy, const struct layout *layout)
{
    size_t count = layout->allocation_count;

    if (count == 0)
        return 0;
    copy->by_slot = malloc(count * sizeof(struct layout_allocation *));
    copy->by_name = malloc(count * sizeof(struct layout_allocation *));
    if (!copy->by_slot || !copy->by_name)
        return -ENOMEM;
    copy->allocation_capacity = count;
    for (size_t i = 0; i < count; i++) {
        const struct layout_allocation *from = layout->by_slot[i];
        copy->by_slot[i] = allocation_copy(from, from->name, from->tag, from->wire_id);
        if (!copy->by_slot[i])
            return -ENOMEM;
        copy->allocation_count++;
    }
    for (size_t i = 0; i < count; i++) {
        size_t rank = 0;
        layout_slot(layout, layout->by_name[i]->slot, &rank);
        copy->by_name[i] = copy->by_slot[rank];
    }
    return layout_clone_wire_ids(copy, layout);
}

struct layout *layout_clone(const struct layout *layout)
{
    struct layout *copy = layout_new();

    if (!copy)
        return NULL;
    if (clone_allocations(copy, layout) < 0 ||
        layout_index_clone(&copy->by_key, &layout->by_key) < 0 ||
        layout_index_clone(&copy->by_serial, &layout->by_serial) < 0) {
        layout_free(copy);
        return NULL;
    }
    copy->entry_count = layout->entry_count;
    copy->entry_bytes = layout->entry_bytes;
    copy->next_slot = layout->next_slot;
    copy->changes = layout->changes;
    copy->total_bytes = layout->total_bytes;
    copy->text_bytes = layout->text_bytes;
    copy->timed_count = layout->timed_count;
    copy->times = layout->times;
    copy->is_immutable = layout->is_immutable;
    return copy;
}

uint64_t layout_clone_bytes(const struct layout *layout)
{
    const uint64_t allocation_bytes =
        sizeof(struct layout_allocation) + 3 * sizeof(void *) + ALLOCATION_SLACK_BYTES;

    return sizeof *layout + allocation_bytes * layout->allocation_count + layout->text_bytes +
           CLONED_ENTRY_BYTES * layout->entry_count;
}

size_t layout_count_allocations(const struct layout *layout)
{
    return layout->allocation_count;
}

uint64_t layout_total_bytes(const struct layout *layout)
{
    return layout->total_bytes;
}

uint64_t layout_text_bytes(const struct layout *layout)
{
    return layout->text_bytes;
}

size_t layout_count_times(const struct layout *layout)
{
    return layout->timed_count + layout_has_times(&layout->times);
}

uint64_t layout_next_slot(const struct layout *layout)
{
    return layout->next_slot;
}

uint64_t layout_count_changes(const struct layout *layout)
{
    return layout->changes;
}

int layout_check_name(const char *name)
{
    char key[NAME_MAX_BYTES + 1];
    int length = name_decode_key(name, key);

    return length < 0 && !name_is_temporary(name) ? length : 0;
}

int layout_check_tag(const char *tag)
{
    size_t tag_bytes = strnlen(tag, LAYOUT_MAX_TAG_BYTES + 1);

    if (tag_bytes > LAYOUT_MAX_TAG_BYTES || !clean_is_utf8(tag, tag_bytes))
        return -EINVAL;
    return 0;
}

static int check_addition(const struct layout *layout, uint64_t serial, const char *name,
                          const char *tag, const char *wire_id)
{
    size_t count = layout->allocation_count;

    if (count >= LAYOUT_MAX_ALLOCATIONS)
        return -ENOSPC;
    if (count > 0 && layout->by_slot[count - 1]->serial >= serial)
        return -EINVAL;
    int error = layout_check_tag(tag);
    if (error == 0 && name)
        error = layout_check_name(name);
    if (error == 0 && name && layout_find_name(layout, name))
        error = -EEXIST;
    return error < 0 ? error : layout_check_new_wire_id(layout, wire_id);
}

/* Returns the first slot from next_slot on with a free default name. Ends, because the number of
 * taken names is bounded. */
static uint64_t choose_name(const struct layout *layout, char name[AUTOMATIC_NAME_BYTES])
{
    uint64_t slot = layout->next_slot;

    for (;; slot++) {
        snprintf(name, AUTOMATIC_NAME_BYTES, "a%06" PRIu64, slot);
        if (!layout_find_name(layout, name))
            return slot;
    }
}

/* Inserts it by name among the first `count` of by_name. */
static void insert_name(struct layout *layout, struct layout_allocation *allocation, size_t count)
{
    size_t at = layout_name_lower_bound(layout, allocation->name);

    memmove(layout->by_name + at + 1, layout->by_name + at,
            (count - at) * sizeof layout->by_name[0]);
    layout->by_name[at] = allocation;
}

int layout_append_allocation(struct layout *layout, const struct layout_allocation *from,
                             const char *name, const char *tag, const char *wire_id)
{
    int error = reserve_allocation(layout);

    if (error == 0)
        error = layout_reserve_wire_id(layout, wire_id);
    if (error < 0)
        return error;
    struct layout_allocation *allocation = allocation_copy(from, name, tag, wire_id);
    if (!allocation)
        return -ENOMEM;
    insert_name(layout, allocation, layout->allocation_count);
    layout_insert_wire_id(layout, allocation);
    layout->by_slot[layout->allocation_count++] = allocation;
    count_in(layout, allocation);
    layout->times = NO_TIMES;
    return 0;
}

int layout_add_with_wire_id(struct layout *layout, uint64_t serial, const char *name,
                            const char *tag, const char *wire_id, uint64_t *slot)
{
    struct layout_allocation fresh = {
        .serial = serial, .slot = layout->next_slot, .times = NO_TIMES};
    char automatic[AUTOMATIC_NAME_BYTES];

    layout_assert_unshared(layout);
    tag = tag ? tag : "";
    int error = check_addition(layout, serial, name, tag, wire_id);
    if (error < 0)
        return error;
    if (!name) {
        fresh.slot = choose_name(layout, automatic);
        name = automatic;
    }
    error = layout_append_allocation(layout, &fresh, name, tag, wire_id);
    if (error < 0)
        return error;
    layout->next_slot = fresh.slot + 1;
    if (slot)
        *slot = fresh.slot;
    return 0;
}

int layout_add(struct layout *layout, uint64_t serial, const char *name, const char *tag,
               uint64_t *slot)
{
    return layout_add_with_wire_id(layout, serial, name, tag, NULL, slot);
}

static void forget_name(struct layout *layout, const char *name)
{
    size_t at = layout_name_lower_bound(layout, name);

    memmove(layout->by_name + at, layout->by_name + at + 1,
            (layout->allocation_count - at - 1) * sizeof layout->by_name[0]);
}

int layout_remove(struct layout *layout, uint64_t slot, size_t *entries_removed)
{
    size_t removed, rank;

    layout_assert_unshared(layout);
    struct layout_allocation *allocation = layout_slot(layout, slot, &rank);
    if (!allocation)
        return -ENOENT;
    removed = (size_t)allocation->bound_entries;
    int error = layout_remove_bound(layout, allocation);
    if (error < 0)
        return error;
    assert(allocation->bound_entries == 0);
    forget_name(layout, allocation->name);
    layout_forget_wire_id(layout, allocation);
    layout->allocation_count--;
    memmove(layout->by_slot + rank, layout->by_slot + rank + 1,
            (layout->allocation_count - rank) * sizeof layout->by_slot[0]);
    layout->total_bytes -= allocation->aligned_bytes;
    count_out(layout, allocation);
    layout->times = NO_TIMES;
    layout->changes++;
    free(allocation);
    if (entries_removed)
        *entries_removed = removed;
    return 0;
}

/* Replaces the allocation of this rank by a changed copy; the caller updates by_name. */
static void replace(struct layout *layout, size_t rank, struct layout_allocation *copy)
{
    struct layout_allocation *old = layout->by_slot[rank];

    layout->by_slot[rank] = copy;
    layout_replace_wire_id(layout, copy);
    count_out(layout, old);
    count_in(layout, copy);
    layout->changes++;
    free(old);
}

int layout_rename(struct layout *layout, uint64_t slot, const char *name)
{
    struct layout_allocation *old, *renamed;
    size_t rank;

    layout_assert_unshared(layout);
    old = layout_slot(layout, slot, &rank);
    if (!old)
        return -ENOENT;
    int error = layout_check_name(name);
    if (error < 0)
        return error;
    const struct layout_allocation *holder = layout_find_name(layout, name);
    if (holder)
        return holder == old ? 0 : -EEXIST;
    renamed = allocation_copy(old, name, old->tag, old->wire_id);
    if (!renamed)
        return -ENOMEM;
    forget_name(layout, old->name);
    /* by_name has one allocation less during the search */
    layout->allocation_count--;
    insert_name(layout, renamed, layout->allocation_count);
    layout->allocation_count++;
    replace(layout, rank, renamed);
    layout->times = NO_TIMES;
    return 0;
}

int layout_set_tag(struct layout *layout, uint64_t slot, const char *tag)
{
    struct layout_allocation *old, *tagged;
    size_t rank;

    layout_assert_unshared(layout);
    old = layout_slot(layout, slot, &rank);
    if (!old)
        return -ENOENT;
    int error = layout_check_tag(tag);
    if (error < 0)
        return error;
    tagged = allocation_copy(old, old->name, tag, old->wire_id);
    if (!tagged)
        return -ENOMEM;
    layout->by_name[layout_name_lower_bound(layout, old->name)] = tagged;
    replace(layout, rank, tagged);
    return 0;
}

int layout_set_times(struct layout *layout, uint64_t slot, const struct layout_times *times)
{
    struct layout_allocation *allocation = layout_slot(layout, slot, NULL);

    layout_assert_unshared(layout);
    if (slot != LAYOUT_UNBOUND && !allocation)
        return -ENOENT;
    if (!allocation) {
        layout->times = *times;
        return 0;
    }
    count_out(layout, allocation);
    allocation->times = *times;
    count_in(layout, allocation);
    return 0;
}

struct layout_times layout_get_times(const struct layout *layout)
{
    return layout->times;
}

bool layout_has_times(const struct layout_times *times)
{
    return times->access_ns != LAYOUT_NO_TIME || times->change_ns != LAYOUT_NO_TIME;
}

void layout_replace_memories(struct layout *layout, const uint64_t *memories)
{
    layout_assert_unshared(layout);
    for (size_t i = 0; i < layout->allocation_count; i++)
        layout->by_slot[i]->memory = memories ? memories[i] : LAYOUT_NO_MEMORY;
}

int layout_set_memory(struct layout *layout, uint64_t slot, uint64_t memory, uint64_t size_bytes,
                      uint64_t aligned_bytes, bool spool)
{
    struct layout_allocation *allocation = layout_slot(layout, slot, NULL);

    layout_assert_unshared(layout);
    if (!allocation)
        return -ENOENT;
    if (memory == LAYOUT_NO_MEMORY) {
        size_bytes = aligned_bytes = 0;
        spool = false;
    }
    uint64_t others = layout->total_bytes - allocation->aligned_bytes;
    if (aligned_bytes < size_bytes || aligned_bytes > UINT64_MAX - others)
        return -EINVAL;
    count_out(layout, allocation);
    if (memory == LAYOUT_NO_MEMORY || allocation->memory == LAYOUT_NO_MEMORY)
        allocation->times = NO_TIMES;
    count_in(layout, allocation);
    allocation->memory = memory;
    allocation->size_bytes = size_bytes;
    allocation->aligned_bytes = aligned_bytes;
    allocation->spool = spool;
    layout->changes++;
    layout->total_bytes = others + aligned_bytes;
    return 0;
}

static int check_allocation(const struct layout_allocation *allocation, bool spools, char *message,
                            size_t message_bytes)
{
    const char *why = NULL;

    if (name_is_temporary(allocation->name))
        why = "has the name of a temporary file: rename it, or remove it";
    else if (allocation->memory == LAYOUT_NO_MEMORY)
        why = "has no memory: give it a size (truncate -s) or remove it";
    else if (allocation->spool && !spools)
        why = "is still being written: close or fsync it first";
    if (!why)
        return 0;
    snprintf(message, message_bytes, "allocation %s %s", allocation->name, why);
    return -EINVAL;
}

static int check_entry(const struct layout *layout, const struct layout_entry *entry, char *message,
                       size_t message_bytes)
{
    char name[NAME_MAX_BYTES + 1];

    if (entry->slot == LAYOUT_UNBOUND)
        return 0;
    const struct layout_allocation *allocation = layout_slot(layout, entry->slot, NULL);
    if (entry->offset < allocation->aligned_bytes)
        return 0;
    name_encode_key(entry->key, entry->key_bytes, name);
    snprintf(message, message_bytes,
             "metadata %s points at byte %" PRIu64 " of allocation %s, which takes %" PRIu64
             " bytes: set user.gmsfs.offset below that, or remove the entry",
             name, entry->offset, allocation->name, allocation->aligned_bytes);
    return -EINVAL;
}

int layout_check(const struct layout *layout, bool spools, char *message, size_t message_bytes)
{
    const struct layout_entry *entry;
    struct layout_cursor cursor;

    for (size_t i = 0; i < layout->allocation_count; i++) {
        int error = check_allocation(layout->by_slot[i], spools, message, message_bytes);
        if (error < 0)
            return error;
    }
    layout_cursor_first(&cursor, layout);
    while ((entry = layout_cursor_next(&cursor))) {
        int error = check_entry(layout, entry, message, message_bytes);
        if (error < 0)
            return error;
    }
    return 0;
}
