/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the plan of a pull: from the texts of a store, as other nodes send them. */
#include "image/image_pieces.h"

#include "meta/layout.h"

#include "tap.h"

#include <errno.h>
#include <stdlib.h>

#define SIZE_A ((16u << 20) + 7u)
#define SIZE_B 100u

static struct image_manifest manifest;
static struct image_layout layout;
static const char *why;

/* The texts of a store. */
static struct {
    char *text;
    size_t text_bytes;
    uint8_t *layout;
    size_t layout_bytes;
    uint8_t id[DIGEST_BYTES];
} store;

static void make_store(uint64_t size_b, uint64_t aligned_a)
{
    struct layout *made = layout_new();
    struct pieces pieces;
    uint8_t hash[DIGEST_BYTES];
    uint64_t slot;

    require(made != NULL);
    require(layout_add(made, 1, NULL, "tag", &slot) == 0);
    require(layout_set_memory(made, slot, 1, SIZE_A, aligned_a, false) == 0);
    require(layout_add(made, 2, NULL, "", &slot) == 0);
    require(layout_set_memory(made, slot, 2, size_b, 4096, false) == 0);
    require(layout_encode(made, &store.layout, &store.layout_bytes) == 0);
    require(pieces_of_layout(made, &pieces) == 0);
    for (size_t i = 0; i < pieces.piece_count; i++)
        memset(pieces.sums[i], (int)i + 1, DIGEST_BYTES);
    require(layout_contents_hash(made, hash) == 0);
    require(pieces_make_id(hash, (const uint8_t(*)[DIGEST_BYTES])pieces.sums, pieces.piece_count,
                           pieces.id) == 0);
    memcpy(store.id, pieces.id, DIGEST_BYTES);
    require(pieces_encode(&pieces, &store.text, &store.text_bytes) == 0);
    pieces_free(&pieces);
    layout_free(made);
}

static int open_store(void)
{
    int error = image_pieces_open(store.id, store.text, store.text_bytes, store.layout,
                                  store.layout_bytes, &manifest, &layout, &why);

    store.layout = NULL;
    free(store.text);
    return error;
}

static void close_store(void)
{
    image_manifest_free(&manifest);
    image_layout_close(&layout);
}

TAP_TEST(allocations_are_files_and_pieces_are_theirs)
{
    make_store(SIZE_B, 32u << 20);
    check_int(open_store(), 0);
    check_int(manifest.allocation_count, 2);
    check_int(manifest.file_count, 2);
    check_int(manifest.piece_count, 3);
    check_int(manifest.pieces[1].file, 0);
    check_int(manifest.pieces[1].file_offset_bytes, 16u << 20);
    check_int(manifest.pieces[1].size_bytes, 7);
    check_int(manifest.pieces[2].file, 1);
    check_int(manifest.pieces[2].sum[0], 3);
    check(manifest.pieces[2].done);
    check_int(manifest.file_sizes[0], SIZE_A);
    check_int(manifest.stored_bytes, SIZE_A + SIZE_B);
    check_int(manifest.granularity_bytes, 4096);
    close_store();
}

TAP_TEST(another_granularity_makes_the_same_id)
{
    uint8_t id[DIGEST_BYTES];

    make_store(SIZE_B, 32u << 20);
    memcpy(id, store.id, DIGEST_BYTES);
    free(store.text);
    free(store.layout);
    make_store(SIZE_B, 18u << 20);
    check_bytes(store.id, DIGEST_BYTES, id, DIGEST_BYTES);
    check_int(open_store(), 0);
    close_store();
}

TAP_TEST(another_id_is_refused)
{
    make_store(SIZE_B, 32u << 20);
    store.id[3] ^= 1;
    check_int(open_store(), -EPROTO);
    check_str(why, "the id that it sent does not follow from its layout and sums");
    close_store();
}

TAP_TEST(a_layout_of_another_store_is_refused)
{
    uint8_t *other;
    size_t other_bytes;

    make_store(SIZE_B + 1, 32u << 20);
    other = store.layout;
    other_bytes = store.layout_bytes;
    free(store.text);
    make_store(SIZE_B, 32u << 20);
    free(store.layout);
    store.layout = other;
    store.layout_bytes = other_bytes;
    check_int(open_store(), -EPROTO);
    check_str(why, "its 'pieces' and its 'layout' have different allocations");
    close_store();
}

TAP_TEST(any_wrong_byte_of_a_text_is_refused)
{
    for (size_t at = 0; at < 400; at += 13) {
        make_store(SIZE_B, 32u << 20);
        if (at < store.text_bytes)
            store.text[at] ^= 4;
        else
            store.layout[at % store.layout_bytes] ^= 4;
        check_int(open_store(), -EPROTO);
        close_store();
    }
}
