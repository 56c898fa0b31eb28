/* SPDX-License-Identifier: Apache-2.0 */
#include "pieces.h"

#include "layout.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_LEAST_BYTES 45u /* "piece 0 0 1 ", a sum and the end of line */

/* ---- plan ---------------------------------------------------------------------------------- */

uint64_t pieces_count(uint64_t size_bytes)
{
    return size_bytes / PIECES_BYTES + (size_bytes % PIECES_BYTES != 0);
}

/* Counts before memory is taken. -EINVAL: the sizes overflow; -E2BIG */
static int plan_count(struct pieces *pieces)
{
    uint64_t count = 0;

    pieces->total_bytes = 0;
    for (size_t i = 0; i < pieces->allocation_count; i++) {
        struct pieces_allocation *allocation = &pieces->allocations[i];
        if (__builtin_add_overflow(pieces->total_bytes, allocation->size_bytes,
                                   &pieces->total_bytes) ||
            pieces->total_bytes > INT64_MAX)
            return -EINVAL;
        allocation->first_piece = (size_t)count;
        count += pieces_count(allocation->size_bytes);
        if (count > PIECES_MAX)
            return -E2BIG;
        allocation->piece_count = (size_t)count - allocation->first_piece;
    }
    pieces->piece_count = (size_t)count;
    return 0;
}

static int plan_sums(struct pieces *pieces)
{
    pieces->sums = calloc(pieces->piece_count + 1, sizeof(*pieces->sums));
    return pieces->sums ? 0 : -ENOMEM;
}

int pieces_of_layout(const struct layout *layout, struct pieces *pieces)
{
    size_t count = layout_count_allocations(layout);

    memset(pieces, 0, sizeof(*pieces));
    pieces->allocations = calloc(count + 1, sizeof(*pieces->allocations));
    if (!pieces->allocations)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);
        pieces->allocations[i].size_bytes = allocation->size_bytes;
        pieces->allocations[i].name = strdup(allocation->name);
        if (!pieces->allocations[i].name)
            return -ENOMEM;
        pieces->allocation_count = i + 1;
    }
    int error = plan_count(pieces);
    return error ? -E2BIG : plan_sums(pieces);
}

void pieces_free(struct pieces *pieces)
{
    for (size_t i = 0; i < pieces->allocation_count; i++)
        free(pieces->allocations[i].name);
    free(pieces->allocations);
    free(pieces->sums);
    memset(pieces, 0, sizeof(*pieces));
}

struct piece_place pieces_place(const struct pieces *pieces, size_t index)
{
    size_t low = 0, high = pieces->allocation_count, middle;
    uint64_t offset, left;

    assert(index < pieces->piece_count);
    while (high - low > 1) {
        middle = low + (high - low) / 2;
        if (pieces->allocations[middle].first_piece <= index)
            low = middle;
        else
            high = middle;
    }
    const struct pieces_allocation *allocation = &pieces->allocations[low];
    offset = (index - allocation->first_piece) * (uint64_t)PIECES_BYTES;
    left = allocation->size_bytes - offset;
    return (struct piece_place){low, offset, left < PIECES_BYTES ? left : PIECES_BYTES};
}

/* ---- id ------------------------------------------------------------------------------------ */

int pieces_make_id(const uint8_t contents_hash[DIGEST_BYTES], const uint8_t (*sums)[DIGEST_BYTES],
                   size_t count, uint8_t id[DIGEST_BYTES])
{
    XXH3_state_t *state = XXH3_createState();

    if (!state)
        return -ENOMEM;
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, contents_hash, DIGEST_BYTES);
    XXH3_128bits_update(state, sums, count * sizeof(*sums));
    digest_put(XXH3_128bits_digest(state), id);
    XXH3_freeState(state);
    return 0;
}

int pieces_parse_id(const char *text, uint8_t id[DIGEST_BYTES])
{
    struct words words = {.at = text, .end = text + strlen(text)};

    return words_hex(&words, id, DIGEST_BYTES) && words.at == words.end ? 0 : -EINVAL;
}

/* ---- text ---------------------------------------------------------------------------------- */

int pieces_encode(const struct pieces *pieces, char **text, size_t *text_bytes)
{
    FILE *to = open_memstream(text, text_bytes);
    char sum[DIGEST_TEXT_BYTES];
    struct piece_place place;

    if (!to)
        return -ENOMEM;
    fputs("gmsfs-pieces 1\n", to);
    words_put_digest(to, "id", pieces->id);
    fprintf(to, "piece_bytes %u\nallocations %zu\n", PIECES_BYTES, pieces->allocation_count);
    for (size_t i = 0; i < pieces->allocation_count; i++) {
        fprintf(to, "allocation %zu %" PRIu64 " ", i, pieces->allocations[i].size_bytes);
        words_put_text(to, pieces->allocations[i].name);
        putc('\n', to);
    }
    fprintf(to, "pieces %zu\n", pieces->piece_count);
    for (size_t i = 0; i < pieces->piece_count; i++) {
        place = pieces_place(pieces, i);
        fprintf(to, "piece %zu %" PRIu64 " %" PRIu64 " %s\n", place.rank, place.offset_bytes,
                place.size_bytes, digest_text(pieces->sums[i], sum));
    }
    return words_put_end(to, true, text, text_bytes);
}

static unsigned count_digits(uint64_t number)
{
    unsigned digits = 1;

    while (number >= 10) {
        number /= 10;
        digits++;
    }
    return digits;
}

