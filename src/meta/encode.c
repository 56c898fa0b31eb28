/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical encoding: msgpack-c writes every number and length in its shortest form. */
#include "layout_internal.h"

#include "base/digest.h"

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

static int pack_allocation(msgpack_packer *packer, uint64_t size_bytes, uint64_t aligned_bytes,
                           const char *tag, size_t tag_bytes)
{
    return msgpack_pack_array(packer, 3) | msgpack_pack_uint64(packer, size_bytes) |
           msgpack_pack_uint64(packer, aligned_bytes) | pack_text(packer, tag, tag_bytes);
}

static int pack_head(msgpack_packer *packer, size_t allocation_count)
{
    return msgpack_pack_map(packer, 3) | pack_text(packer, "v", 1) |
           msgpack_pack_uint64(packer, 1) |
           pack_text(packer, "allocations", strlen("allocations")) |
           msgpack_pack_array(packer, allocation_count);
}

static int pack_rows_head(msgpack_packer *packer, size_t row_count)
{
    return pack_text(packer, "metadata", strlen("metadata")) |
           msgpack_pack_array(packer, row_count);
}

static int pack_row(msgpack_packer *packer, const struct layout_row *row)
{
    int failed = msgpack_pack_array(packer, 4);

    failed |= pack_text(packer, row->key, row->key_bytes);
    if (row->rank != LAYOUT_UNBOUND)
        failed |= msgpack_pack_uint64(packer, row->rank);
    else
        failed |= msgpack_pack_nil(packer);
    failed |= msgpack_pack_uint64(packer, row->offset);
    failed |= msgpack_pack_bin(packer, row->value_bytes);
    failed |= msgpack_pack_bin_body(packer, row->value, row->value_bytes);
    return failed;
}

static int pack_entry(msgpack_packer *packer, const struct layout *layout,
                      const struct layout_entry *entry)
{
    struct layout_row row = {.key = entry->key,
                             .key_bytes = entry->key_bytes,
                             .rank = LAYOUT_UNBOUND,
                             .offset = entry->offset,
                             .value = entry->value,
                             .value_bytes = entry->value_bytes};
    size_t rank = 0;

    if (entry->slot != LAYOUT_UNBOUND && layout_slot(layout, entry->slot, &rank))
        row.rank = rank;
    return pack_row(packer, &row);
}

/* as_contents: with each aligned size replaced by the size. */
static int pack_layout(msgpack_packer *packer, const struct layout *layout, bool as_contents)
{
    int failed = pack_head(packer, layout->allocation_count);
    const struct layout_entry *entry;
    struct layout_cursor cursor;

    for (size_t i = 0; i < layout->allocation_count && !failed; i++) {
        const struct layout_allocation *at = layout->by_slot[i];
        failed |= pack_allocation(packer, at->size_bytes,
                                  as_contents ? at->size_bytes : at->aligned_bytes, at->tag,
                                  strlen(at->tag));
    }
    failed |= pack_rows_head(packer, layout->entry_count);
    layout_cursor_first(&cursor, layout);
    while (!failed && (entry = layout_cursor_next(&cursor)))
        failed |= pack_entry(packer, layout, entry);
    return failed;
}

int layout_encode(const struct layout *layout, uint8_t **bytes, size_t *size)
{
    struct output output = {.size = layout_encoding_bytes(layout)};
    msgpack_packer packer;

    output.bytes = malloc(output.size);
    if (!output.bytes)
        return -ENOMEM;
    msgpack_packer_init(&packer, &output, output_write);
    if (pack_layout(&packer, layout, false)) {
        free(output.bytes);
        return -ENOMEM;
    }
    uint8_t *shrunk = realloc(output.bytes, output.used);
    if (shrunk)
        output.bytes = shrunk;
    *bytes = output.bytes;
    *size = output.used;
    return 0;
}

void layout_hash(const void *bytes, size_t size, uint8_t hash[16])
{
    digest_make(bytes, size, hash);
}

/* ---- contents ------------------------------------------------------------------------------ */

/* msgpack's write function: sums the encoding without keeping it. */
static int sum_write(void *data, const char *bytes, size_t size)
{
    return XXH3_128bits_update(data, bytes, size) == XXH_OK ? 0 : -1;
}

static int pack_document(msgpack_packer *packer, const struct layout_document *document)
{
    size_t count = layout_document_count_allocations(document);
    uint64_t size_bytes, aligned_bytes;
    int failed = pack_head(packer, count);
    struct layout_row row;
    const char *tag;
    size_t tag_bytes;

    for (size_t i = 0; i < count && !failed; i++) {
        layout_document_allocation(document, i, &size_bytes, &aligned_bytes, &tag, &tag_bytes);
        failed |= pack_allocation(packer, size_bytes, size_bytes, tag, tag_bytes);
    }
    count = layout_document_count_rows(document);
    failed |= pack_rows_head(packer, count);
    for (size_t i = 0; i < count && !failed; i++) {
        layout_document_row(document, i, &row);
        failed |= pack_row(packer, &row);
    }
    return failed;
}

/* Sums one of the two; the other is NULL. */
static int contents_hash(const struct layout *layout, const struct layout_document *document,
                         uint8_t hash[16])
{
    XXH3_state_t *state = XXH3_createState();
    msgpack_packer packer;

    if (!state)
        return -ENOMEM;
    XXH3_128bits_reset(state);
    msgpack_packer_init(&packer, state, sum_write);
    int failed = layout ? pack_layout(&packer, layout, true) : pack_document(&packer, document);
    digest_put(XXH3_128bits_digest(state), hash);
    XXH3_freeState(state);
    return failed ? -ENOMEM : 0;
}

int layout_contents_hash(const struct layout *layout, uint8_t hash[16])
{
    return contents_hash(layout, NULL, hash);
}

int layout_document_contents_hash(const struct layout_document *document, uint8_t hash[16])
{
    return contents_hash(NULL, document, hash);
}
