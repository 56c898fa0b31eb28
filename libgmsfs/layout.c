/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

#include "base/hex.h"
#include "base/scope.h"
#include "pack/unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "large.h"

#define LAYOUT_VERSION 1
#define LAYOUT_TRIES   8 /* reads that a writer may spoil one after the other */

#define ALLOCATION_LEAST_BYTES 4 /* array, two numbers, empty str */
#define ENTRY_LEAST_BYTES      7 /* array, str of one byte, nil, number, empty bin */

struct layout_owned {
    struct gmsfs_layout layout;
    uint8_t *bytes; /* of the document: keys, tags and values lie in it */
};

/* Moves a text over its own head, which has a byte at least, and so makes room for its NUL. */
static const char *layout_end_text(const char *text, size_t size_bytes)
{
    char *place = (char *)(uintptr_t)text - 1;

    memmove(place, text, size_bytes);
    place[size_bytes] = 0;
    return place;
}

static int layout_read_name(struct unpack *unpack, const char *name)
{
    const char *text;
    size_t size_bytes;

    if (unpack_str(unpack, &text, &size_bytes) || size_bytes != strlen(name) ||
        memcmp(text, name, size_bytes) != 0)
        return -EPROTO;
    return 0;
}

static int layout_read_allocation(struct unpack *unpack, struct gmsfs_layout_allocation *allocation)
{
    const char *tag;
    size_t tag_bytes;
    uint32_t fields;

    if (unpack_array(unpack, &fields) || fields != 3 ||
        unpack_uint(unpack, &allocation->size_bytes) ||
        unpack_uint(unpack, &allocation->aligned_bytes) || unpack_str(unpack, &tag, &tag_bytes))
        return -EPROTO;
    allocation->tag = layout_end_text(tag, tag_bytes);
    return 0;
}

static int layout_read_entry(struct unpack *unpack, size_t ranks, struct gmsfs_layout_entry *entry)
{
    const uint8_t *value;
    const char *key;
    uint32_t fields;

    if (unpack_array(unpack, &fields) || fields != 4 || unpack_str(unpack, &key, &entry->key_bytes))
        return -EPROTO;
    entry->rank = GMSFS_SLOT_NONE;
    if (!unpack_nil(unpack) && (unpack_uint(unpack, &entry->rank) || entry->rank >= ranks))
        return -EPROTO;
    if (unpack_uint(unpack, &entry->offset) || unpack_bin(unpack, &value, &entry->value_bytes))
        return -EPROTO;
    entry->value = value;
    entry->key = layout_end_text(key, entry->key_bytes);
    return 0;
}

/* An array, and room for its items, if the rest can really hold so many. */
static int layout_read_count(struct unpack *unpack, size_t least_bytes, size_t item_bytes,
                             size_t *count, void **items)
{
    uint32_t claimed;

    *items = NULL;
    if (unpack_array(unpack, &claimed) || claimed > unpack_left(unpack) / least_bytes)
        return -EPROTO;
    *items = gfs_large_alloc(((size_t)claimed + 1) * item_bytes);
    *count = *items ? claimed : 0;
    return *items ? 0 : -ENOMEM;
}

static int layout_read_allocations(struct unpack *unpack, struct gmsfs_layout *layout)
{
    void *items;
    int error = layout_read_count(unpack, ALLOCATION_LEAST_BYTES, sizeof *layout->allocations,
                                  &layout->allocation_count, &items);

    layout->allocations = items;
    for (size_t i = 0; !error && i < layout->allocation_count; i++)
        error = layout_read_allocation(unpack, layout->allocations + i);
    return error;
}

static int layout_read_entries(struct unpack *unpack, struct gmsfs_layout *layout)
{
    void *items;
    int error = layout_read_count(unpack, ENTRY_LEAST_BYTES, sizeof *layout->entries,
                                  &layout->entry_count, &items);

    layout->entries = items;
    for (size_t i = 0; !error && i < layout->entry_count; i++)
        error = layout_read_entry(unpack, layout->allocation_count, layout->entries + i);
    return error;
}

