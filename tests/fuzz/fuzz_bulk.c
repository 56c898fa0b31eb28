/* SPDX-License-Identifier: Apache-2.0 */
/* A bulk document of metadata, as clients write it to `ctl`, and applying it to a layout. */
#include "fuzz.h"

#include "document_check.h"

#define SLOTS 3u

static void check_put(const struct layout *layout, const struct layout_document *document)
{
    size_t count = layout_document_count_rows(document);

    for (size_t i = 0; i < count; i++) {
        struct layout_row row, later;
        bool last = true;

        layout_document_row(document, i, &row);
        if (row.rank != LAYOUT_UNBOUND && row.rank >= SLOTS)
            continue; /* for an allocation that is gone: skipped */
        for (size_t k = i + 1; k < count && k < i + 64; k++) {
            layout_document_row(document, k, &later);
            last &= !fuzz_same(row.key, row.key_bytes, later.key, later.key_bytes);
        }
        const struct layout_entry *entry = layout_find_entry(layout, row.key, row.key_bytes);
        must(entry != NULL);
        if (!last || count > 64)
            continue;
        must(entry->slot == row.rank && entry->offset == row.offset);
        must(fuzz_same(entry->value, entry->value_bytes, row.value, row.value_bytes));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct layout_document *document = decode_checked(data, size);
    struct layout *layout;

    if (!document)
        return 0;
    check_again(document, size);
    layout = layout_new();
    must(layout != NULL);
    for (uint64_t i = 0; i < SLOTS; i++)
        must(layout_add(layout, i + 1, NULL, NULL, NULL) == 0);
    put_rows(layout, document);
    check_put(layout, document);
    layout_free(layout);
    layout_document_free(document);
    return 0;
}
