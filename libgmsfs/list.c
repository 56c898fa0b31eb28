/* SPDX-License-Identifier: Apache-2.0 */
/* Allocations as LIST tells them, a page at a time. */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#include "base/array.h"

#define LIST_TRIES 8 /* listings that changes may spoil one after the other */

#define LIST_ITEM_MAX_BYTES (sizeof(struct gmsfs_list_item) + 2 * 256)

/* Room for one item: fewer bytes for the kernel to carry. */
#define LIST_ONE                                                                     \
    _IOC(_IOC_READ | _IOC_WRITE, _IOC_TYPE(GMSFS_IOC_LIST), _IOC_NR(GMSFS_IOC_LIST), \
         offsetof(struct gmsfs_ioc_list, data) + LIST_ITEM_MAX_BYTES)

struct list {
    struct gmsfs_handle_info *items;
    size_t count, room;
};

/* The item at *at, which then is behind it. */
static int list_read_item(const uint8_t **at, const uint8_t *end, struct gmsfs_handle_info *info)
{
    const uint8_t *text = *at + sizeof(struct gmsfs_list_item);
    struct gmsfs_list_item item;

    if ((size_t)(end - *at) < sizeof item)
        return -EPROTO;
    memcpy(&item, *at, sizeof item);
    if (item.item_bytes > (size_t)(end - *at) || item.tag_bytes >= sizeof info->tag ||
        item.name_bytes >= sizeof info->name ||
        item.item_bytes < sizeof item + item.tag_bytes + item.name_bytes)
        return -EPROTO;
    memset(info, 0, sizeof *info);
    info->slot = item.slot;
    info->rank = item.rank;
    info->size_bytes = item.size_bytes;
    info->aligned_bytes = item.aligned_bytes;
    memcpy(info->tag, text, item.tag_bytes);
    memcpy(info->name, text + item.tag_bytes, item.name_bytes);
    *at += item.item_bytes;
    return 0;
}

/* Takes a page; its slots must rise from the requested one, so that a listing ends. */
static int list_take_page(struct list *list, const struct gmsfs_ioc_list *page)
{
    const uint8_t *at = page->data, *end = page->data + page->bytes;
    uint64_t least = page->first;

    if (page->bytes > sizeof page->data || page->count > page->bytes ||
        (page->more && !page->count))
        return -EPROTO;
    int error = page->count ? ARRAY_RESERVE(list->items, list->room, list->count + page->count) : 0;
    for (uint32_t i = 0; i < page->count && !error; i++) {
        struct gmsfs_handle_info *info = list->items + list->count;
        error = list_read_item(&at, end, info);
        if (!error && info->slot < least)
            error = -EPROTO;
        least = info->slot + 1;
        list->count++;
    }
    return error;
}

/* -EAGAIN: the layout changed between two pages. `loosely`: accept that; an allocation that is
 * removed or renamed meanwhile may be in the list or not, as in a directory listing. */
static int list_read_pages(struct gmsfs_store *handle, struct list *list, int loosely)
{
    struct gmsfs_ioc_list page = {.flags = GMSFS_LIST_BY_SLOT};
    int error;

    list->count = 0;
    do {
        page.count = 0;
        if (loosely)
            memset(page.layout, 0, sizeof page.layout);
        error = gfs_ioctl(handle, GMSFS_IOC_LIST, &page);
        if (!error)
            error = list_take_page(list, &page);
        if (!error && page.more)
            page.first = list->items[list->count - 1].slot + 1;
    } while (!error && page.more);
    return error;
}

int gfs_list(struct gmsfs_store *handle, struct gmsfs_handle_info **out, size_t *count)
{
    struct list list = {0};
    int error = -EAGAIN;

    for (int i = 0; i <= LIST_TRIES && error == -EAGAIN; i++)
        error = list_read_pages(handle, &list, i == LIST_TRIES);
    if (error) {
        free(list.items);
        return error;
    }
    *out = list.items;
    *count = list.count;
    return 0;
}

