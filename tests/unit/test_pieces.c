/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the pieces and the id of a store's contents, and their text and back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "auto_layout.h"
#include "meta/layout.h"
#include "meta/pieces.h"

#define PIECE 16777216ull

static struct words_error wrong;

/* Makes a layout of three allocations, with an entry; aligned to `granularity`. */
static struct layout *make_layout(uint64_t granularity, const char *first_name)
{
    static const uint64_t sizes[] = {1, PIECE, 2 * PIECE + 5};
    const char *names[] = {first_name, "b\n\\ ä", "c"};
    struct layout *layout = layout_new();
    struct layout_put put = {.key = "k", .key_bytes = 1, .value = "v", .value_bytes = 1};
    uint64_t slot;

    require(layout != NULL);
    for (size_t i = 0; i < 3; i++) {
        uint64_t aligned = (sizes[i] + granularity - 1) / granularity * granularity;
        require(layout_add(layout, i + 1, names[i], i == 1 ? "tag" : NULL, &slot) == 0);
        require(layout_set_memory(layout, slot, i + 1, sizes[i], aligned, false) == 0);
    }
    put.slot = slot;
    put.serial = 9;
    require(layout_put(layout, &put) == 0);
    return layout;
}

/* Makes pieces with sums that differ, and an id. */
static void make(struct pieces *pieces)
{
    struct layout *layout = make_layout(4096, "a");
    uint8_t hash[DIGEST_BYTES];

    require(pieces_of_layout(layout, pieces) == 0);
    for (size_t i = 0; i < pieces->piece_count; i++)
        digest_make(&i, sizeof(i), pieces->sums[i]);
    require(layout_contents_hash(layout, hash) == 0);
    require(pieces_make_id(hash, (const void *)pieces->sums, pieces->piece_count, pieces->id) == 0);
    layout_free(layout);
}

static char *text_of(const struct pieces *pieces)
{
    char *text = NULL;
    size_t text_bytes = 0;

    require(pieces_encode(pieces, &text, &text_bytes) == 0);
    check_int(strlen(text), text_bytes);
    return text;
}

static void refuse(const char *text, int error, const char *why)
{
    struct pieces pieces;

    check_int(pieces_decode(text, strlen(text), &pieces, &wrong), error);
    check(strstr(wrong.text, why) != NULL);
    if (!strstr(wrong.text, why))
        fprintf(stderr, "# '%s' has no '%s'\n", wrong.text, why);
    pieces_free(&pieces);
}

/* Refuses the text with `from` replaced once by `to`, and a matching sum. */
static void refuse_changed(const char *from, const char *to, const char *why)
{
    char *text, *other, *end, digits[DIGEST_TEXT_BYTES];
    uint8_t sum[DIGEST_BYTES];
    struct pieces pieces;
    const char *at;

    make(&pieces);
    text = text_of(&pieces);
    at = strstr(text, from);
    require(at != NULL);
    require(asprintf(&other, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) >= 0);
    end = strstr(other, "\nend ");
    require(end != NULL);
    digest_make(other, (size_t)(end + 1 - other), sum);
    memcpy(end + 5, digest_text(sum, digits), 32);
    refuse(other, -EINVAL, why);
    free(other);
    free(text);
    pieces_free(&pieces);
}

TAP_TEST(allocations_are_cut_every_16_mib_from_their_beginning)
{
    const struct piece_place want[] = {
        {0, 0, 1}, {1, 0, PIECE}, {2, 0, PIECE}, {2, PIECE, PIECE}, {2, 2 * PIECE, 5}};
    struct pieces pieces;

    make(&pieces);
    check_int(pieces.piece_count, 5);
    check_int(pieces.total_bytes, 3 * PIECE + 6);
    for (size_t i = 0; i < pieces.piece_count; i++) {
        struct piece_place got = pieces_place(&pieces, i);
        check_int(got.rank, want[i].rank);
        check_int(got.offset_bytes, want[i].offset_bytes);
        check_int(got.size_bytes, want[i].size_bytes);
    }
    pieces_free(&pieces);
    check_int(pieces_count(0), 0);
    check_int(pieces_count(UINT64_MAX), (1ull << 40));
}

