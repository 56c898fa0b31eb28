/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of an image, and decoding of its manifest. */
#include "image/image_manifest.h"

#include "base/clean.h"
#include "base/hex.h"
#include "base/xxh3.h"
#include "meta/name.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERSION_TEXT      "1"
#define HEX_DIGITS        "0123456789abcdef"
#define PIECE_LEAST_BYTES 49u /* "piece 0 0 1 0 0 ", a sum and the end of line */

/* ---- digests ------------------------------------------------------------------------------- */

void image_digest(const void *bytes, size_t size_bytes, uint8_t digest[IMAGE_DIGEST_BYTES])
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, size_bytes));
    memcpy(digest, canonical.digest, IMAGE_DIGEST_BYTES);
}

const char *image_digest_text(const uint8_t digest[IMAGE_DIGEST_BYTES],
                              char text[IMAGE_DIGEST_TEXT_BYTES])
{
    hex_format(digest, IMAGE_DIGEST_BYTES, text);
    return text;
}

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

/* ---- words --------------------------------------------------------------------------------- */

struct parse {
    const char *at, *end;
    const char *begin;
    size_t line; /* being read, from 1 */
    struct image_error *error;
};

static int __attribute__((format(printf, 2, 3)))
parse_fail(struct parse *parse, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(parse->error->text, sizeof(parse->error->text), format, arguments);
    va_end(arguments);
    clean_text(parse->error->text);
    parse->error->line = parse->line;
    return -EINVAL;
}

static bool parse_take(struct parse *parse, const char *text)
{
    size_t length = strlen(text);

    if ((size_t)(parse->end - parse->at) < length || memcmp(parse->at, text, length) != 0)
        return false;
    parse->at += length;
    return true;
}

/* Parses a decimal number in its one spelling: no sign, no leading zeros. */
static bool parse_number(struct parse *parse, uint64_t *number)
{
    const char *begin = parse->at;
    uint64_t value = 0;

    while (parse->at < parse->end && *parse->at >= '0' && *parse->at <= '9') {
        if (__builtin_mul_overflow(value, (uint64_t)10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*parse->at - '0'), &value))
            return false;
        parse->at++;
    }
    *number = value;
    return parse->at > begin && (*begin != '0' || parse->at == begin + 1);
}

static int hex_value(char digit)
{
    const char *found = digit ? strchr(HEX_DIGITS, digit) : NULL;

    return found ? (int)(found - HEX_DIGITS) : -1;
}

