/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the layout in an image: which bytes open, its hash at other sizes, and its entries for a
 * store. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "image/image_layout.h"
#include "meta/layout.h"
#include "tap.h"

#define KEY_BYTES 200

static const char *why;

static void put(struct layout *layout, const char *key, size_t key_bytes, uint64_t slot,
                uint64_t offset, const char *value)
{
    const struct layout_put entry = {.key = key,
                                     .key_bytes = key_bytes,
                                     .slot = slot,
                                     .offset = offset,
                                     .value = value,
                                     .value_bytes = strlen(value),
                                     .serial = 1 + layout_count_entries(layout)};

    require(layout_put(layout, &entry) == 0);
}

/* Two allocations and four entries. */
static struct layout *example(uint64_t aligned_bytes)
{
    struct layout *layout = layout_new();
    char key[KEY_BYTES];
    uint64_t slot;

    require(layout != NULL);
    require(layout_add(layout, 1, NULL, "weights", &slot) == 0);
    require(layout_set_memory(layout, slot, 1, 5, aligned_bytes, false) == 0);
    require(layout_add(layout, 2, NULL, "", &slot) == 0);
    require(layout_set_memory(layout, slot, 2, 4097, 2 * aligned_bytes, false) == 0);
    memset(key, 'k', sizeof(key));
    put(layout, key, sizeof(key), 1, 4096, "long");
    put(layout, "a", 1, LAYOUT_UNBOUND, 0, "");
    put(layout, "nul\0in", 6, 0, 4, "\xff\xfe");
    put(layout, "31 bytes, the longest short key", 31, 0, 0, "x");
    return layout;
}

static uint8_t *bytes_of(struct layout *layout, size_t *size_bytes)
{
    uint8_t *bytes;

    require(layout_encode(layout, &bytes, size_bytes) == 0);
    layout_free(layout);
    return bytes;
}

static void open_example(struct image_layout *layout)
{
    size_t size_bytes;
    uint8_t *bytes = bytes_of(example(4096), &size_bytes);

    require(image_layout_open(bytes, size_bytes, layout, &why) == 0);
}

static void refuse(uint8_t *bytes, size_t size_bytes, const char *reason)
{
    struct image_layout layout;

    why = NULL;
    check_int(image_layout_open(bytes, size_bytes, &layout, &why), -EINVAL);
    check(why && strstr(why, reason));
    image_layout_close(&layout);
}

TAP_TEST(a_layout_that_a_store_commits_opens)
{
    struct image_layout_allocation allocation;
    struct image_layout_entry entry;
    struct image_layout layout;

    open_example(&layout);
    check_int(layout.allocation_count, 2);
    check_int(layout.entry_count, 4);
    image_layout_get(&layout, 0, &allocation);
    check_int(allocation.size_bytes, 5);
    check_int(allocation.aligned_bytes, 4096);
    check_bytes(allocation.tag, allocation.tag_bytes, "weights", 7);
    image_layout_entry(&layout, 1, &entry);
    check_bytes(entry.key, entry.key_bytes, "a", 1);
    check(entry.rank == UINT64_MAX);
    image_layout_entry(&layout, 3, &entry);
    check_bytes(entry.key, entry.key_bytes, "nul\0in", 6);
    check_int(entry.rank, 0);
    check_int(entry.offset_bytes, 4);
    check_int(entry.value_bytes, 2);
    image_layout_close(&layout);
}

TAP_TEST(a_layout_that_is_cut_or_not_canonical_does_not_open)
{
    static const uint8_t long_form[] = "\x83\xa1v\xcc\x01\xab"
                                       "allocations\x90\xa8metadata\x90";
    size_t size_bytes;
    uint8_t *bytes, *copy;

    bytes = bytes_of(example(4096), &size_bytes);
    for (size_t i = 0; i < size_bytes; i++) {
        copy = malloc(i + 1);
        require(copy != NULL);
        memcpy(copy, bytes, i);
        refuse(copy, i, "not a canonical layout");
    }
    free(bytes);
    bytes = malloc(sizeof(long_form) - 1);
    require(bytes != NULL);
    memcpy(bytes, long_form, sizeof(long_form) - 1);
    refuse(bytes, sizeof(long_form) - 1, "spelled");
    bytes = malloc(sizeof(long_form) - 1);
    require(bytes != NULL);
    memcpy(bytes, long_form, sizeof(long_form) - 1);
    bytes[6] = 'b';
    refuse(bytes, sizeof(long_form) - 1, "not a canonical layout");
}

TAP_TEST(a_layout_that_no_store_commits_does_not_open)
{
    struct layout *layout = example(4096);
    size_t size_bytes;
    uint8_t *bytes;

    put(layout, "behind", 7, 0, 4096, "");
    bytes = bytes_of(layout, &size_bytes);
    refuse(bytes, size_bytes, "behind");
}

TAP_TEST(the_hash_is_that_of_the_layout_at_those_sizes)
{
    const uint64_t same[] = {4096, 8192}, other[] = {8192, 16384}, small[] = {4, 8192};
    uint8_t hash[DIGEST_BYTES], want[DIGEST_BYTES];
    struct image_layout layout;
    size_t size_bytes;
    uint8_t *bytes;

    open_example(&layout);
    check_int(image_layout_hash(&layout, same, hash), 0);
    layout_hash(layout.bytes, layout.size_bytes, want);
    check_bytes(hash, sizeof(hash), want, sizeof(want));
    check_int(image_layout_hash(&layout, other, hash), 0);
    bytes = bytes_of(example(8192), &size_bytes);
    layout_hash(bytes, size_bytes, want);
    free(bytes);
    check_bytes(hash, sizeof(hash), want, sizeof(want));
    check_int(image_layout_hash(&layout, small, hash), -EINVAL);
    image_layout_close(&layout);
}

TAP_TEST(bulk_documents_of_any_size_hold_all_entries_in_order)
{
    struct image_layout layout;

    open_example(&layout);
    for (size_t most = 1; most < 400; most += 7) {
        size_t done = 0, count, size_bytes;
        uint8_t *bytes;
        while (image_layout_bulk(&layout, done, most, &bytes, &size_bytes, &count) == 0 && count) {
            struct layout_document *document;
            struct image_layout_entry want;
            struct layout_row row;
            uint64_t culprit;
            require(layout_document_decode(bytes, size_bytes, &document, &culprit) == 0);
            check(!layout_document_has_allocations(document));
            require(layout_document_count_rows(document) == count);
            for (size_t i = 0; i < count; i++) {
                layout_document_row(document, i, &row);
                image_layout_entry(&layout, done + i, &want);
                check_bytes(row.key, row.key_bytes, want.key, want.key_bytes);
                check(row.rank == want.rank && row.offset == want.offset_bytes);
                check_int(row.value_bytes, want.value_bytes);
            }
            layout_document_free(document);
            free(bytes);
            done += count;
        }
        check_int(done, layout.entry_count);
    }
    image_layout_close(&layout);
}
