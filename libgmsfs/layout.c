/* SPDX-License-Identifier: Apache-2.0 */
#include "layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gfs_msgpack.h"
#include "internal.h"

#define LAYOUT_VERSION 1
#define LAYOUT_TRIES   8 /* reads that a writer may spoil one after the other */

struct layout_owned {
    struct gmsfs_layout layout;
    uint8_t *bytes;
    char *text; /* keys and tags with their NULs */
};

/* First pass (text NULL): validates and counts. Second pass: fills. */
struct layout_pass {
    struct gmsfs_layout *layout;
    char *text;
    size_t text_bytes;
};

static const char *layout_keep_text(struct layout_pass *pass, const char *text, size_t size_bytes)
{
    char *place = pass->text ? pass->text + pass->text_bytes : NULL;

    if (place) {
        memcpy(place, text, size_bytes);
        place[size_bytes] = 0;
    }
    pass->text_bytes += size_bytes + 1;
    return place;
}

static int layout_read_name(struct gfs_reader *reader, const char *name)
{
    const char *text;
    size_t size_bytes;

    if (gfs_read_text(reader, &text, &size_bytes) || size_bytes != strlen(name) ||
        memcmp(text, name, size_bytes) != 0)
        return -EPROTO;
    return 0;
}

static int layout_read_allocation(struct layout_pass *pass, struct gfs_reader *reader, size_t index)
{
    struct gmsfs_layout_allocation allocation;
    const char *tag;
    size_t tag_bytes;
    uint32_t fields;

    if (gfs_read_array(reader, &fields) || fields != 3 ||
        gfs_read_uint(reader, &allocation.size_bytes) ||
        gfs_read_uint(reader, &allocation.aligned_bytes) || gfs_read_text(reader, &tag, &tag_bytes))
        return -EPROTO;
    allocation.tag = layout_keep_text(pass, tag, tag_bytes);
    if (pass->text)
        pass->layout->allocations[index] = allocation;
    return 0;
}

static int layout_read_entry(struct layout_pass *pass, struct gfs_reader *reader, size_t index)
{
    struct gmsfs_layout_entry entry = {.rank = GMSFS_SLOT_NONE};
    const uint8_t *value;
    const char *key;
    uint32_t fields;

    if (gfs_read_array(reader, &fields) || fields != 4 ||
        gfs_read_text(reader, &key, &entry.key_bytes))
        return -EPROTO;
    if (!gfs_read_nil(reader) &&
        (gfs_read_uint(reader, &entry.rank) || entry.rank >= pass->layout->allocation_count))
        return -EPROTO;
    if (gfs_read_uint(reader, &entry.offset) || gfs_read_binary(reader, &value, &entry.value_bytes))
        return -EPROTO;
    entry.value = value;
    entry.key = layout_keep_text(pass, key, entry.key_bytes);
    if (pass->text)
        pass->layout->entries[index] = entry;
    return 0;
}

static int layout_run_pass(struct layout_pass *pass, struct gfs_reader reader)
{
    uint32_t fields, count;
    uint64_t version;

    if (gfs_read_map(&reader, &fields) || fields != 3 || layout_read_name(&reader, "v") ||
        gfs_read_uint(&reader, &version) || version != LAYOUT_VERSION ||
        layout_read_name(&reader, "allocations") || gfs_read_array(&reader, &count))
        return -EPROTO;
    pass->layout->allocation_count = count;
    for (uint32_t i = 0; i < count; i++)
        if (layout_read_allocation(pass, &reader, i))
            return -EPROTO;
    if (layout_read_name(&reader, "metadata") || gfs_read_array(&reader, &count))
        return -EPROTO;
    pass->layout->entry_count = count;
    for (uint32_t i = 0; i < count; i++)
        if (layout_read_entry(pass, &reader, i))
            return -EPROTO;
    return reader.at == reader.end ? 0 : -EPROTO;
}

int gfs_layout_decode(uint8_t *bytes, size_t size_bytes, struct gmsfs_layout **out)
{
    struct layout_owned *owned = calloc(1, sizeof *owned);
    struct gfs_reader reader = {.at = bytes, .end = bytes + size_bytes};
    struct layout_pass pass = {0};
    int r;

    if (!owned) {
        free(bytes);
        return -ENOMEM;
    }
    owned->bytes = bytes;
    pass.layout = &owned->layout;
    r = layout_run_pass(&pass, reader);
    if (r)
        goto out;
    owned->text = malloc(pass.text_bytes + 1);
    owned->layout.allocations =
        calloc(owned->layout.allocation_count + 1, sizeof *owned->layout.allocations);
    owned->layout.entries = calloc(owned->layout.entry_count + 1, sizeof *owned->layout.entries);
    r = owned->text && owned->layout.allocations && owned->layout.entries ? 0 : -ENOMEM;
    if (r)
        goto out;
    pass.text = owned->text;
    pass.text_bytes = 0;
    r = layout_run_pass(&pass, reader);
out:
    if (r)
        gmsfs_free_layout(&owned->layout);
    else
        *out = &owned->layout;
    return r;
}

void gmsfs_free_layout(struct gmsfs_layout *layout)
{
    struct layout_owned *owned = (struct layout_owned *)layout; /* its first member */

    if (!owned)
        return;
    free(owned->layout.allocations);
    free(owned->layout.entries);
    free(owned->text);
    free(owned->bytes);
    free(owned);
}

/* The bytes and the hash belong together if nothing was published in between. */
static int layout_read_once(struct gmsfs *handle, struct gmsfs_layout **out)
{
    struct gmsfs_ioc_info before = {0}, after = {0};
    uint8_t *bytes = NULL;
    size_t size_bytes = 0;
    int r = gfs_ioctl(handle, GMSFS_IOC_INFO, &before);

    if (!r && (!before.committed || before.state == GMSFS_STATE_RW))
        return -ENODATA;
    if (!r)
        r = gfs_file_read(handle, "layout", GFS_LAYOUT_BYTES_MAX, &bytes, &size_bytes);
    if (r == -ENOENT)
        r = -ESTALE;
    if (!r)
        r = gfs_ioctl(handle, GMSFS_IOC_INFO, &after);
    if (!r && (size_bytes == 0 || before.generation != after.generation ||
               memcmp(before.layout_hash, after.layout_hash, 16) != 0))
        r = -EAGAIN;
    if (r) {
        free(bytes);
        return r;
    }
    r = gfs_layout_decode(bytes, size_bytes, out);
    if (!r)
        gfs_hex_format(before.layout_hash, (*out)->hash);
    return r;
}

int gfs_layout_read(struct gmsfs *handle, struct gmsfs_layout **layout)
{
    int r = -EAGAIN;

    for (int i = 0; i < LAYOUT_TRIES && r == -EAGAIN; i++)
        r = layout_read_once(handle, layout);
    return r == -EAGAIN ? -ENODATA : r;
}

int gmsfs_read_layout(gmsfs_t *handle, struct gmsfs_layout **layout)
{
    int r;

    if (!layout)
        return -EINVAL;
    r = gfs_enter(handle);
    if (r)
        return r;
    r = gfs_layout_read(handle, layout);
    gfs_leave(handle);
    return r;
}