static int list_compare(const void *left, const void *right)
{
    uint64_t a = ((const struct gmsfs_handle_info *)left)->slot;
    uint64_t b = ((const struct gmsfs_handle_info *)right)->slot;

    return (a > b) - (a < b);
}

const struct gmsfs_handle_info *gfs_list_lookup(const struct gmsfs_handle_info *list, size_t count,
                                                uint64_t slot)
{
    struct gmsfs_handle_info wanted = {.slot = slot};

    return count ? bsearch(&wanted, list, count, sizeof *list, list_compare) : NULL;
}

/* page: first, flags and layout in. -ENOENT: there is none from there on. */
static int list_read_one(struct gmsfs_store *handle, struct gmsfs_ioc_list *page,
                         struct gmsfs_handle_info *info)
{
    const uint8_t *at = page->data;

    page->count = 1;
    memset(page->data, 0, LIST_ITEM_MAX_BYTES);
    int error = gfs_ioctl(handle, LIST_ONE, page);
    if (!error && page->count == 0)
        error = -ENOENT;
    if (!error && page->bytes > LIST_ITEM_MAX_BYTES)
        error = -EPROTO;
    return error ? error : list_read_item(&at, page->data + page->bytes, info);
}

static int gfs_list_find(struct gmsfs_store *handle, uint64_t slot, struct gmsfs_handle_info *info)
{
    struct gmsfs_ioc_list page;

    memset(&page, 0, offsetof(struct gmsfs_ioc_list, data));
    page.first = slot;
    page.flags = GMSFS_LIST_BY_SLOT;
    int error = list_read_one(handle, &page, info);
    return !error && info->slot != slot ? -ENOENT : error;
}

/* Slots rise with ranks. So where the slots of the first and of the last rank lie as far apart as
 * there are allocations, those between have no gap. */
int gfs_list_in_a_row(struct gmsfs_store *handle, uint64_t *first, uint64_t *count)
{
    struct gmsfs_handle_info info;
    struct gmsfs_ioc_list page;

    memset(&page, 0, offsetof(struct gmsfs_ioc_list, data));
    if (list_read_one(handle, &page, &info))
        return 0;
    *first = info.slot;
    *count = page.allocations;
    page.first = *count - 1;
    return *count == 1 ||
           (!list_read_one(handle, &page, &info) && info.slot - *first == *count - 1);
}

/* ---- public ------------------------------------------------------------------------------- */

int(gmsfs_get_handle_info)(gmsfs_t *handle, uint64_t slot, struct gmsfs_handle_info *out,
                           size_t out_bytes)
{
    struct gmsfs_handle_info info;

    if (!out || gfs_check_struct(out_bytes))
        return -EINVAL;
    int error = gfs_enter(handle);
    if (error)
        return error;
    error = gfs_list_find(handle, slot, &info);
    gfs_leave(handle);
    if (!error)
        gfs_give_struct(out, out_bytes, &info, sizeof info);
    return error;
}

int(gmsfs_list_handles)(gmsfs_t *handle, const char *tag, struct gmsfs_handle_info **out,
                        size_t *out_count, size_t item_bytes)
{
    struct gmsfs_handle_info *list = NULL;
    size_t count = 0, kept = 0;

    if (!out || !out_count)
        return -EINVAL;
    int error = gfs_enter(handle);
    if (error)
        return error;
    error = gfs_list(handle, &list, &count);
    gfs_leave(handle);
    if (error)
        return error;
    for (size_t i = 0; i < count; i++)
        if (!tag || strcmp(list[i].tag, tag) == 0)
            list[kept++] = list[i];
    if (kept == 0) {
        free(list);
        list = NULL;
    }
    void *given = list;
    error = gfs_give_list(&given, kept, item_bytes, sizeof *list);
    if (error) {
        free(given);
        return error;
    }
    *out = given;
    *out_count = kept;
    return 0;
}