TAP_TEST(an_allocation_without_bytes_has_no_piece)
{
    const char *text = "gmsfs-pieces 1\nid 00000000000000000000000000000000\n"
                       "piece_bytes 16777216\nallocations 3\nallocation 0 0 a\n"
                       "allocation 1 2 b\nallocation 2 0 c\npieces 1\n"
                       "piece 1 0 2 00000000000000000000000000000001\n";
    char *whole, digits[DIGEST_TEXT_BYTES];
    uint8_t sum[DIGEST_BYTES];
    struct pieces pieces;

    digest_make(text, strlen(text), sum);
    require(asprintf(&whole, "%send %s\n", text, digest_text(sum, digits)) > 0);
    require(pieces_decode(whole, strlen(whole), &pieces, &wrong) == 0);
    check_int(pieces.piece_count, 1);
    check_int(pieces_place(&pieces, 0).rank, 1);
    pieces_free(&pieces);
    free(whole);
}

TAP_TEST(the_id_follows_from_bytes_and_layout_alone)
{
    static const uint64_t granularities[] = {1, 4096, 2 << 20};
    uint8_t hash[DIGEST_BYTES], same[DIGEST_BYTES], encoded[DIGEST_BYTES];
    struct layout_document *document;
    struct layout *layout;
    uint8_t *bytes;
    uint64_t culprit;
    size_t size;

    for (size_t i = 0; i < 3; i++) {
        layout = make_layout(granularities[i], i ? "a" : "another");
        require(layout_contents_hash(layout, hash) == 0);
        require(layout_encode(layout, &bytes, &size) == 0);
        layout_hash(bytes, size, encoded);
        require(layout_document_decode(bytes, size, &document, &culprit) == 0);
        require(layout_document_contents_hash(document, same) == 0);
        check_bytes(hash, sizeof(hash), same, sizeof(same));
        if (i == 0) /* aligned sizes are sizes */
            check_bytes(hash, sizeof(hash), encoded, sizeof(encoded));
        else
            check(memcmp(hash, encoded, sizeof(hash)) != 0);
        layout_document_free(document);
        free(bytes);
        layout_free(layout);
    }
}

TAP_TEST(another_sum_or_layout_is_another_id)
{
    uint8_t bytes[3 * DIGEST_BYTES], want[DIGEST_BYTES], id[DIGEST_BYTES];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    digest_make(bytes, sizeof(bytes), want);
    require(pieces_make_id(bytes, (const void *)(bytes + DIGEST_BYTES), 2, id) == 0);
    check_bytes(id, sizeof(id), want, sizeof(want));
    bytes[0]++;
    require(pieces_make_id(bytes, (const void *)(bytes + DIGEST_BYTES), 2, id) == 0);
    check(memcmp(id, want, sizeof(id)) != 0);
}

TAP_TEST(a_text_decodes_to_the_same_pieces)
{
    struct pieces pieces, again;
    char *text, *twice;

    make(&pieces);
    text = text_of(&pieces);
    check(strncmp(text, "gmsfs-pieces 1\nid ", 18) == 0);
    check(strstr(text, "\npiece_bytes 16777216\nallocations 3\nallocation 0 1 a\n"
                       "allocation 1 16777216 b\\x0a\\x5c\\x20ä\nallocation 2 33554437 c\n"
                       "pieces 5\npiece 0 0 1 ") != NULL);
    require(pieces_decode(text, strlen(text), &again, &wrong) == 0);
    twice = text_of(&again);
    check_str(twice, text);
    free(twice);
    free(text);
    pieces_free(&again);
    pieces_free(&pieces);
}

TAP_TEST(the_size_of_a_text_is_known_before_its_sums)
{
    static const uint64_t sizes[] = {1, 9999999, PIECE, PIECE + 1, 6 * PIECE, 61 * PIECE + 100};
    auto_layout *layout = layout_new();
    struct pieces pieces;
    uint64_t slot;
    char *text;

    for (size_t i = 0; i <= sizeof(sizes) / sizeof(sizes[0]); i++) {
        require(pieces_of_layout(layout, &pieces) == 0);
        text = text_of(&pieces);
        check_int(pieces_text_bytes(layout), strlen(text));
        free(text);
        pieces_free(&pieces);
        if (i == sizeof(sizes) / sizeof(sizes[0]))
            break;
        require(layout_add(layout, i + 1, i == 1 ? "a b" : NULL, NULL, &slot) == 0);
        require(layout_set_memory(layout, slot, i + 1, sizes[i], sizes[i], false) == 0);
    }
}

