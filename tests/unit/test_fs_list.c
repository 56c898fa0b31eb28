/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of LIST: their content, begin and end. */
#include "auto_layout.h"
#include "fs/list.h"
#include "gmsfs_abi.h"

#include <errno.h>

static void add(struct layout *layout, const char *name, const char *tag, uint64_t size_bytes)
{
    static uint64_t serial;
    uint64_t slot;

    require(layout_add(layout, ++serial, name, tag, &slot) == 0);
    require(layout_set_memory(layout, slot, serial, size_bytes, 4096, false) == 0);
}

/* Slots 0, 2, 3. */
static struct layout *make_layout(void)
{
    struct layout *layout = layout_new();

    require(layout != NULL);
    add(layout, NULL, "first", 1);
    add(layout, NULL, "removed", 2);
    add(layout, "named", "", 3);
    add(layout, NULL, "a tag of more bytes", 4);
    require(layout_remove(layout, 1, NULL) == 0);
    return layout;
}

static struct layout *make_many(size_t count)
{
    struct layout *layout = layout_new();

    require(layout != NULL);
    for (size_t i = 0; i < count; i++)
        add(layout, NULL, i % 3 ? "tag" : "another tag", i);
    return layout;
}

static void check_item(const uint8_t **at, uint64_t rank, uint64_t slot, uint64_t size_bytes,
                       const char *tag, const char *name)
{
    struct gmsfs_list_item item;
    const uint8_t *text = *at + sizeof item;

    memcpy(&item, *at, sizeof item);
    check_int(item.rank, rank);
    check_int(item.slot, slot);
    check_int(item.size_bytes, size_bytes);
    check_int(item.aligned_bytes, 4096);
    check_bytes(text, item.tag_bytes, tag, strlen(tag));
    check_bytes(text + item.tag_bytes, item.name_bytes, name, strlen(name));
    check_int(item.item_bytes % 8, 0);
    check(item.item_bytes >= sizeof item + item.tag_bytes + item.name_bytes);
    check(item.item_bytes < sizeof item + item.tag_bytes + item.name_bytes + 8);
    *at += item.item_bytes;
}

TAP_TEST(a_page_tells_all_of_a_small_layout)
{
    struct gmsfs_ioc_list list = {.first = 0};
    auto_layout *layout = make_layout();
    const uint8_t *at = list.data;

    check_int(list_pack(layout, &list, sizeof list), 0);
    check_int(list.count, 3);
    check_int(list.allocations, 3);
    check_int(list.more, 0);
    check_item(&at, 0, 0, 1, "first", "a000000");
    check_item(&at, 1, 2, 3, "", "named");
    check_item(&at, 2, 3, 4, "a tag of more bytes", "a000003");
    check_int(at - list.data, list.bytes);
}

TAP_TEST(a_page_begins_at_a_rank_or_at_the_next_slot_and_ends_after_its_count)
{
    struct gmsfs_ioc_list list = {.first = 1, .count = 1};
    auto_layout *layout = make_layout();
    const uint8_t *at = list.data;

    check_int(list_pack(layout, &list, sizeof list), 0);
    check_int(list.count, 1);
    check_int(list.more, 1);
    check_item(&at, 1, 2, 3, "", "named");
    at = list.data;
    list = (struct gmsfs_ioc_list){.first = 1, .flags = GMSFS_LIST_BY_SLOT};
    check_int(list_pack(layout, &list, sizeof list), 0);
    check_int(list.count, 2);
    check_int(list.more, 0);
    check_item(&at, 1, 2, 3, "", "named");
}

TAP_TEST(a_page_that_begins_behind_the_end_is_empty)
{
    static const uint32_t flags[] = {0, GMSFS_LIST_BY_SLOT};
    static const uint64_t firsts[] = {4, UINT64_MAX};
    struct layout *layout = make_layout(), *none = layout_new();

    require(none != NULL);
    for (size_t i = 0; i < 4; i++) {
        struct gmsfs_ioc_list list = {.first = firsts[i / 2], .flags = flags[i % 2]};
        check_int(list_pack(layout, &list, sizeof list), 0);
        check_int(list.count, 0);
        check_int(list.bytes, 0);
        check_int(list.more, 0);
        check_int(list.allocations, 3);
        check_int(list_pack(none, &list, sizeof list), 0);
        check_int(list.allocations, 0);
    }
    layout_free(layout);
    layout_free(none);
}

TAP_TEST(pages_by_rank_and_by_slot_tell_each_allocation_once)
{
    enum {
        COUNT = 2000
    };
    auto_layout *layout = make_many(COUNT);

    for (uint32_t flags = 0; flags <= GMSFS_LIST_BY_SLOT; flags++) {
        struct gmsfs_ioc_list list = {.flags = flags};
        uint64_t rank = 0;
        do {
            const uint8_t *at = list.data;
            list.first = rank;
            list.count = 0;
            require(list_pack(layout, &list, sizeof list) == 0 && list.count > 0);
            for (uint32_t i = 0; i < list.count; i++, rank++) {
                struct gmsfs_list_item item;
                memcpy(&item, at, sizeof item);
                check_int(item.rank, rank);
                check_int(item.size_bytes, rank);
                at += item.item_bytes;
            }
            check_int(at - list.data, list.bytes);
            check_int(list.more, rank < COUNT);
        } while (list.more);
        check_int(rank, COUNT);
    }
}

TAP_TEST(a_page_keeps_to_the_room_of_its_caller)
{
    auto_layout *layout = make_layout();
    const size_t head = offsetof(struct gmsfs_ioc_list, data);

    for (size_t room = 0; room <= 300; room++) {
        struct gmsfs_ioc_list list = {.first = 0};
        int r;
        memset(list.data, 0xa5, sizeof list.data);
        r = list_pack(layout, &list, room);
        check(r == 0 || r == -EFBIG);
        check(r ? room < head + 56 : list.count > 0 && head + list.bytes <= room);
        check_int(list.data[room > head ? room - head : 0], 0xa5);
    }
}

TAP_TEST(the_longest_tag_and_name_fit)
{
    struct gmsfs_ioc_list list = {.first = 0};
    auto_layout *layout = layout_new();
    const uint8_t *at = list.data;
    char text[256];

    require(layout != NULL);
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    add(layout, text, text, 7);
    check_int(list_pack(layout, &list, sizeof list), 0);
    check_item(&at, 0, 0, 7, text, text);
}
