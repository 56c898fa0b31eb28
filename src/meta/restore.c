/* SPDX-License-Identifier: Apache-2.0 */
/* Restores a layout from values that may be damaged. */
#include "layout_internal.h"

#include "name.h"

#include <errno.h>
#include <string.h>

/* No layout counts that far, and from here none reaches LAYOUT_UNBOUND. */
#define MOST_SLOTS (UINT64_MAX / 2)

int layout_restore(uint64_t next_slot, uint64_t changes, struct layout **layout)
{
    if (next_slot > MOST_SLOTS)
        return -EINVAL;
    struct layout *made = layout_new();
    if (!made)
        return -ENOMEM;
    made->next_slot = next_slot;
    made->changes = changes;
    *layout = made;
    return 0;
}

/* Copies a text, which has no NUL inside, and terminates it. */
static int copy_text(const char *text, size_t bytes, char copy[NAME_MAX_BYTES + 1])
{
    if (bytes > NAME_MAX_BYTES || (bytes > 0 && memchr(text, '\0', bytes)))
        return -EINVAL;
    memset(copy, 0, NAME_MAX_BYTES + 1);
    if (bytes > 0)
        memcpy(copy, text, bytes);
    return 0;
}

static int check_place(const struct layout *layout, const struct layout_restored *allocation)
{
    if (layout->entry_count > 0 || layout->allocation_count >= LAYOUT_MAX_ALLOCATIONS ||
        allocation->slot >= layout->next_slot)
        return -EINVAL;
    if (layout->allocation_count == 0)
        return 0;
    const struct layout_allocation *last = layout->by_slot[layout->allocation_count - 1];
    return last->slot < allocation->slot && last->serial < allocation->serial ? 0 : -EINVAL;
}

static int check_memory(const struct layout *layout, const struct layout_restored *allocation)
{
    bool none = allocation->memory == LAYOUT_NO_MEMORY;

    if (none && allocation->spool)
        return -EINVAL;
    if (allocation->aligned_bytes < allocation->size_bytes ||
        allocation->aligned_bytes > UINT64_MAX - layout->total_bytes)
        return -EINVAL;
    return 0;
}

_Static_assert(LAYOUT_MAX_TAG_BYTES == NAME_MAX_BYTES && LAYOUT_MAX_WIRE_ID_BYTES == NAME_MAX_BYTES,
               "copy_text takes all three");

int layout_restore_allocation(struct layout *layout, const struct layout_restored *allocation)
{
    const struct layout_allocation from = {
        .serial = allocation->serial,
        .slot = allocation->slot,
        .memory = allocation->memory,
        .size_bytes = allocation->size_bytes,
        .aligned_bytes = allocation->aligned_bytes,
        .times = {LAYOUT_NO_TIME, LAYOUT_NO_TIME},
        .spool = allocation->spool,
    };
    char name[NAME_MAX_BYTES + 1], tag[NAME_MAX_BYTES + 1], id[NAME_MAX_BYTES + 1];
    const char *wire_id = allocation->wire_id_bytes > 0 ? id : NULL;

    layout_assert_unshared(layout);
    if (check_place(layout, allocation) < 0 || check_memory(layout, allocation) < 0 ||
        copy_text(allocation->name, allocation->name_bytes, name) < 0 ||
        copy_text(allocation->tag, allocation->tag_bytes, tag) < 0 ||
        copy_text(allocation->wire_id, allocation->wire_id_bytes, id) < 0 ||
        layout_check_name(name) < 0 || layout_check_tag(tag) < 0 ||
        layout_find_name(layout, name) || layout_check_new_wire_id(layout, wire_id) < 0)
        return -EINVAL;
    int error = layout_append_allocation(layout, &from, name, tag, wire_id);
    if (error == 0)
        layout->total_bytes += allocation->aligned_bytes;
    return error;
}

int layout_restore_entries(struct layout *layout, const struct layout_put *puts, size_t count,
                           size_t *culprit)
{
    *culprit = count;
    if (layout->entry_count > 0 || count > LAYOUT_MAX_ENTRIES)
        return -EINVAL;
    for (size_t i = 1; i < count; i++) {
        if (layout_compare_keys(puts[i - 1].key, puts[i - 1].key_bytes, puts[i].key,
                                puts[i].key_bytes) >= 0) {
            *culprit = i;
            return -EINVAL;
        }
    }
    int error = layout_put_many(layout, puts, count, false, culprit);
    return error == 0 || error == -ENOMEM ? error : -EINVAL;
}
