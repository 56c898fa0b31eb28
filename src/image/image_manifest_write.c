/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding of an image's manifest. */
#include "image/image_manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define FIRST_LINE "gmsfs-image 1\n"

static void write_head(FILE *to, const struct image_manifest *manifest)
{
    fputs(FIRST_LINE, to);
    words_put_digest(to, "layout_hash", manifest->layout_hash);
    fprintf(to, "layout_bytes %" PRIu64 "\n", manifest->layout_bytes);
    fprintf(to, "granularity %" PRIu64 "\n", manifest->granularity_bytes);
    fprintf(to, "piece_bytes %" PRIu64 "\n", manifest->piece_bytes);
    fprintf(to, "file_bytes %" PRIu64 "\n", manifest->file_bytes);
    fprintf(to, "generation %" PRIu64 "\n", manifest->generation);
    words_put_digest(to, "group", manifest->group);
    words_put_digest(to, "store_id", manifest->store_id);
    fputs("store ", to);
    words_put_text(to, manifest->store);
    fprintf(to, "\nsaved %" PRIu64 "\n", manifest->saved_s);
    fprintf(to, "allocations %zu\n", manifest->allocation_count);
    for (size_t i = 0; i < manifest->allocation_count; i++) {
        const struct image_allocation *allocation = &manifest->allocations[i];
        fprintf(to, "allocation %zu %" PRIu64 " %" PRIu64 " ", i, allocation->size_bytes,
                allocation->stored_bytes);
        words_put_text(to, allocation->name);
        putc('\n', to);
    }
    fprintf(to, "pieces %zu\nfiles %zu\nbytes %" PRIu64 "\n", manifest->piece_count,
            manifest->file_count, manifest->stored_bytes);
}

size_t image_manifest_piece_line(const struct image_piece *piece, char line[IMAGE_PIECE_LINE_BYTES])
{
    char sum[DIGEST_TEXT_BYTES];

    return (size_t)snprintf(line, IMAGE_PIECE_LINE_BYTES,
                            "piece %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64
                            " %s\n",
                            piece->rank, piece->offset_bytes, piece->size_bytes, piece->file,
                            piece->file_offset_bytes, digest_text(piece->sum, sum));
}

int image_manifest_encode(const struct image_manifest *manifest, bool unfinished, char **text,
                          size_t *text_bytes)
{
    char line[IMAGE_PIECE_LINE_BYTES] = "";
    FILE *to = open_memstream(text, text_bytes);
    size_t length;

    if (!to)
        return -ENOMEM;
    write_head(to, manifest);
    for (size_t i = 0; i < manifest->piece_count; i++) {
        if (!manifest->pieces[i].done)
            continue;
        length = image_manifest_piece_line(&manifest->pieces[i], line);
        fwrite(line, 1, length, to);
    }
    return words_put_end(to, !unfinished, text, text_bytes);
}
