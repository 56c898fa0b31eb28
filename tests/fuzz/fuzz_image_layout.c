/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file `layout` of an image: one that opens is canonical, has the hash of its bytes, and its
 * entries come out as documents that the daemon accepts.
 */
#include "fuzz.h"

#include "image/image_layout.h"
#include "meta/layout.h"

#include <errno.h>

static void check_hash(const struct image_layout *layout, const uint8_t *data, size_t size)
{
    uint64_t *aligned = calloc(layout->allocation_count + 1, sizeof *aligned);
    uint8_t hash[DIGEST_BYTES], want[DIGEST_BYTES];

    must(aligned != NULL);
    for (size_t i = 0; i < layout->allocation_count; i++) {
        struct image_layout_allocation allocation;
        image_layout_get(layout, i, &allocation);
        must(allocation.aligned_bytes >= allocation.size_bytes);
        aligned[i] = allocation.aligned_bytes;
    }
    must(image_layout_hash(layout, aligned, hash) == 0);
    digest_make(data, size, want);
    must(fuzz_same(hash, sizeof hash, want, sizeof want));
    for (size_t i = 0; i < layout->allocation_count; i++) {
        struct image_layout_allocation allocation;
        image_layout_get(layout, i, &allocation);
        aligned[i] = allocation.size_bytes;
    }
    must(image_layout_hash(layout, aligned, hash) == 0);
    must(layout_document_contents_hash(layout->document, want) == 0);
    must(fuzz_same(hash, sizeof hash, want, sizeof want));
    free(aligned);
}

static void check_bulk(const struct image_layout *layout, size_t most)
{
    size_t done = 0, count, size;
    uint8_t *bytes;

    while (image_layout_bulk(layout, done, most, &bytes, &size, &count) == 0 && count) {
        struct layout_document *document;
        struct layout_row row;
        uint64_t culprit;
        must(layout_document_decode(bytes, size, &document, &culprit) == 0);
        must(!layout_document_has_allocations(document));
        must(layout_document_count_rows(document) == count);
        for (size_t i = 0; i < count; i++) {
            struct image_layout_entry entry;
            layout_document_row(document, i, &row);
            image_layout_entry(layout, done + i, &entry);
            must(fuzz_same(row.key, row.key_bytes, entry.key, entry.key_bytes));
            must(row.rank == entry.rank && row.offset == entry.offset_bytes);
            must(row.value_bytes == entry.value_bytes);
        }
        layout_document_free(document);
        free(bytes);
        done += count;
    }
    must(done == layout->entry_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct image_layout layout;
    const char *why = NULL;
    uint8_t *bytes = malloc(size ? size : 1); /* the reader takes it */

    must(bytes != NULL);
    if (size)
        memcpy(bytes, data, size);
    int r = image_layout_open(bytes, size, &layout, &why);
    must(r == 0 || (r == -EINVAL && why && fuzz_is_line(why)));
    if (r == 0) {
        check_hash(&layout, data, size);
        check_bulk(&layout, 1);
        check_bulk(&layout, 64);
        check_bulk(&layout, SIZE_MAX);
    }
    image_layout_close(&layout);
    return 0;
}
