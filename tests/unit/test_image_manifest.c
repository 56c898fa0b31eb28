/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the plan of an image, and its manifest to text and back. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "image/image_manifest.h"
#include "tap.h"

#define PIECE_BYTES 100u
#define FILE_BYTES  250u

static struct words_error error;

/* Makes allocations of these sizes, with no stored bytes behind them, and a plan. */
static void make(struct image_manifest *manifest, const uint64_t *sizes, size_t count)
{
    memset(manifest, 0, sizeof(*manifest));
    manifest->piece_bytes = PIECE_BYTES;
    manifest->file_bytes = FILE_BYTES;
    manifest->granularity_bytes = 4096;
    manifest->store = strdup("/mnt/a b");
    manifest->allocations = calloc(count + 1, sizeof(*manifest->allocations));
    manifest->allocation_count = count;
    for (size_t i = 0; i < count; i++) {
        manifest->allocations[i].size_bytes = sizes[i];
        manifest->allocations[i].stored_bytes = sizes[i];
        require(asprintf(&manifest->allocations[i].name, "a\n\\ ä%zu", i) > 0);
    }
    require(manifest->store && image_manifest_plan(manifest) == 0);
}

static void finish(struct image_manifest *manifest)
{
    for (size_t i = 0; i < manifest->piece_count; i++) {
        manifest->pieces[i].done = true;
        digest_make(&i, sizeof(i), manifest->pieces[i].sum);
    }
}

static char *text_of(const struct image_manifest *manifest, bool unfinished)
{
    char *text = NULL;
    size_t text_bytes = 0;

    require(image_manifest_encode(manifest, unfinished, &text, &text_bytes) == 0);
    check_int(strlen(text), text_bytes);
    return text;
}

static void refuse(const char *text, bool unfinished, const char *why)
{
    struct image_manifest manifest;
    int r = image_manifest_decode(text, strlen(text), unfinished, &manifest, &error);

    check(r == -EINVAL || r == -EPROTONOSUPPORT);
    check(strstr(error.text, why) != NULL);
    if (!strstr(error.text, why))
        fprintf(stderr, "# '%s' has no '%s'\n", error.text, why);
    image_manifest_free(&manifest);
}

/* Returns the text with `from` replaced once by `to`, and a matching sum; to be freed. */
static char *changed(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from), *end;
    char *result, digits[DIGEST_TEXT_BYTES];
    uint8_t sum[DIGEST_BYTES];

    require(at != NULL);
    require(asprintf(&result, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from)) >= 0);
    end = strstr(result, "\nend ");
    require(end != NULL);
    digest_make(result, (size_t)(end + 1 - result), sum);
    memcpy(result + (end + 5 - result), digest_text(sum, digits), 32);
    return result;
}

static void refuse_changed(const char *text, const char *from, const char *to, const char *why)
{
    char *other = changed(text, from, to);

    refuse(other, false, why);
    free(other);
}

TAP_TEST(pieces_lie_side_by_side_and_none_crosses_a_file)
{
    const uint64_t sizes[] = {1, 350, 99, 100};
    const struct {
        uint64_t rank, offset, size, file, file_offset;
    } want[] = {{0, 0, 1, 0, 0},     {1, 0, 100, 0, 1},    {1, 100, 100, 0, 101},
                {1, 200, 100, 1, 0}, {1, 300, 50, 1, 100}, {2, 0, 99, 1, 150},
                {3, 0, 100, 2, 0}};
    struct image_manifest manifest;

    make(&manifest, sizes, 4);
    require(manifest.piece_count == 7 && manifest.file_count == 3);
    for (size_t i = 0; i < 7; i++) {
        const struct image_piece *piece = &manifest.pieces[i];
        check_int(piece->rank, want[i].rank);
        check_int(piece->offset_bytes, want[i].offset);
        check_int(piece->size_bytes, want[i].size);
        check_int(piece->file, want[i].file);
        check_int(piece->file_offset_bytes, want[i].file_offset);
        check(!piece->done);
    }
    check_int(manifest.file_sizes[0], 201);
    check_int(manifest.file_sizes[1], 249);
    check_int(manifest.file_sizes[2], 100);
    check_int(manifest.stored_bytes, 550);
    image_manifest_free(&manifest);
}

