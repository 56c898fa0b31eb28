/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of an image, and decoding of its manifest. */
#include "image/image_manifest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_LEAST_BYTES 49u /* "piece 0 0 1 0 0 ", a sum and the end of line */

/* ---- plan ---------------------------------------------------------------------------------- */

static int plan_count(struct image_manifest *manifest)
{
    uint64_t count = 0;

    if (manifest->piece_bytes == 0 || manifest->piece_bytes > IMAGE_MAX_PIECE_BYTES ||
        manifest->file_bytes < manifest->piece_bytes || manifest->file_bytes > INT64_MAX)
        return -EINVAL;
    manifest->stored_bytes = 0;
    for (size_t i = 0; i < manifest->allocation_count; i++) {
        struct image_allocation *allocation = &manifest->allocations[i];
        uint64_t stored = allocation->stored_bytes;
        if (allocation->size_bytes == 0 || stored < allocation->size_bytes ||
            __builtin_add_overflow(manifest->stored_bytes, stored, &manifest->stored_bytes) ||
            manifest->stored_bytes > INT64_MAX)
            return -EINVAL;
        allocation->first_piece = (size_t)count;
        count += (stored - 1) / manifest->piece_bytes + 1;
        if (count > IMAGE_MAX_PIECES)
            return -E2BIG;
        allocation->piece_count = (size_t)count - allocation->first_piece;
    }
    manifest->piece_count = (size_t)count;
    return 0;
}

static void plan_allocation(struct image_manifest *manifest, size_t rank)
{
    const struct image_allocation *allocation = &manifest->allocations[rank];
    uint64_t offset = 0;

    for (size_t i = 0; i < allocation->piece_count; i++) {
        struct image_piece *piece = &manifest->pieces[allocation->first_piece + i];
        uint64_t left = allocation->stored_bytes - offset, room = 0;
        uint64_t size = left < manifest->piece_bytes ? left : manifest->piece_bytes;
        if (manifest->file_count)
            room = manifest->file_bytes - manifest->file_sizes[manifest->file_count - 1];
        if (room < size)
            manifest->file_sizes[manifest->file_count++] = 0;
        piece->rank = rank;
        piece->offset_bytes = offset;
        piece->size_bytes = size;
        piece->file = manifest->file_count - 1;
        piece->file_offset_bytes = manifest->file_sizes[piece->file];
        manifest->file_sizes[piece->file] += size;
        offset += size;
    }
}

int image_manifest_plan(struct image_manifest *manifest)
{
    int error = plan_count(manifest);

    if (error)
        return error;
    manifest->pieces = calloc(manifest->piece_count + 1, sizeof(*manifest->pieces));
    manifest->file_sizes = calloc(manifest->piece_count + 1, sizeof(*manifest->file_sizes));
    if (!manifest->pieces || !manifest->file_sizes)
        return -ENOMEM;
    for (size_t i = 0; i < manifest->allocation_count; i++)
        plan_allocation(manifest, i);
    return 0;
}

size_t image_manifest_count_done(const struct image_manifest *manifest, uint64_t *bytes)
{
    size_t done = 0;

    *bytes = 0;
    for (size_t i = 0; i < manifest->piece_count; i++) {
        done += manifest->pieces[i].done;
        *bytes += manifest->pieces[i].done ? manifest->pieces[i].size_bytes : 0;
    }
    return done;
}

void image_manifest_free(struct image_manifest *manifest)
{
    for (size_t i = 0; manifest->allocations && i < manifest->allocation_count; i++)
        free(manifest->allocations[i].name);
    free(manifest->allocations);
    free(manifest->pieces);
    free(manifest->file_sizes);
    free(manifest->store);
    memset(manifest, 0, sizeof(*manifest));
}

/* ---- lines --------------------------------------------------------------------------------- */

static int line_store(struct words *words, struct image_manifest *manifest)
{
    if (!words_take(words, "store "))
        return words_fail(words, "'store' and a name are expected");
    int error = words_text(words, IMAGE_MAX_STORE_BYTES, &manifest->store);
    return error ? error : words_end_line(words);
}

static int decode_head(struct words *words, struct image_manifest *manifest, uint64_t *count)
{
    int error = words_line_version(words, "gmsfs-image", "1", "a manifest of an image");

    if (!error)
        error = words_line_digest(words, "layout_hash", manifest->layout_hash);
    if (!error)
        error = words_line_number(words, "layout_bytes", IMAGE_MAX_LAYOUT_BYTES,
                                  &manifest->layout_bytes);
    if (!error)
        error = words_line_number(words, "granularity", INT64_MAX, &manifest->granularity_bytes);
    if (!error)
        error =
            words_line_number(words, "piece_bytes", IMAGE_MAX_PIECE_BYTES, &manifest->piece_bytes);
    if (!error)
        error = words_line_number(words, "file_bytes", INT64_MAX, &manifest->file_bytes);
    if (!error)
        error = words_line_number(words, "generation", UINT64_MAX, &manifest->generation);
    if (!error)
        error = words_line_digest(words, "group", manifest->group);
    if (!error)
        error = words_line_digest(words, "store_id", manifest->store_id);
    if (!error)
        error = line_store(words, manifest);
    if (!error)
        error = words_line_number(words, "saved", INT64_MAX, &manifest->saved_s);
    if (!error)
        error = words_line_number(words, "allocations", IMAGE_MAX_ALLOCATIONS, count);
    return error;
}