static bool parse_hex(struct parse *parse, uint8_t *bytes, size_t count)
{
    if ((size_t)(parse->end - parse->at) < 2 * count)
        return false;
    for (size_t i = 0; i < count; i++) {
        int high = hex_value(parse->at[0]), low = hex_value(parse->at[1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
        parse->at += 2;
    }
    return true;
}

static bool is_plain(char byte)
{
    return (unsigned char)byte > ' ' && byte != 0x7f && byte != '\\';
}

/* Parses one byte of a text, written \xHH if it is not plain; -1: invalid. */
static int parse_byte(struct parse *parse)
{
    uint8_t byte;

    if (is_plain(*parse->at))
        return (unsigned char)*parse->at++;
    if (!parse_take(parse, "\\x") || !parse_hex(parse, &byte, 1) || is_plain((char)byte) || !byte)
        return -1;
    return byte;
}

/* Parses to the end of the line, 1..most bytes. */
static int parse_text(struct parse *parse, size_t most, char **text)
{
    const char *end = memchr(parse->at, '\n', (size_t)(parse->end - parse->at));
    size_t length = 0;
    int byte;

    if (!end || end == parse->at)
        return parse_fail(parse, "a name is missing");
    *text = malloc((size_t)(end - parse->at) + 1);
    if (!*text)
        return -ENOMEM;
    while (parse->at < end) {
        byte = parse_byte(parse);
        if (byte < 0 || parse->at > end || length == most) {
            (*text)[length] = '\0';
            return parse_fail(parse, "a name is spelled wrongly, or too long");
        }
        (*text)[length++] = (char)byte;
    }
    (*text)[length] = '\0';
    return 0;
}

static int parse_end_of_line(struct parse *parse)
{
    if (!parse_take(parse, "\n"))
        return parse_fail(parse, "the line does not end where it should");
    parse->line++;
    return 0;
}

/* ---- lines --------------------------------------------------------------------------------- */

static int line_number(struct parse *parse, const char *word, uint64_t most, uint64_t *number)
{
    if (!parse_take(parse, word) || !parse_take(parse, " ") || !parse_number(parse, number))
        return parse_fail(parse, "'%s' and a number are expected", word);
    if (*number > most)
        return parse_fail(parse, "'%s' is at most %" PRIu64, word, most);
    return parse_end_of_line(parse);
}

static int line_digest(struct parse *parse, const char *word, uint8_t digest[IMAGE_DIGEST_BYTES])
{
    if (!parse_take(parse, word) || !parse_take(parse, " ") ||
        !parse_hex(parse, digest, IMAGE_DIGEST_BYTES))
        return parse_fail(parse, "'%s' and 32 hex digits are expected", word);
    return parse_end_of_line(parse);
}

static int line_version(struct parse *parse)
{
    if (!parse_take(parse, "gmsfs-image "))
        return parse_fail(parse, "not a manifest of an image");
    if (parse_take(parse, VERSION_TEXT "\n")) {
        parse->line++;
        return 0;
    }
    parse_fail(parse, "a version of the format that this gmsfs does not know");
    return -EPROTONOSUPPORT;
}

static int line_store(struct parse *parse, struct image_manifest *manifest)
{
    int error;

    if (!parse_take(parse, "store "))
        return parse_fail(parse, "'store' and a name are expected");
    error = parse_text(parse, IMAGE_MAX_STORE_BYTES, &manifest->store);
    return error ? error : parse_end_of_line(parse);
}

static int decode_head(struct parse *parse, struct image_manifest *manifest, uint64_t *count)
{
    int error = line_version(parse);

    if (!error)
        error = line_digest(parse, "layout_hash", manifest->layout_hash);
    if (!error)
        error = line_number(parse, "layout_bytes", IMAGE_MAX_LAYOUT_BYTES, &manifest->layout_bytes);
    if (!error)
        error = line_number(parse, "granularity", INT64_MAX, &manifest->granularity_bytes);
    if (!error)
        error = line_number(parse, "piece_bytes", IMAGE_MAX_PIECE_BYTES, &manifest->piece_bytes);
    if (!error)
        error = line_number(parse, "file_bytes", INT64_MAX, &manifest->file_bytes);
    if (!error)
        error = line_number(parse, "generation", UINT64_MAX, &manifest->generation);
    if (!error)
        error = line_digest(parse, "group", manifest->group);
    if (!error)
        error = line_digest(parse, "store_id", manifest->store_id);
    if (!error)
        error = line_store(parse, manifest);
    if (!error)
        error = line_number(parse, "saved", INT64_MAX, &manifest->saved_s);
    if (!error)
        error = line_number(parse, "allocations", IMAGE_MAX_ALLOCATIONS, count);
    return error;
}

static int decode_name(struct parse *parse, char **name)
{
    char key[NAME_MAX_BYTES + 1];
    int error = parse_text(parse, IMAGE_MAX_NAME_BYTES, name);

    if (!error && name_decode_key(*name, key) < 0)
        error = parse_fail(parse, "no allocation can be called '%s'", *name);
    return error;
}

static int decode_allocation(struct parse *parse, size_t rank, struct image_allocation *allocation)
{
    uint64_t number;
    int error;

    if (!parse_take(parse, "allocation ") || !parse_number(parse, &number) || number != rank ||
        !parse_take(parse, " ") || !parse_number(parse, &allocation->size_bytes) ||
        !parse_take(parse, " ") || !parse_number(parse, &allocation->stored_bytes) ||
        !parse_take(parse, " "))
        return parse_fail(parse, "'allocation %zu' with two sizes and a name is expected", rank);
    error = decode_name(parse, &allocation->name);
    return error ? error : parse_end_of_line(parse);
}

static int compare_names(const void *left, const void *right)
{
    const struct image_allocation *const *l = left, *const *r = right;

    return strcmp((*l)->name, (*r)->name);
}

/* Checks that names are unique, because they are files of one directory. */
static int decode_check_names(struct parse *parse, const struct image_manifest *manifest)
{
    size_t count = manifest->allocation_count;
    const struct image_allocation **sorted = calloc(count + 1, sizeof(struct image_allocation *));
    int error = 0;

    if (!sorted)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        sorted[i] = &manifest->allocations[i];
    qsort(sorted, count, sizeof(struct image_allocation *), compare_names);
    for (size_t i = 1; !error && i < count; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            error = parse_fail(parse, "the allocations before it have the name '%s' twice",
                               sorted[i]->name);
    free(sorted);
    return error;
}

static int decode_allocations(struct parse *parse, struct image_manifest *manifest, uint64_t count)
{
    int error = 0;

    if (count > (size_t)(parse->end - parse->at)) /* a line has more than one byte */
        return parse_fail(parse, "cut off");
    manifest->allocations = calloc((size_t)count + 1, sizeof(*manifest->allocations));
    if (!manifest->allocations)
        return -ENOMEM;
    manifest->allocation_count = (size_t)count;
    for (size_t i = 0; !error && i < count; i++)
        error = decode_allocation(parse, i, &manifest->allocations[i]);
    return error ? error : decode_check_names(parse, manifest);
}

/* Counts before planning, so that no short text makes a large plan. */
static int decode_plan(struct parse *parse, struct image_manifest *manifest, bool unfinished)
{
    uint64_t pieces, files, bytes;
    int error = line_number(parse, "pieces", IMAGE_MAX_PIECES, &pieces);

    if (!error)
        error = line_number(parse, "files", IMAGE_MAX_PIECES, &files);
    if (!error)
        error = line_number(parse, "bytes", INT64_MAX, &bytes);
    if (error)
        return error;
    error = plan_count(manifest);
    if (error == -EINVAL)
        return parse_fail(parse, "the sizes of allocations, pieces or files make no sense");
    if (error == -E2BIG)
        return parse_fail(parse, "more than %u pieces", IMAGE_MAX_PIECES);
    if (pieces != manifest->piece_count || bytes != manifest->stored_bytes)
        return parse_fail(parse, "pieces or bytes are not as many as the allocations make");
    if (!unfinished && pieces > (size_t)(parse->end - parse->at) / PIECE_LEAST_BYTES)
        return parse_fail(parse, "cut off: pieces are missing");
    error = image_manifest_plan(manifest);
    if (!error && files != manifest->file_count)
        return parse_fail(parse, "files are not as many as the allocations make");
    return error;
}

/* Finds the planned piece of the line; NULL: none. */
static struct image_piece *decode_find(const struct image_manifest *manifest,
                                       const struct image_piece *read)
{
    const struct image_allocation *allocation;
    struct image_piece *piece;

    if (read->rank >= manifest->allocation_count)
        return NULL;
    allocation = &manifest->allocations[read->rank];
    if (read->offset_bytes / manifest->piece_bytes >= allocation->piece_count)
        return NULL;
    piece = &manifest->pieces[allocation->first_piece + read->offset_bytes / manifest->piece_bytes];
    if (piece->offset_bytes != read->offset_bytes || piece->size_bytes != read->size_bytes ||
        piece->file != read->file || piece->file_offset_bytes != read->file_offset_bytes)
        return NULL;
    return piece;
}

static int decode_piece(struct parse *parse, struct image_manifest *manifest,
                        struct image_piece **found)
{
    struct image_piece read = {0};

    if (!parse_take(parse, "piece ") || !parse_number(parse, &read.rank) ||
        !parse_take(parse, " ") || !parse_number(parse, &read.offset_bytes) ||
        !parse_take(parse, " ") || !parse_number(parse, &read.size_bytes) ||
        !parse_take(parse, " ") || !parse_number(parse, &read.file) || !parse_take(parse, " ") ||
        !parse_number(parse, &read.file_offset_bytes) || !parse_take(parse, " ") ||
        !parse_hex(parse, read.sum, IMAGE_DIGEST_BYTES))
        return parse_fail(parse, "'piece' with five numbers and a sum is expected");
    *found = decode_find(manifest, &read);
    if (!*found)
        return parse_fail(parse, "a piece lies elsewhere than the sizes say");
    memcpy((*found)->sum, read.sum, IMAGE_DIGEST_BYTES);
    (*found)->done = true;
    return parse_end_of_line(parse);
}

/* Decodes all pieces in order, the sum of the text, and the end of the text. */
static int decode_finish(struct parse *parse, struct image_manifest *manifest)
{
    uint8_t sum[IMAGE_DIGEST_BYTES], read[IMAGE_DIGEST_BYTES];
    struct image_piece *piece;
    int error = 0;

    for (size_t i = 0; !error && i < manifest->piece_count; i++) {
        error = decode_piece(parse, manifest, &piece);
        if (!error && piece != &manifest->pieces[i])
            error = parse_fail(parse, "the pieces are not in their order");
    }
    if (error)
        return error;
    image_digest(parse->begin, (size_t)(parse->at - parse->begin), sum);
    error = line_digest(parse, "end", read);
    if (error)
        return error;
    if (parse->at != parse->end)
        return parse_fail(parse, "something follows the end");
    if (memcmp(sum, read, sizeof(sum)) != 0)
        return parse_fail(parse, "damaged: its sum is another");
    return 0;
}

/* Decodes pieces in any order; the same piece may be written again. */
static int decode_pieces(struct parse *parse, struct image_manifest *manifest)
{
    struct image_piece *piece;
    int error = 0;

    while (!error && memchr(parse->at, '\n', (size_t)(parse->end - parse->at)))
        error = decode_piece(parse, manifest, &piece);
    return error;
}

int image_manifest_decode(const char *text, size_t text_bytes, bool unfinished,
                          struct image_manifest *manifest, struct image_error *wrong)
{
    struct parse parse = {text, text + text_bytes, text, 1, wrong};
    uint64_t count;
    int error;

    memset(manifest, 0, sizeof(*manifest));
    memset(wrong, 0, sizeof(*wrong));
    if (text_bytes > IMAGE_MANIFEST_MAX_BYTES)
        return parse_fail(&parse, "more than %u bytes", IMAGE_MANIFEST_MAX_BYTES);
    error = decode_head(&parse, manifest, &count);
    if (!error)
        error = decode_allocations(&parse, manifest, count);
    if (!error)
        error = decode_plan(&parse, manifest, unfinished);
    if (!error)
        error = unfinished ? decode_pieces(&parse, manifest) : decode_finish(&parse, manifest);
    return error;
}
