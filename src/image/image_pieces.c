/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image_pieces.h"

#include "base/scope.h"
#include "meta/layout.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int image_pieces_make_id(const struct image_manifest *manifest, const struct image_layout *layout,
                         uint8_t id[DIGEST_BYTES])
{
    SCOPED_FREE uint8_t(*sums)[DIGEST_BYTES] = NULL;
    uint8_t hash[DIGEST_BYTES];

    if (manifest->piece_bytes != PIECES_BYTES)
        return -ENODATA;
    for (size_t i = 0; i < manifest->allocation_count; i++)
        if (manifest->allocations[i].stored_bytes != manifest->allocations[i].size_bytes)
            return -ENODATA;
    sums = calloc(manifest->piece_count + 1, sizeof(*sums));
    if (!sums)
        return -ENOMEM;
    for (size_t i = 0; i < manifest->piece_count; i++)
        memcpy(sums[i], manifest->pieces[i].sum, DIGEST_BYTES);
    int error = layout_document_contents_hash(layout->document, hash);
    return error ? error : pieces_make_id(hash, (const void *)sums, manifest->piece_count, id);
}

static int check_id(const uint8_t id[DIGEST_BYTES], const uint8_t told[DIGEST_BYTES],
                    const struct image_manifest *manifest, const struct image_layout *layout,
                    const char **why)
{
    uint8_t made[DIGEST_BYTES];
    int error = image_pieces_make_id(manifest, layout, made);

    *why = "the id that it sent does not follow from its layout and sums";
    if (!error && (memcmp(made, id, DIGEST_BYTES) != 0 || memcmp(told, id, DIGEST_BYTES) != 0))
        error = -EPROTO;
    return error;
}

static int check_sizes(const struct pieces *pieces, const struct image_layout *layout,
                       const char **why)
{
    struct image_layout_allocation allocation;
    bool is_same = pieces->allocation_count == layout->allocation_count;

    for (size_t i = 0; is_same && i < pieces->allocation_count; i++) {
        image_layout_get(layout, i, &allocation);
        is_same = allocation.size_bytes == pieces->allocations[i].size_bytes;
    }
    *why = "its 'pieces' and its 'layout' have different allocations";
    return is_same ? 0 : -EPROTO;
}

/* Returns the largest granularity that all aligned sizes have. */
static uint64_t find_granularity(const struct image_layout *layout)
{
    struct image_layout_allocation allocation;
    uint64_t bits = 0;

    for (size_t i = 0; i < layout->allocation_count; i++) {
        image_layout_get(layout, i, &allocation);
        bits |= allocation.aligned_bytes;
    }
    return bits & -bits;
}

/* Takes the names out of the pieces. */
static int take_allocations(struct image_manifest *manifest, struct pieces *pieces)
{
    size_t count = pieces->allocation_count;

    manifest->allocations = calloc(count + 1, sizeof(*manifest->allocations));
    manifest->file_sizes = calloc(count + 1, sizeof(*manifest->file_sizes));
    if (!manifest->allocations || !manifest->file_sizes)
        return -ENOMEM;
    manifest->allocation_count = manifest->file_count = count;
    for (size_t i = 0; i < count; i++) {
        struct pieces_allocation *from = &pieces->allocations[i];

        manifest->allocations[i] = (struct image_allocation){
            from->size_bytes, from->size_bytes, from->name, from->first_piece, from->piece_count};
        manifest->file_sizes[i] = from->size_bytes;
        from->name = NULL;
    }
    return 0;
}

static int take_pieces(struct image_manifest *manifest, const struct pieces *pieces)
{
    manifest->pieces = calloc(pieces->piece_count + 1, sizeof(*manifest->pieces));
    if (!manifest->pieces)
        return -ENOMEM;
    manifest->piece_count = pieces->piece_count;
    for (size_t i = 0; i < pieces->piece_count; i++) {
        struct piece_place place = pieces_place(pieces, i);

        manifest->pieces[i] = (struct image_piece){.rank = place.rank,
                                                   .offset_bytes = place.offset_bytes,
                                                   .file = place.rank,
                                                   .file_offset_bytes = place.offset_bytes,
                                                   .size_bytes = place.size_bytes,
                                                   .done = true};
        memcpy(manifest->pieces[i].sum, pieces->sums[i], DIGEST_BYTES);
    }
    return 0;
}

static int make(const uint8_t id[DIGEST_BYTES], struct pieces *pieces,
                struct image_manifest *manifest, const struct image_layout *layout,
                const char **why)
{
    int error = check_sizes(pieces, layout, why);

    manifest->piece_bytes = PIECES_BYTES;
    if (!error)
        error = take_allocations(manifest, pieces);
    if (!error)
        error = take_pieces(manifest, pieces);
    if (!error)
        error = check_id(id, pieces->id, manifest, layout, why);
    manifest->stored_bytes = pieces->total_bytes;
    manifest->layout_bytes = layout->size_bytes;
    manifest->granularity_bytes = find_granularity(layout);
    return error;
}

int image_pieces_open(const uint8_t id[DIGEST_BYTES], const char *text, size_t text_bytes,
                      uint8_t *layout_bytes, size_t layout_size_bytes,
                      struct image_manifest *manifest, struct image_layout *layout,
                      const char **why)
{
    struct words_error wrong;
    struct pieces pieces;
    int error = pieces_decode(text, text_bytes, &pieces, &wrong);

    memset(manifest, 0, sizeof(*manifest));
    memset(layout, 0, sizeof(*layout));
    *why = "its 'pieces' is not one of a store";
    if (error) {
        free(layout_bytes);
    } else {
        layout_hash(layout_bytes, layout_size_bytes, manifest->layout_hash);
        error = image_layout_open(layout_bytes, layout_size_bytes, layout, why);
    }
    if (!error)
        error = make(id, &pieces, manifest, layout, why);
    pieces_free(&pieces);
    return error == -ENOMEM || !error ? error : -EPROTO;
}
