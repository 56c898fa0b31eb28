/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file `pieces` of another node's store. Also decoded with a matching sum, because no input has
 * one by chance.
 */
#include "fuzz.h"

#include "meta/pieces.h"

#include <errno.h>

static void check_plan(const struct pieces *pieces)
{
    size_t index = 0;
    uint64_t total = 0;

    must(pieces->allocation_count <= PIECES_MAX_ALLOCATIONS && pieces->piece_count <= PIECES_MAX);
    for (size_t i = 0; i < pieces->allocation_count; i++) {
        const struct pieces_allocation *allocation = &pieces->allocations[i];
        uint64_t offset = 0;
        must(allocation->name[0] && strlen(allocation->name) <= WORDS_MAX_NAME_BYTES);
        must(allocation->first_piece == index);
        for (size_t j = 0; j < allocation->piece_count; j++, index++) {
            struct piece_place place = pieces_place(pieces, index);
            must(place.rank == i && place.offset_bytes == offset);
            must(place.size_bytes > 0 && place.size_bytes <= PIECES_BYTES);
            offset += place.size_bytes;
        }
        must(offset == allocation->size_bytes);
        total += offset;
    }
    must(index == pieces->piece_count && total == pieces->total_bytes);
}

/* A text has one spelling: encoding gives the same bytes. */
static void read_text(const char *text, size_t size)
{
    struct words_error error;
    struct pieces pieces;
    int r = pieces_decode(text, size, &pieces, &error);
    char *again;
    size_t again_size;

    must(r == 0 || r == -EINVAL || r == -EPROTONOSUPPORT);
    must(r == 0 || (error.line > 0 && error.line <= size + 1 && fuzz_is_line(error.text)));
    if (r == 0) {
        check_plan(&pieces);
        must(pieces_encode(&pieces, &again, &again_size) == 0);
        must(fuzz_same(again, again_size, text, size));
        free(again);
    }
    pieces_free(&pieces);
}

/* Replaces the last line by a matching one. */
static void read_sealed(const char *text, size_t size)
{
    char digits[DIGEST_TEXT_BYTES], *sealed = malloc(size + sizeof digits + 8);
    uint8_t sum[DIGEST_BYTES];
    size_t length = size;

    must(sealed != NULL);
    while (length > 0 && (length == size || text[length - 1] != '\n'))
        length--;
    digest_make(text, length, sum);
    if (length)
        memcpy(sealed, text, length);
    length += (size_t)sprintf(sealed + length, "end %s\n", digest_text(sum, digits));
    read_text(sealed, length);
    free(sealed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    uint8_t id[DIGEST_BYTES];
    int r = pieces_parse_id(text, id);
    char digits[DIGEST_TEXT_BYTES];

    must(r == -EINVAL || (r == 0 && strcmp(text, digest_text(id, digits)) == 0));
    read_text(text, size);
    read_sealed(text, size);
    free(text);
    return 0;
}