TAP_TEST(sizes_that_make_no_sense_make_no_plan)
{
    struct image_allocation two[2] = {{.size_bytes = 1, .stored_bytes = 1},
                                      {.size_bytes = 1, .stored_bytes = 1}};
    struct image_manifest manifest = {.allocations = two,
                                      .allocation_count = 2,
                                      .piece_bytes = PIECE_BYTES,
                                      .file_bytes = FILE_BYTES};

    two[1].stored_bytes = 0;
    check_int(image_manifest_plan(&manifest), -EINVAL);
    two[1].stored_bytes = UINT64_MAX;
    check_int(image_manifest_plan(&manifest), -EINVAL);
    two[1].stored_bytes = (uint64_t)INT64_MAX;
    check_int(image_manifest_plan(&manifest), -EINVAL);
    two[1].stored_bytes = (uint64_t)PIECE_BYTES * IMAGE_MAX_PIECES;
    check_int(image_manifest_plan(&manifest), -E2BIG);
    two[1].stored_bytes = 1;
    two[1].size_bytes = 2;
    check_int(image_manifest_plan(&manifest), -EINVAL);
    two[1].size_bytes = 0;
    check_int(image_manifest_plan(&manifest), -EINVAL);
    two[1].size_bytes = 1;
    manifest.piece_bytes = 0;
    check_int(image_manifest_plan(&manifest), -EINVAL);
    manifest.piece_bytes = FILE_BYTES + 1;
    check_int(image_manifest_plan(&manifest), -EINVAL);
    manifest.piece_bytes = IMAGE_MAX_PIECE_BYTES + 1;
    manifest.file_bytes = 2ull * IMAGE_MAX_PIECE_BYTES;
    check_int(image_manifest_plan(&manifest), -EINVAL);
}

TAP_TEST(a_manifest_comes_back_from_its_text)
{
    const uint64_t sizes[] = {1, 350, 99};
    struct image_manifest manifest, again;
    char *text, *once_more;

    make(&manifest, sizes, 3);
    finish(&manifest);
    manifest.generation = UINT64_MAX;
    memset(manifest.group, 0xa5, sizeof(manifest.group));
    text = text_of(&manifest, false);
    check(strstr(text, "\nstore /mnt/a\\x20b\n") != NULL);
    check(strstr(text, "\nallocation 0 1 1 a\\x0a\\x5c\\x20ä0\n") != NULL);
    require(image_manifest_decode(text, strlen(text), false, &again, &error) == 0);
    check_str(again.store, manifest.store);
    check_str(again.allocations[2].name, manifest.allocations[2].name);
    check_bytes(again.group, sizeof(again.group), manifest.group, sizeof(manifest.group));
    check(again.generation == UINT64_MAX);
    check_int(again.piece_count, manifest.piece_count);
    once_more = text_of(&again, false);
    check_str(once_more, text);
    free(once_more);
    free(text);
    image_manifest_free(&again);
    image_manifest_free(&manifest);
}

TAP_TEST(a_manifest_of_nothing_comes_back)
{
    struct image_manifest manifest, again;
    char *text;

    make(&manifest, NULL, 0);
    text = text_of(&manifest, false);
    check_int(image_manifest_decode(text, strlen(text), false, &again, &error), 0);
    check_int(again.file_count, 0);
    free(text);
    image_manifest_free(&again);
    image_manifest_free(&manifest);
}

TAP_TEST(every_byte_that_changes_and_every_cut_is_found)
{
    const uint64_t sizes[] = {1, 350};
    struct image_manifest manifest, read;
    size_t length, good = 0;
    char *text;

    make(&manifest, sizes, 2);
    finish(&manifest);
    text = text_of(&manifest, false);
    length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        text[i] ^= 1;
        good += image_manifest_decode(text, length, false, &read, &error) == 0;
        check(error.line > 0);
        image_manifest_free(&read);
        text[i] ^= 1;
        good += image_manifest_decode(text, i, false, &read, &error) == 0;
        image_manifest_free(&read);
    }
    check_int(good, 0);
    free(text);
    image_manifest_free(&manifest);
}