TAP_TEST(another_spelling_is_refused)
{
    struct pieces pieces;
    char *text, *other;

    make(&pieces);
    text = text_of(&pieces);
    for (size_t length = 0; length < strlen(text); length++) {
        struct pieces read;
        check(pieces_decode(text, length, &read, &wrong) < 0);
        pieces_free(&read);
    }
    refuse("gmsfs-image 1\n", -EINVAL, "not the pieces of a store");
    refuse("gmsfs-pieces 2\n", -EPROTONOSUPPORT, "a version");
    require(asprintf(&other, "%s\n", text) > 0);
    refuse(other, -EINVAL, "something follows the end");
    free(other);
    text[20] ^= 1;
    refuse(text, -EINVAL, "damaged");
    free(text);
    pieces_free(&pieces);
    refuse_changed("piece_bytes 16777216", "piece_bytes 1048576", "pieces of 1048576 bytes");
    refuse_changed("piece_bytes 16777216", "piece_bytes 16777217", "at most");
    refuse_changed("allocations 3", "allocations 2", "'pieces' and a number");
    refuse_changed("allocations 3", "allocations 4", "'allocation 3'");
    refuse_changed("allocations 3", "allocations 65537", "at most 65536");
    refuse_changed("allocations 3", "allocations 65536", "cut off");
    refuse_changed("allocation 0 1 a", "allocation 0 01 a", "'allocation 0'");
    refuse_changed("allocation 0 1 a", "allocation 1 1 a", "'allocation 0'");
    refuse_changed("allocation 0 1 a", "allocation 0 1 ../a", "no allocation can be called");
    refuse_changed("allocation 0 1 a", "allocation 0 1 c", "twice");
    refuse_changed("allocation 0 1 a", "allocation 0 16777217 a", "not as many");
    refuse_changed("allocation 0 1 a", "allocation 0 18446744073709551615 a", "not as many");
    refuse_changed("pieces 5", "pieces 4", "not as many");
    refuse_changed("pieces 5", "pieces 1048577", "at most");
    refuse_changed("piece 0 0 1 ", "piece 0 0 2 ", "elsewhere");
    refuse_changed("piece 1 0 ", "piece 1 1 ", "elsewhere");
    refuse_changed("piece 1 0 ", "piece 0 0 ", "elsewhere");
    refuse_changed("piece 0 0 1 ", "piece 0 0 1 F", "three numbers and a sum");
}

TAP_TEST(a_short_text_makes_no_large_plan)
{
    refuse("gmsfs-pieces 1\nid 00000000000000000000000000000000\npiece_bytes 16777216\n"
           "allocations 1\nallocation 0 17592186044416 a\npieces 1048576\n",
           -EINVAL, "pieces are missing");
    refuse("gmsfs-pieces 1\nid 00000000000000000000000000000000\npiece_bytes 16777216\n"
           "allocations 1\nallocation 0 9223372036854775807 a\npieces 1048576\n",
           -EINVAL, "not as many");
}

TAP_TEST(a_store_of_too_many_pieces_is_refused)
{
    auto_layout *layout = layout_new();
    struct pieces pieces;
    uint64_t slot;

    require(layout_add(layout, 1, NULL, NULL, &slot) == 0);
    require(layout_set_memory(layout, slot, 1, (1ull << 44) + 1, 1ull << 45, false) == 0);
    check_int(pieces_of_layout(layout, &pieces), -E2BIG);
    pieces_free(&pieces);
}

TAP_TEST(an_id_is_32_lower_case_digits)
{
    uint8_t id[DIGEST_BYTES];

    check_int(pieces_parse_id("0123456789abcdef0123456789abcdef", id), 0);
    check_int(id[1], 0x23);
    check_int(pieces_parse_id("0123456789ABCDEF0123456789abcdef", id), -EINVAL);
    check_int(pieces_parse_id("0123456789abcdef0123456789abcde", id), -EINVAL);
    check_int(pieces_parse_id("0123456789abcdef0123456789abcdef0", id), -EINVAL);
    check_int(pieces_parse_id("", id), -EINVAL);
}
