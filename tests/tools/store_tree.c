/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes the files of a store that a pull asks for into a directory, as a mount shows them.
 *
 *   store_tree IMAGE DIRECTORY   IMAGE: of `gmsfs image save`; prints the id of the contents
 *
 * So a test can serve a store without a second mount, and damage it.
 */
#include "image/image.h"
#include "image/image_pieces.h"
#include "tool.h"

#include "base/digest.h"
#include "meta/pieces.h"

#include <inttypes.h>
#include <sys/stat.h>

static struct image image;
static struct pieces pieces;
static char path[PATH_MAX];
static char id[DIGEST_TEXT_BYTES];
static struct failure failure;

static void make_dir(const char *format, const char *directory)
{
    snprintf(path, sizeof(path), format, directory, id);
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        tool_die("%s: %s", path, strerror(errno));
}

static void append(const char *name, const void *bytes, size_t size_bytes)
{
    FILE *file = fopen(name, "a");

    if (!file || fwrite(bytes, 1, size_bytes, file) != size_bytes || fclose(file) != 0)
        tool_die("%s: %s", name, strerror(errno));
}

/* Takes sizes, names and sums of the manifest. */
static void make_pieces(void)
{
    const struct image_manifest *manifest = &image.manifest;

    pieces.allocations = calloc(manifest->allocation_count + 1, sizeof(*pieces.allocations));
    pieces.sums = calloc(manifest->piece_count + 1, DIGEST_BYTES);
    if (!pieces.allocations || !pieces.sums)
        tool_die("out of memory");
    pieces.allocation_count = manifest->allocation_count;
    pieces.piece_count = manifest->piece_count;
    for (size_t i = 0; i < pieces.allocation_count; i++) {
        const struct image_allocation *from = &manifest->allocations[i];

        pieces.allocations[i] = (struct pieces_allocation){from->size_bytes, from->name,
                                                           from->first_piece, from->piece_count};
    }
    for (size_t i = 0; i < pieces.piece_count; i++)
        memcpy(pieces.sums[i], manifest->pieces[i].sum, DIGEST_BYTES);
    if (image_pieces_make_id(manifest, &image.layout, pieces.id) != 0)
        tool_die("the image's sums give no id of its contents");
    digest_text(pieces.id, id);
}

static void write_texts(const char *directory)
{
    size_t bytes;
    char *text;

    if (pieces_encode(&pieces, &text, &bytes) != 0)
        tool_die("out of memory");
    snprintf(path, sizeof(path), "%s/pieces", directory);
    append(path, text, bytes);
    snprintf(path, sizeof(path), "%s/by-id/%s/pieces", directory, id);
    append(path, text, bytes);
    snprintf(path, sizeof(path), "%s/by-id/%s/layout", directory, id);
    append(path, image.layout.bytes, image.layout.size_bytes);
    free(text);
}

static void write_piece(const char *directory, const struct image_piece *piece)
{
    uint8_t *bytes = malloc(piece->size_bytes);
    size_t file;

    if (!bytes || image_find_file(&image, piece->file, &file, &failure) != 0 ||
        source_read(image.dir.source, file, piece->file_offset_bytes, bytes, piece->size_bytes,
                    &failure) != 0)
        tool_die("%s", failure.text);
    snprintf(path, sizeof(path), "%s/by-id/%s/allocations/%" PRIu64, directory, id, piece->rank);
    append(path, bytes, piece->size_bytes);
    free(bytes);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        tool_die("usage: store_tree IMAGE DIRECTORY");
    if (image_open(&image, argv[1], &failure) != 0)
        tool_die("%s", failure.text);
    make_pieces();
    make_dir("%s", argv[2]);
    make_dir("%s/by-id", argv[2]);
    make_dir("%s/by-id/%s", argv[2]);
    make_dir("%s/by-id/%s/allocations", argv[2]);
    write_texts(argv[2]);
    for (size_t i = 0; i < image.manifest.piece_count; i++)
        write_piece(argv[2], &image.manifest.pieces[i]);
    puts(id);
    free(pieces.allocations);
    free(pieces.sums);
    image_close(&image);
    return 0;
}
