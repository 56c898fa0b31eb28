/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arguments of ioctls: four bytes of command, then the payload as the kernel passes it on. Checked
 * arguments must be safe for the next step, so the layout gets them.
 */
#include "fuzz.h"

#include "fs/list.h"
#include "fs/payload.h"
#include "meta/layout.h"

#include <errno.h>

union payload {
    uint8_t bytes[PAYLOAD_MAX_BYTES + 1];
    struct gmsfs_ioc_acquire acquire;
    struct gmsfs_ioc_alloc alloc;
    struct gmsfs_ioc_alloc_each alloc_each;
    struct gmsfs_ioc_commit commit;
    struct gmsfs_ioc_metadata metadata;
    struct gmsfs_ioc_list list;
    struct gmsfs_ioc_region region;
};

static const size_t SIZES[] = {
    [_IOC_NR(GMSFS_IOC_INFO)] = sizeof(struct gmsfs_ioc_info),
    [_IOC_NR(GMSFS_IOC_ACQUIRE)] = sizeof(struct gmsfs_ioc_acquire),
    [_IOC_NR(GMSFS_IOC_JOIN)] = sizeof(struct gmsfs_ioc_join),
    [_IOC_NR(GMSFS_IOC_RELEASE)] = 0, /* these three take no argument */
    [_IOC_NR(GMSFS_IOC_CANCEL)] = 0,
    [_IOC_NR(GMSFS_IOC_REMOVE_UNUSED)] = 0,
    [_IOC_NR(GMSFS_IOC_ALLOC)] = sizeof(struct gmsfs_ioc_alloc),
    [_IOC_NR(GMSFS_IOC_FREE)] = sizeof(struct gmsfs_ioc_free),
    [_IOC_NR(GMSFS_IOC_EXPORT)] = sizeof(struct gmsfs_ioc_export),
    [_IOC_NR(GMSFS_IOC_METADATA_PUT)] = sizeof(struct gmsfs_ioc_metadata),
    [_IOC_NR(GMSFS_IOC_METADATA_GET)] = sizeof(struct gmsfs_ioc_metadata),
    [_IOC_NR(GMSFS_IOC_METADATA_DELETE)] = sizeof(struct gmsfs_ioc_metadata),
    [_IOC_NR(GMSFS_IOC_COMMIT)] = sizeof(struct gmsfs_ioc_commit),
    [_IOC_NR(GMSFS_IOC_ABORT)] = sizeof(struct gmsfs_ioc_abort),
    [_IOC_NR(GMSFS_IOC_APPLY)] = sizeof(struct gmsfs_ioc_apply),
    [_IOC_NR(GMSFS_IOC_RESERVE)] = sizeof(struct gmsfs_ioc_reserve),
    [_IOC_NR(GMSFS_IOC_LIST)] = sizeof(struct gmsfs_ioc_list),
    [_IOC_NR(GMSFS_IOC_ALLOC_EACH)] = sizeof(struct gmsfs_ioc_alloc_each),
    [_IOC_NR(GMSFS_IOC_REGION)] = sizeof(struct gmsfs_ioc_region),
};

static void check_decoded(const uint8_t *in, size_t in_bytes, const uint8_t *out, size_t known,
                          int error)
{
    bool rest = false;

    for (size_t i = known; i < in_bytes; i++)
        rest |= in[i] != 0;
    must(error == (rest ? -E2BIG : 0));
    for (size_t i = 0; i < known && !error; i++)
        must(out[i] == (i < in_bytes ? in[i] : 0));
}

static void try_alloc(const struct gmsfs_ioc_alloc *alloc)
{
    struct layout *layout;
    uint64_t slot;

    if (payload_check_alloc(alloc))
        return;
    must(alloc->size_bytes > 0 && alloc->count > 0);
    must(strlen(alloc->tag) < sizeof alloc->tag && strlen(alloc->name) < sizeof alloc->name);
    layout = layout_new();
    must(layout != NULL);
    if (layout_add(layout, 1, *alloc->name ? alloc->name : NULL, alloc->tag, &slot) == 0) {
        const struct layout_allocation *made = layout_find_slot(layout, slot, NULL);
        must(made && strcmp(made->tag, alloc->tag) == 0);
        must(!*alloc->name || strcmp(made->name, alloc->name) == 0);
        must(layout_add(layout, 2, made->name, NULL, &slot) == -EEXIST);
    }
    layout_free(layout);
}

static void try_alloc_each(const struct gmsfs_ioc_alloc_each *alloc)
{
    if (payload_check_alloc_each(alloc))
        return;
    must(alloc->count > 0 && alloc->count <= GMSFS_ALLOC_EACH_MAX);
    for (uint32_t i = 0; i < alloc->count; i++) {
        const struct gmsfs_alloc_item *item = &alloc->items[i];
        must(item->size_bytes > 0);
        must(strlen(item->tag) < sizeof item->tag && strlen(item->name) < sizeof item->name);
    }
}

