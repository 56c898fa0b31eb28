/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/list.h"

#include <errno.h>
#include <string.h>

#define ITEM_ALIGNMENT 8u

/* Returns the bytes written; 0: the item does not fit. */
static size_t pack_item(const struct layout_allocation *allocation, size_t rank, uint8_t *at,
                        size_t room)
{
    size_t tag_bytes = strlen(allocation->tag), name_bytes = strlen(allocation->name);
    struct gmsfs_list_item item = {.rank = rank,
                                   .slot = allocation->slot,
                                   .size_bytes = allocation->size_bytes,
                                   .aligned_bytes = allocation->aligned_bytes,
                                   .tag_bytes = (uint16_t)tag_bytes,
                                   .name_bytes = (uint16_t)name_bytes};
    size_t used = sizeof item + tag_bytes + name_bytes;
    size_t bytes = (used + ITEM_ALIGNMENT - 1) & ~(size_t)(ITEM_ALIGNMENT - 1);
    if (bytes > room)
        return 0;
    item.item_bytes = (uint32_t)bytes;
    memcpy(at, &item, sizeof item);
    memcpy(at + sizeof item, allocation->tag, tag_bytes);
    memcpy(at + sizeof item + tag_bytes, allocation->name, name_bytes);
    memset(at + used, 0, bytes - used);
    return bytes;
}

int list_pack(const struct layout *layout, struct gmsfs_ioc_list *list, size_t room)
{
    const size_t head = offsetof(struct gmsfs_ioc_list, data);
    size_t all = layout_count_allocations(layout), bytes = 0, taken;
    size_t rank = list->flags & GMSFS_LIST_BY_SLOT ? layout_slot_lower_bound(layout, list->first)
                  : list->first < all              ? (size_t)list->first
                                                   : all;
    uint32_t wanted = list->count ? list->count : UINT32_MAX;
    room = room < head ? 0 : room - head;
    if (room > sizeof list->data)
        room = sizeof list->data;
    for (list->count = 0; rank < all && list->count < wanted; list->count++, rank++) {
        taken = pack_item(layout_at_rank(layout, rank), rank, list->data + bytes, room - bytes);
        if (taken == 0)
            break;
        bytes += taken;
    }
    if (list->count == 0 && rank < all)
        return -EFBIG;
    list->allocations = all;
    list->bytes = (uint32_t)bytes;
    list->more = rank < all;
    return 0;
}
