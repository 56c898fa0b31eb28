/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The manifest of an image, from an untrusted directory. The first byte is the kind: odd for
 * unfinished. A finished one is read with a matching sum too, because no input has one by chance.
 */
#include "fuzz.h"

#include "image/image_manifest.h"

#include <errno.h>

/* No piece lies outside of the files, and no two overlap. */
static void check_plan(const struct image_manifest *manifest, bool unfinished)
{
    uint64_t file = 0, at = 0, stored = 0;
    size_t piece = 0;

    must(manifest->allocation_count <= IMAGE_MAX_ALLOCATIONS);
    must(manifest->piece_count <= IMAGE_MAX_PIECES &&
         manifest->file_count <= manifest->piece_count);
    for (size_t i = 0; i < manifest->allocation_count; i++) {
        const struct image_allocation *allocation = &manifest->allocations[i];
        uint64_t offset = 0;
        must(allocation->name[0] && strlen(allocation->name) <= WORDS_MAX_NAME_BYTES);
        must(allocation->first_piece == piece && allocation->size_bytes > 0);
        for (size_t j = 0; j < allocation->piece_count; j++, piece++) {
            const struct image_piece *read = &manifest->pieces[piece];
            if (read->file != file) {
                must(read->file == file + 1 && manifest->file_sizes[file] == at);
                file++;
                at = 0;
            }
            must(read->rank == i && read->offset_bytes == offset && read->file_offset_bytes == at);
            must(read->size_bytes > 0 && read->size_bytes <= manifest->piece_bytes);
            must(read->done || unfinished);
            at += read->size_bytes;
            offset += read->size_bytes;
            must(at <= manifest->file_bytes);
        }
        must(offset == allocation->stored_bytes && offset >= allocation->size_bytes);
        stored += offset;
    }
    must(piece == manifest->piece_count && stored == manifest->stored_bytes);
    must(file + (piece > 0) == manifest->file_count);
    must(piece == 0 || manifest->file_sizes[file] == at);
}

static int decode(const char *text, size_t size, bool unfinished, struct image_manifest *manifest)
{
    struct words_error error;
    int r = image_manifest_decode(text, size, unfinished, manifest, &error);

    must(r == 0 || r == -EINVAL || r == -EPROTONOSUPPORT);
    must(r == 0 || (error.line > 0 && error.line <= size + 1 && fuzz_is_line(error.text)));
    return r;
}

/* A manifest has one spelling: a finished one gives the same bytes, and either kind decodes to the
 * same again. */
static void check_again(const struct image_manifest *manifest, const char *text, size_t size,
                        bool unfinished)
{
    struct image_manifest again;
    char *written, *twice;
    size_t written_size, twice_size;

    must(image_manifest_encode(manifest, unfinished, &written, &written_size) == 0);
    must(unfinished || fuzz_same(written, written_size, text, size));
    must(decode(written, written_size, unfinished, &again) == 0);
    must(image_manifest_encode(&again, unfinished, &twice, &twice_size) == 0);
    must(fuzz_same(written, written_size, twice, twice_size));
    free(written);
    free(twice);
    image_manifest_free(&again);
}

static void read_text(const char *text, size_t size, bool unfinished)
{
    struct image_manifest manifest;

    if (decode(text, size, unfinished, &manifest) == 0) {
        check_plan(&manifest, unfinished);
        check_again(&manifest, text, size, unfinished);
    }
    image_manifest_free(&manifest);
}

/* Replaces the last line by a matching one. */
static void read_sealed(const char *text, size_t size)
{
    char digits[DIGEST_TEXT_BYTES], *sealed;
    uint8_t sum[DIGEST_BYTES];
    size_t length = size;
    int sealed_size;

    while (length > 0 && (length == size || text[length - 1] != '\n'))
        length--;
    digest_make(text, length, sum);
    sealed = malloc(length + sizeof digits + 8);
    must(sealed != NULL);
    if (length)
        memcpy(sealed, text, length);
    sealed_size =
        snprintf(sealed + length, sizeof digits + 8, "end %s\n", digest_text(sum, digits));
    must(sealed_size > 0);
    read_text(sealed, length + (size_t)sealed_size, false);
    free(sealed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    read_text((const char *)data + 1, size - 1, data[0] & 1);
    if (!(data[0] & 1))
        read_sealed((const char *)data + 1, size - 1);
    return 0;
}