/* Counts the digits of the offsets of an allocation's pieces. */
static uint64_t count_offset_digits(uint64_t piece_count)
{
    uint64_t digits = piece_count, most = 10; /* each has one, those from 10 on another, ... */

    while (piece_count > 0 && (piece_count - 1) * PIECES_BYTES >= most) {
        digits += piece_count - ((most - 1) / PIECES_BYTES + 1);
        most *= 10;
    }
    return digits;
}

uint64_t pieces_text_bytes(const struct layout *layout)
{
    static const char head[] = "gmsfs-pieces 1\nid \npiece_bytes 16777216\nallocations \npieces \n"
                               "end \n";
    size_t allocations = layout_count_allocations(layout);
    uint64_t bytes = sizeof(head) - 1 + 4ull * DIGEST_BYTES + count_digits(allocations);
    uint64_t total = 0;

    for (size_t i = 0; i < allocations; i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);
        uint64_t count = pieces_count(allocation->size_bytes);
        uint64_t last = allocation->size_bytes % PIECES_BYTES;
        bytes += sizeof("allocation   \n") - 1 + count_digits(i) +
                 count_digits(allocation->size_bytes) + words_count_text(allocation->name);
        bytes += count * (sizeof("piece    \n") - 1 + 2ull * DIGEST_BYTES + count_digits(i) +
                          count_digits(PIECES_BYTES)) +
                 count_offset_digits(count);
        if (last)
            bytes -= count_digits(PIECES_BYTES) - count_digits(last);
        total += count;
    }
    return bytes + count_digits(total);
}

static int decode_allocation(struct words *words, size_t rank, struct pieces_allocation *allocation)
{
    uint64_t number;

    if (!words_take(words, "allocation ") || !words_number(words, &number) || number != rank ||
        !words_take(words, " ") || !words_number(words, &allocation->size_bytes) ||
        !words_take(words, " "))
        return words_fail(words, "'allocation %zu' with a size and a name is expected", rank);
    int error = words_allocation_name(words, &allocation->name);
    return error ? error : words_end_line(words);
}

static int decode_allocations(struct words *words, struct pieces *pieces)
{
    uint64_t count;
    int error = words_line_number(words, "allocations", PIECES_MAX_ALLOCATIONS, &count);

    if (error)
        return error;
    if (count > (size_t)(words->end - words->at)) /* a line has more than one byte */
        return words_fail(words, "cut off");
    pieces->allocations = calloc((size_t)count + 1, sizeof(*pieces->allocations));
    if (!pieces->allocations)
        return -ENOMEM;
    pieces->allocation_count = (size_t)count;
    for (size_t i = 0; !error && i < count; i++)
        error = decode_allocation(words, i, &pieces->allocations[i]);
    return error ? error
                 : words_check_names(words, &pieces->allocations[0].name,
                                     sizeof(*pieces->allocations), (size_t)count);
}

static int decode_piece(struct words *words, const struct pieces *pieces, size_t index)
{
    struct piece_place place = pieces_place(pieces, index);
    uint64_t rank, offset_bytes, size_bytes;

    if (!words_take(words, "piece ") || !words_number(words, &rank) || !words_take(words, " ") ||
        !words_number(words, &offset_bytes) || !words_take(words, " ") ||
        !words_number(words, &size_bytes) || !words_take(words, " ") ||
        !words_hex(words, pieces->sums[index], DIGEST_BYTES))
        return words_fail(words, "'piece' with three numbers and a sum is expected");
    if (rank != place.rank || offset_bytes != place.offset_bytes || size_bytes != place.size_bytes)
        return words_fail(words, "a piece lies elsewhere than the sizes say");
    return words_end_line(words);
}

static int decode_pieces(struct words *words, struct pieces *pieces)
{
    uint64_t count;
    int error = words_line_number(words, "pieces", PIECES_MAX, &count);

    if (!error && (plan_count(pieces) || count != pieces->piece_count))
        error = words_fail(words, "pieces are not as many as the allocations make");
    if (!error && count > (size_t)(words->end - words->at) / PIECE_LEAST_BYTES)
        error = words_fail(words, "cut off: pieces are missing");
    if (!error)
        error = plan_sums(pieces);
    for (size_t i = 0; !error && i < pieces->piece_count; i++)
        error = decode_piece(words, pieces, i);
    return error;
}

int pieces_decode(const char *text, size_t text_bytes, struct pieces *pieces,
                  struct words_error *wrong)
{
    struct words words;
    uint64_t piece_bytes;
    int error = words_begin(&words, text, text_bytes, PIECES_MAX_TEXT_BYTES, wrong);

    memset(pieces, 0, sizeof(*pieces));
    if (!error)
        error = words_line_version(&words, "gmsfs-pieces", "1", "the pieces of a store");
    if (!error)
        error = words_line_digest(&words, "id", pieces->id);
    if (!error)
        error = words_line_number(&words, "piece_bytes", PIECES_BYTES, &piece_bytes);
    if (!error && piece_bytes != PIECES_BYTES)
        error =
            words_fail(&words, "pieces of %" PRIu64 " bytes, not %u", piece_bytes, PIECES_BYTES);
    if (!error)
        error = decode_allocations(&words, pieces);
    if (!error)
        error = decode_pieces(&words, pieces);
    return error ? error : words_line_end(&words);
}
