/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical encoding: msgpack-c writes every number and length in its shortest form. */
#include "layout_internal.h"

#include "base/xxh3.h"

#include <errno.h>
#include <msgpack.h>
#include <stdlib.h>
#include <string.h>

/* Most bytes of each, without its texts and values. */
#define HEAD_BYTES       64u /* the map, its keys, "v":1, two array heads */
#define ALLOCATION_BYTES 24u /* array 1, two numbers 9 each, str head 2 */
#define ENTRY_BYTES      32u /* array 1, str head 2, two numbers 9 each, bin head 5 */

struct output {
    uint8_t *bytes;
    size_t used;
    size_t size;
};

/* msgpack's write function: the room was counted before, so too little room is an error. */
static int output_write(void *data, const char *bytes, size_t size)
{
    struct output *output = data;

    if (size > output->size - output->used)
        return -1;
    memcpy(output->bytes + output->used, bytes, size);
    output->used += size;
    return 0;
}

size_t layout_encoding_bytes(const struct layout *layout)
{
    return HEAD_BYTES + (size_t)layout->entry_bytes + layout->entry_count * ENTRY_BYTES +
           layout->allocation_count * ALLOCATION_BYTES + (size_t)layout->text_bytes;
}

static int pack_text(msgpack_packer *packer, const char *text, size_t bytes)
{
    return msgpack_pack_str(packer, bytes) | msgpack_pack_str_body(packer, text, bytes);
}

static int pack_allocations(msgpack_packer *packer, const struct layout *layout)
{
    int failed = pack_text(packer, "allocations", strlen("allocations"));

    failed |= msgpack_pack_array(packer, layout->allocation_count);
    for (size_t i = 0; i < layout->allocation_count && !failed; i++) {
        const struct layout_allocation *allocation = layout->by_slot[i];
        failed |= msgpack_pack_array(packer, 3);
        failed |= msgpack_pack_uint64(packer, allocation->size_bytes);
        failed |= msgpack_pack_uint64(packer, allocation->aligned_bytes);
        failed |= pack_text(packer, allocation->tag, strlen(allocation->tag));
    }
    return failed;
}

static int pack_entry(msgpack_packer *packer, const struct layout *layout,
                      const struct layout_entry *entry)
{
    int failed = msgpack_pack_array(packer, 4);
    size_t rank = 0;

    failed |= pack_text(packer, entry->key, entry->key_bytes);
    if (entry->slot != LAYOUT_UNBOUND && layout_slot(layout, entry->slot, &rank))
        failed |= msgpack_pack_uint64(packer, rank);
    else
        failed |= msgpack_pack_nil(packer);
    failed |= msgpack_pack_uint64(packer, entry->offset);
    failed |= msgpack_pack_bin(packer, entry->value_bytes);
    failed |= msgpack_pack_bin_body(packer, entry->value, entry->value_bytes);
    return failed;
}

static int pack_layout(msgpack_packer *packer, const struct layout *layout)
{
    int failed = msgpack_pack_map(packer, 3);
    const struct layout_entry *entry;
    struct layout_cursor cursor;

    failed |= pack_text(packer, "v", 1);
    failed |= msgpack_pack_uint64(packer, 1);
    failed |= pack_allocations(packer, layout);
    failed |= pack_text(packer, "metadata", strlen("metadata"));
    failed |= msgpack_pack_array(packer, layout->entry_count);
    layout_cursor_first(&cursor, layout);
    while (!failed && (entry = layout_cursor_next(&cursor)))
        failed |= pack_entry(packer, layout, entry);
    return failed;
}

int layout_encode(const struct layout *layout, uint8_t **bytes, size_t *size)
{
    struct output output = {.size = layout_encoding_bytes(layout)};
    msgpack_packer packer;
    uint8_t *shrunk;

    output.bytes = malloc(output.size);
    if (!output.bytes)
        return -ENOMEM;
    msgpack_packer_init(&packer, &output, output_write);
    if (pack_layout(&packer, layout)) {
        free(output.bytes);
        return -ENOMEM;
    }
    shrunk = realloc(output.bytes, output.used);
    if (shrunk)
        output.bytes = shrunk;
    *bytes = output.bytes;
    *size = output.used;
    return 0;
}

void layout_hash(const void *bytes, size_t size, uint8_t hash[16])
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size));
    memcpy(hash, canonical.digest, sizeof canonical.digest);
}