static int layout_read_document(struct unpack *unpack, struct gmsfs_layout *layout)
{
    uint32_t fields;
    uint64_t version;

    if (unpack_map(unpack, &fields) || fields != 3 || layout_read_name(unpack, "v") ||
        unpack_uint(unpack, &version) || version != LAYOUT_VERSION ||
        layout_read_name(unpack, "allocations"))
        return -EPROTO;
    int error = layout_read_allocations(unpack, layout);
    if (!error)
        error = layout_read_name(unpack, "metadata");
    if (!error)
        error = layout_read_entries(unpack, layout);
    if (!error && unpack->at != unpack->end)
        error = -EPROTO;
    return error;
}

int gfs_layout_decode(uint8_t *bytes, size_t size_bytes, struct gmsfs_layout **out)
{
    struct layout_owned *owned = calloc(1, sizeof *owned);
    struct unpack unpack = {.at = bytes, .end = bytes + size_bytes};

    if (!owned) {
        free(bytes);
        return -ENOMEM;
    }
    owned->bytes = bytes;
    int error = layout_read_document(&unpack, &owned->layout);
    if (error)
        gmsfs_free_layout(&owned->layout);
    else
        *out = &owned->layout;
    return error;
}

void gmsfs_free_layout(struct gmsfs_layout *layout)
{
    SCOPED_FREE struct layout_owned *owned = (struct layout_owned *)layout; /* its first member */

    if (!owned)
        return;
    free(owned->layout.allocations);
    free(owned->layout.entries);
    free(owned->bytes);
}

/* The bytes and the hash belong together if nothing was published in between. */
static int layout_read_once(struct gmsfs_store *handle, struct gmsfs_layout **out)
{
    struct gmsfs_ioc_info before = {0}, after = {0};
    uint8_t *bytes = NULL;
    size_t size_bytes = 0;
    int error = gfs_ioctl(handle, GMSFS_IOC_INFO, &before);

    if (!error && before.layout_bytes == 0)
        return -ENODATA;
    if (!error)
        error = gfs_file_read(handle, "layout", before.layout_bytes, GFS_LAYOUT_BYTES_MAX, &bytes,
                              &size_bytes);
    if (error == -ENOENT)
        error = -ESTALE;
    if (!error)
        error = gfs_ioctl(handle, GMSFS_IOC_INFO, &after);
    if (!error && (size_bytes == 0 || before.generation != after.generation ||
                   memcmp(before.layout_hash, after.layout_hash, 16) != 0))
        error = -EAGAIN;
    if (error) {
        free(bytes);
        return error;
    }
    error = gfs_layout_decode(bytes, size_bytes, out);
    if (!error)
        hex_format(before.layout_hash, sizeof before.layout_hash, (*out)->hash);
    return error;
}

int gfs_layout_read(struct gmsfs_store *handle, struct gmsfs_layout **layout)
{
    int error = -EAGAIN;

    for (int i = 0; i < LAYOUT_TRIES && error == -EAGAIN; i++)
        error = layout_read_once(handle, layout);
    return error == -EAGAIN ? -ENODATA : error;
}

/* As a program knows them that has another size of the items. */
static int layout_give(struct gmsfs_layout *layout, size_t allocation_bytes, size_t entry_bytes)
{
    void *allocations = layout->allocations, *entries = layout->entries;
    int error = gfs_give_list(&allocations, layout->allocation_count, allocation_bytes,
                              sizeof *layout->allocations);

    if (!error)
        error = gfs_give_list(&entries, layout->entry_count, entry_bytes, sizeof *layout->entries);
    layout->allocations = allocations;
    layout->entries = entries;
    return error;
}

int(gmsfs_read_layout)(gmsfs_t *handle, struct gmsfs_layout **out, size_t allocation_bytes,
                       size_t entry_bytes)
{
    struct gmsfs_layout *layout = NULL;
    int error = out ? gfs_enter(handle) : -EINVAL;

    if (error)
        return error;
    error = gfs_layout_read(handle, &layout);
    gfs_leave(handle);
    if (!error)
        error = layout_give(layout, allocation_bytes, entry_bytes);
    if (error)
        gmsfs_free_layout(layout);
    else
        *out = layout;
    return error;
}
