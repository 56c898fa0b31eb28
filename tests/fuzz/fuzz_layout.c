/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of the file `layout`: the daemon's decoder, its canonical encoder and the library's
 * decoder have to agree.
 */
#include "fuzz.h"

#include "document_check.h"
#include "gmsfs.h"
#include "layout.h" /* the library's */

static struct gmsfs_layout *decode_for_clients(const uint8_t *data, size_t size)
{
    struct gmsfs_layout *layout = NULL;
    uint8_t *bytes = malloc(size ? size : 1); /* the decoder takes it */

    must(bytes != NULL);
    if (size)
        memcpy(bytes, data, size);
    int error = gfs_layout_decode(bytes, size, &layout);
    must(error == (layout ? 0 : -EPROTO));
    return layout;
}

/* Checks the library by its own rules: unlike the daemon it does not check keys, tags and sizes. */
static void check_clients_own(const uint8_t *data, size_t size)
{
    struct gmsfs_layout *layout = decode_for_clients(data, size);

    if (!layout)
        return;
    must(layout->allocation_count < size && layout->entry_count < size);
    for (size_t i = 0; i < layout->allocation_count; i++)
        must(strlen(layout->allocations[i].tag) <= size);
    for (size_t i = 0; i < layout->entry_count; i++) {
        const struct gmsfs_layout_entry *entry = &layout->entries[i];
        const uint8_t *value = entry->value;
        must(entry->key[entry->key_bytes] == '\0' && entry->value_bytes <= size);
        must(entry->rank == GMSFS_SLOT_NONE || entry->rank < layout->allocation_count);
        /* Touches the ends of the value. */
        must(entry->value_bytes == 0 || value[0] + value[entry->value_bytes - 1] >= 0);
    }
    gmsfs_free_layout(layout);
}

static struct layout *build(const struct layout_document *document)
{
    struct layout *layout = layout_new();

    must(layout != NULL);
    for (size_t i = 0; i < layout_document_count_allocations(document); i++) {
        uint64_t size_bytes, aligned_bytes, slot = 0;
        size_t tag_bytes;
        const char *tag;

        layout_document_allocation(document, i, &size_bytes, &aligned_bytes, &tag, &tag_bytes);
        char *text = fuzz_text((const uint8_t *)tag, tag_bytes);
        must(layout_add(layout, i + 1, NULL, text, &slot) == 0 && slot == i);
        must(layout_set_memory(layout, slot, i + 1, size_bytes, aligned_bytes, false) == 0);
        free(text);
    }
    put_rows(layout, document);
    return layout;
}

static void check_for_clients(const struct layout *layout, const uint8_t *bytes, size_t size)
{
    struct gmsfs_layout *seen = decode_for_clients(bytes, size);
    struct layout_cursor cursor;

    must(seen && seen->allocation_count == layout_count_allocations(layout));
    must(seen->entry_count == layout_count_entries(layout));
    for (size_t i = 0; i < seen->allocation_count; i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);
        must(seen->allocations[i].size_bytes == allocation->size_bytes);
        must(seen->allocations[i].aligned_bytes == allocation->aligned_bytes);
        must(strcmp(seen->allocations[i].tag, allocation->tag) == 0);
    }
    layout_cursor_first(&cursor, layout);
    for (size_t i = 0; i < seen->entry_count; i++) {
        const struct layout_entry *entry = layout_cursor_next(&cursor);
        const struct gmsfs_layout_entry *other = &seen->entries[i];
        must(fuzz_same(other->key, other->key_bytes, entry->key, entry->key_bytes));
        must(fuzz_same(other->value, other->value_bytes, entry->value, entry->value_bytes));
        must(other->rank == entry->slot && other->offset == entry->offset);
    }
    gmsfs_free_layout(seen);
}

/* Canonical bytes stay unchanged: encoding a decoded encoding changes nothing. */
static void check_canonical(const uint8_t *bytes, size_t size)
{
    struct layout_document *document = decode_checked(bytes, size);
    struct layout *layout;
    uint8_t *again;
    size_t again_size;

    must(document && layout_document_has_allocations(document));
    layout = build(document);
    must(layout_encode(layout, &again, &again_size) == 0);
    must(fuzz_same(again, again_size, bytes, size));
    free(again);
    layout_free(layout);
    layout_document_free(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct layout_document *document = decode_checked(data, size);
    struct layout *layout;
    uint8_t *bytes;
    size_t bytes_size;

    check_clients_own(data, size);
    if (!document)
        return 0;
    check_again(document, size);
    layout = build(document);
    must(layout_encode(layout, &bytes, &bytes_size) == 0 && bytes_size <= size + 13);
    check_for_clients(layout, bytes, bytes_size);
    check_canonical(bytes, bytes_size);
    free(bytes);
    layout_free(layout);
    layout_document_free(document);
    return 0;
}
