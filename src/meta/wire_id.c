/* SPDX-License-Identifier: Apache-2.0 */
/* The index of allocations by wire id, an id that a client chose. */
#include "layout_internal.h"

#include "base/array.h"
#include "base/clean.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_wire_id(const char *text)
{
    size_t bytes = strnlen(text, LAYOUT_MAX_WIRE_ID_BYTES + 1);

    return bytes > 0 && bytes <= LAYOUT_MAX_WIRE_ID_BYTES && clean_is_utf8(text, bytes);
}

/* Returns the index of the first id not below this one. */
static size_t lower_bound(const struct layout *layout, const char *wire_id)
{
    size_t at = 0;

    ARRAY_SEARCH(at, layout->wire_id_count, strcmp(layout->by_wire_id[at]->wire_id, wire_id) < 0);
    return at;
}

const struct layout_allocation *layout_find_wire_id(const struct layout *layout,
                                                    const char *wire_id)
{
    size_t at = lower_bound(layout, wire_id);

    if (at == layout->wire_id_count || strcmp(layout->by_wire_id[at]->wire_id, wire_id) != 0)
        return NULL;
    return layout->by_wire_id[at];
}

int layout_check_new_wire_id(const struct layout *layout, const char *wire_id)
{
    if (!wire_id)
        return 0;
    if (!is_wire_id(wire_id))
        return -EINVAL;
    return layout_find_wire_id(layout, wire_id) ? -EEXIST : 0;
}

int layout_reserve_wire_id(struct layout *layout, const char *wire_id)
{
    if (!wire_id)
        return 0;
    return ARRAY_RESERVE(layout->by_wire_id, layout->wire_id_capacity, layout->wire_id_count + 1);
}

void layout_insert_wire_id(struct layout *layout, struct layout_allocation *allocation)
{
    if (!allocation->wire_id)
        return;
    size_t at = lower_bound(layout, allocation->wire_id);
    memmove(layout->by_wire_id + at + 1, layout->by_wire_id + at,
            (layout->wire_id_count - at) * sizeof layout->by_wire_id[0]);
    layout->by_wire_id[at] = allocation;
    layout->wire_id_count++;
}

void layout_forget_wire_id(struct layout *layout, const struct layout_allocation *allocation)
{
    if (!allocation->wire_id)
        return;
    size_t at = lower_bound(layout, allocation->wire_id);
    layout->wire_id_count--;
    memmove(layout->by_wire_id + at, layout->by_wire_id + at + 1,
            (layout->wire_id_count - at) * sizeof layout->by_wire_id[0]);
}

void layout_replace_wire_id(struct layout *layout, struct layout_allocation *allocation)
{
    if (allocation->wire_id)
        layout->by_wire_id[lower_bound(layout, allocation->wire_id)] = allocation;
}

int layout_clone_wire_ids(struct layout *copy, const struct layout *layout)
{
    size_t count = layout->wire_id_count;

    if (count == 0)
        return 0;
    copy->by_wire_id = malloc(count * sizeof(struct layout_allocation *));
    if (!copy->by_wire_id)
        return -ENOMEM;
    copy->wire_id_capacity = count;
    for (size_t i = 0; i < count; i++)
        copy->by_wire_id[i] = layout_slot(copy, layout->by_wire_id[i]->slot, NULL);
    copy->wire_id_count = count;
    return 0;
}

/* A sorted index without equal neighbours has unique ids; it is complete if the counts agree. */
int layout_check_wire_ids(const struct layout *layout)
{
    size_t count = 0;

    for (size_t i = 0; i < layout->allocation_count; i++)
        count += layout->by_slot[i]->wire_id != NULL;
    if (count != layout->wire_id_count)
        return -EINVAL;
    for (size_t i = 0; i < count; i++) {
        const struct layout_allocation *allocation = layout->by_wire_id[i];

        if (!allocation->wire_id || !is_wire_id(allocation->wire_id) ||
            layout_slot(layout, allocation->slot, NULL) != allocation)
            return -EINVAL;
        if (i > 0 && strcmp(layout->by_wire_id[i - 1]->wire_id, allocation->wire_id) >= 0)
            return -EINVAL;
    }
    return 0;
}