static void try_metadata(const struct gmsfs_ioc_metadata *metadata)
{
    struct layout_put put = {.slot = LAYOUT_UNBOUND, .serial = 1};
    const struct layout_entry *entry;
    struct layout *layout;

    if (payload_check_metadata(metadata, false)) {
        must(payload_check_metadata(metadata, true));
        return;
    }
    put.key = metadata->data;
    put.key_bytes = metadata->key_bytes;
    put.offset = metadata->offset;
    if (payload_check_metadata(metadata, true) == 0) {
        put.value = metadata->data + metadata->key_bytes;
        put.value_bytes = metadata->value_bytes;
    }
    must(put.key_bytes >= 1 && put.key_bytes <= GMSFS_KEY_MAX);
    must(put.key_bytes + put.value_bytes <= sizeof metadata->data);
    layout = layout_new();
    must(layout != NULL);
    if (layout_put(layout, &put) == 0) {
        entry = layout_find_entry(layout, put.key, put.key_bytes);
        must(entry && fuzz_same(entry->value, entry->value_bytes, put.value, put.value_bytes));
    }
    layout_free(layout);
}

static void try_acquire(const struct gmsfs_ioc_acquire *acquire)
{
    int both = payload_check_acquire(acquire, true, true);

    must(both <= 0 && both != -EBADF);
    must(payload_check_acquire(acquire, false, false) == (both ? both : -EBADF));
    must(payload_check_acquire(acquire, true, false) ==
         (!both && acquire->mode != GMSFS_MODE_RO ? -EBADF : both));
    must(payload_check_acquire(acquire, false, true) ==
         (!both && acquire->mode == GMSFS_MODE_RO ? -EBADF : both));
}

static void try_commit(const struct gmsfs_ioc_commit *commit)
{
    int error = payload_check_commit(commit);

    must(error == 0 || error == -EINVAL);
    must(error || !(commit->flags & GMSFS_COMMIT_STAY && commit->flags & GMSFS_COMMIT_SEAL));
}

/* Slots 0 and 2 to 500: more than a page. */
static struct layout *list_layout(void)
{
    static struct layout *layout;

    if (layout)
        return layout;
    layout = layout_new();
    must(layout != NULL);
    for (uint64_t serial = 1; serial <= 500; serial++)
        must(layout_add(layout, serial, NULL, serial % 2 ? "tag" : NULL, NULL) == 0);
    must(layout_remove(layout, 1, NULL) == 0);
    return layout;
}

static void check_listed(const struct gmsfs_ioc_list *asked, const struct gmsfs_ioc_list *list)
{
    const uint8_t *at = list->data;
    struct gmsfs_list_item item = {0};
    bool by_slot = asked->flags & GMSFS_LIST_BY_SLOT;

    must(list->allocations == 499 && list->bytes <= sizeof list->data);
    must(!asked->count || list->count <= asked->count);
    for (uint32_t i = 0; i < list->count; i++, at += item.item_bytes) {
        memcpy(&item, at, sizeof item);
        must(item.item_bytes >= sizeof item && item.item_bytes <= list->data + list->bytes - at);
        must((by_slot ? item.slot : item.rank) >= asked->first);
        must(item.slot == item.rank + (item.rank > 0));
    }
    must(at == list->data + list->bytes);
    must(list->more == (list->count ? item.rank < 498 : 0));
}

static void try_list(struct gmsfs_ioc_list *list, size_t room)
{
    static struct gmsfs_ioc_list asked;

    asked = *list;
    if (payload_check_list(list))
        return;
    if (list_pack(list_layout(), list, room) == 0)
        check_listed(&asked, list);
    else
        must(room < sizeof *list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static union payload payload;
    unsigned command, number;
    size_t known;
    uint8_t *out;
    int error;

    if (size < sizeof command)
        return 0;
    memcpy(&command, data, sizeof command);
    data += sizeof command;
    size -= sizeof command;
    number = payload_get_number(command);
    must(number <= 255);
    known = number < sizeof SIZES / sizeof SIZES[0] ? SIZES[number] : size / 2;
    out = malloc(known + 1); /* so that a step over `known` is found as a step over the end */
    must(out != NULL);
    out[known] = 0xa5;
    error = payload_decode(data, size, out, known);
    must(out[known] == 0xa5);
    check_decoded(data, size, out, known, error);
    if (!error) {
        memset(&payload, 0, sizeof payload);
        memcpy(payload.bytes, out, known < sizeof payload ? known : sizeof payload);
        try_acquire(&payload.acquire);
        try_alloc(&payload.alloc);
        try_alloc_each(&payload.alloc_each);
        try_commit(&payload.commit);
        try_metadata(&payload.metadata);
        must(payload_check_region(&payload.region) == 0 ||
             payload.region.flags > GMSFS_REGION_HOLD || payload.region.pad);
        /* The last, because it writes its answer into the argument. */
        try_list(&payload.list, size);
    }
    free(out);
    return 0;
}