TAP_TEST(a_manifest_that_lies_is_refused_though_its_sum_is_right)
{
    const uint64_t sizes[] = {1, 350};
    struct image_manifest manifest;
    char *text;

    make(&manifest, sizes, 2);
    finish(&manifest);
    text = text_of(&manifest, false);
    refuse_changed(text, "gmsfs-image 1", "gmsfs-image 2", "a version");
    refuse_changed(text, "gmsfs-image 1", "gmsfs-image 01", "a version");
    refuse_changed(text, "granularity 4096", "granularity 04096", "'granularity'");
    refuse_changed(text, "granularity 4096", "granularity -1", "'granularity'");
    refuse_changed(text, "granularity 4096", "granularity 18446744073709551616", "'granularity'");
    refuse_changed(text, "granularity 4096", "granularity 4096 ", "does not end");
    refuse_changed(text, "granularity 4096", "granularity 4096\r", "does not end");
    refuse_changed(text, "piece_bytes 100", "piece_bytes 0", "no sense");
    refuse_changed(text, "file_bytes 250", "file_bytes 99", "no sense");
    refuse_changed(text, "allocations 2", "allocations 1", "'pieces'");
    refuse_changed(text, "allocations 2", "allocations 3", "'allocation 2'");
    refuse_changed(text, "allocations 2", "allocations 65537", "at most");
    refuse_changed(text, "allocation 1 350", "allocation 2 350", "'allocation 1'");
    refuse_changed(text, "allocation 1 350 350", "allocation 1 351 350", "no sense");
    refuse_changed(text, "allocation 1 350 350", "allocation 1 350 9223372036854775807",
                   "no sense");
    refuse_changed(text, "350 350 a\\x0a", "350 350 a\\x0A", "spelled");
    refuse_changed(text, "350 350 a\\x0a", "350 350 a\\x41", "spelled");
    refuse_changed(text, "350 350 a\\x0a", "350 350 a\\x00", "spelled");
    refuse_changed(text, "350 350 a\\x0a", "350 350 a b", "spelled");
    refuse_changed(text, "allocation 1 350 350 a\\x0a\\x5c\\x20ä1", "allocation 1 350 350 ..",
                   "no allocation can be called '..'");
    refuse_changed(text, "allocation 1 350 350 a", "allocation 1 350 350 ../../a",
                   "no allocation can be called '../../a");
    refuse_changed(text, "350 350 a\\x0a", "350 350 \xff", "no allocation can be called '?");
    refuse_changed(text, "350 350 a\\x0a", "350 350 ../\\x0a", "no allocation can be called '../?");
    refuse_changed(text, "ä1", "ä0", "twice");
    refuse_changed(text, "pieces 5", "pieces 4", "not as many");
    refuse_changed(text, "files 2", "files 3", "not as many");
    refuse_changed(text, "bytes 351", "bytes 350", "not as many");
    refuse_changed(text, "piece 1 100 100 0 101", "piece 1 100 100 0 100", "elsewhere");
    refuse_changed(text, "piece 1 100 100 0 101", "piece 1 100 99 0 101", "elsewhere");
    refuse_changed(text, "piece 1 100 100 0 101", "piece 1 100 100 7 101", "elsewhere");
    refuse_changed(text, "piece 1 100 100 0 101", "piece 1 18446744073709551615 100 0 101",
                   "elsewhere");
    refuse_changed(text, "piece 1 100 100 0 101", "piece 9 100 100 0 101", "elsewhere");
    refuse_changed(text, "piece 1 100 100 0 101", "piece 1 0 100 0 1", "not in their order");
    free(text);
    image_manifest_free(&manifest);
}

TAP_TEST(a_short_text_makes_no_large_plan)
{
    struct image_manifest manifest;
    const uint64_t size = PIECE_BYTES;
    char *text;

    make(&manifest, &size, 1);
    finish(&manifest);
    text = text_of(&manifest, false);
    refuse_changed(text, "0 100 100 ", "0 100 104857600 ", "not as many");
    free(text);
    manifest.allocations[0].stored_bytes = 104857600;
    manifest.piece_count = 1048576;
    manifest.stored_bytes = 104857600;
    manifest.pieces = realloc(manifest.pieces, manifest.piece_count * sizeof(*manifest.pieces));
    require(manifest.pieces);
    memset(manifest.pieces, 0, manifest.piece_count * sizeof(*manifest.pieces));
    text = text_of(&manifest, false);
    refuse(text, false, "pieces are missing");
    free(text);
    image_manifest_free(&manifest);
}

TAP_TEST(an_unfinished_manifest_has_pieces_in_any_order_and_perhaps_half_a_line)
{
    const uint64_t sizes[] = {1, 350};
    struct image_manifest manifest, read;
    char *text, *more, line[IMAGE_PIECE_LINE_BYTES];
    uint64_t bytes;

    make(&manifest, sizes, 2);
    text = text_of(&manifest, true);
    finish(&manifest);
    image_manifest_piece_line(&manifest.pieces[4], line);
    require(asprintf(&more, "%s%s", text, line) > 0);
    free(text);
    image_manifest_piece_line(&manifest.pieces[1], line);
    require(asprintf(&text, "%s%s%s%.20s", more, line, line, line) > 0);
    free(more);
    require(image_manifest_decode(text, strlen(text), true, &read, &error) == 0);
    check_int(image_manifest_count_done(&read, &bytes), 2);
    check_int(bytes, 150);
    check(read.pieces[1].done && read.pieces[4].done);
    check_bytes(read.pieces[4].sum, DIGEST_BYTES, manifest.pieces[4].sum, DIGEST_BYTES);
    image_manifest_free(&read);
    refuse(text, false, "cut off");
    free(text);
    text = text_of(&manifest, false);
    refuse(text, true, "'piece'");
    free(text);
    image_manifest_free(&manifest);
}

TAP_TEST(a_digest_is_that_of_xxhsum)
{
    char text[DIGEST_TEXT_BYTES];
    uint8_t digest[DIGEST_BYTES];

    digest_make("", 0, digest);
    check_str(digest_text(digest, text), "99aa06d3014798d86001c324468d497f");
}