static int decode_allocation(struct words *words, size_t rank, struct image_allocation *allocation)
{
    uint64_t number;

    if (!words_take(words, "allocation ") || !words_number(words, &number) || number != rank ||
        !words_take(words, " ") || !words_number(words, &allocation->size_bytes) ||
        !words_take(words, " ") || !words_number(words, &allocation->stored_bytes) ||
        !words_take(words, " "))
        return words_fail(words, "'allocation %zu' with two sizes and a name is expected", rank);
    int error = words_allocation_name(words, &allocation->name);
    return error ? error : words_end_line(words);
}

static int decode_allocations(struct words *words, struct image_manifest *manifest, uint64_t count)
{
    int error = 0;

    if (count > (size_t)(words->end - words->at)) /* a line has more than one byte */
        return words_fail(words, "cut off");
    manifest->allocations = calloc((size_t)count + 1, sizeof(*manifest->allocations));
    if (!manifest->allocations)
        return -ENOMEM;
    manifest->allocation_count = (size_t)count;
    for (size_t i = 0; !error && i < count; i++)
        error = decode_allocation(words, i, &manifest->allocations[i]);
    return error ? error
                 : words_check_names(words, &manifest->allocations[0].name,
                                     sizeof(*manifest->allocations), (size_t)count);
}

/* Counts before planning, so that no short text makes a large plan. */
static int decode_plan(struct words *words, struct image_manifest *manifest, bool unfinished)
{
    uint64_t pieces, files, bytes;
    int error = words_line_number(words, "pieces", IMAGE_MAX_PIECES, &pieces);

    if (!error)
        error = words_line_number(words, "files", IMAGE_MAX_PIECES, &files);
    if (!error)
        error = words_line_number(words, "bytes", INT64_MAX, &bytes);
    if (error)
        return error;
    error = plan_count(manifest);
    if (error == -EINVAL)
        return words_fail(words, "the sizes of allocations, pieces or files make no sense");
    if (error == -E2BIG)
        return words_fail(words, "more than %u pieces", IMAGE_MAX_PIECES);
    if (pieces != manifest->piece_count || bytes != manifest->stored_bytes)
        return words_fail(words, "pieces or bytes are not as many as the allocations make");
    if (!unfinished && pieces > (size_t)(words->end - words->at) / PIECE_LEAST_BYTES)
        return words_fail(words, "cut off: pieces are missing");
    error = image_manifest_plan(manifest);
    if (!error && files != manifest->file_count)
        return words_fail(words, "files are not as many as the allocations make");
    return error;
}

/* Finds the planned piece of the line; NULL: none. */
static struct image_piece *decode_find(const struct image_manifest *manifest,
                                       const struct image_piece *read)
{
    struct image_piece *piece;

    if (read->rank >= manifest->allocation_count)
        return NULL;
    const struct image_allocation *allocation = &manifest->allocations[read->rank];
    if (read->offset_bytes / manifest->piece_bytes >= allocation->piece_count)
        return NULL;
    piece = &manifest->pieces[allocation->first_piece + read->offset_bytes / manifest->piece_bytes];
    if (piece->offset_bytes != read->offset_bytes || piece->size_bytes != read->size_bytes ||
        piece->file != read->file || piece->file_offset_bytes != read->file_offset_bytes)
        return NULL;
    return piece;
}

static int decode_piece(struct words *words, struct image_manifest *manifest,
                        struct image_piece **found)
{
    struct image_piece read = {0};

    if (!words_take(words, "piece ") || !words_number(words, &read.rank) ||
        !words_take(words, " ") || !words_number(words, &read.offset_bytes) ||
        !words_take(words, " ") || !words_number(words, &read.size_bytes) ||
        !words_take(words, " ") || !words_number(words, &read.file) || !words_take(words, " ") ||
        !words_number(words, &read.file_offset_bytes) || !words_take(words, " ") ||
        !words_hex(words, read.sum, DIGEST_BYTES))
        return words_fail(words, "'piece' with five numbers and a sum is expected");
    *found = decode_find(manifest, &read);
    if (!*found)
        return words_fail(words, "a piece lies elsewhere than the sizes say");
    memcpy((*found)->sum, read.sum, DIGEST_BYTES);
    (*found)->done = true;
    return words_end_line(words);
}

/* Decodes all pieces in order, the sum of the text, and the end of the text. */
static int decode_finish(struct words *words, struct image_manifest *manifest)
{
    struct image_piece *piece;
    int error = 0;

    for (size_t i = 0; !error && i < manifest->piece_count; i++) {
        error = decode_piece(words, manifest, &piece);
        if (!error && piece != &manifest->pieces[i])
            error = words_fail(words, "the pieces are not in their order");
    }
    return error ? error : words_line_end(words);
}

/* Decodes pieces in any order; the same piece may be written again. */
static int decode_pieces(struct words *words, struct image_manifest *manifest)
{
    struct image_piece *piece;
    int error = 0;

    while (!error && memchr(words->at, '\n', (size_t)(words->end - words->at)))
        error = decode_piece(words, manifest, &piece);
    return error;
}

int image_manifest_decode(const char *text, size_t text_bytes, bool unfinished,
                          struct image_manifest *manifest, struct words_error *wrong)
{
    struct words words;
    uint64_t count;
    int error = words_begin(&words, text, text_bytes, IMAGE_MANIFEST_MAX_BYTES, wrong);

    memset(manifest, 0, sizeof(*manifest));
    if (!error)
        error = decode_head(&words, manifest, &count);
    if (!error)
        error = decode_allocations(&words, manifest, count);
    if (!error)
        error = decode_plan(&words, manifest, unfinished);
    if (!error)
        error = unfinished ? decode_pieces(&words, manifest) : decode_finish(&words, manifest);
    return error;
}
