/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_manifest - the parts of an image of a store, and the text that lists them
 *
 * Pure: no I/O, no clock. For readers and writers of images, and tests. The format is that of
 * gmsfs-image(5): lines of words, in one order and one spelling, so that decoding and encoding give
 * the same bytes. The places of pieces follow from the sizes alone (image_manifest_plan); the lines
 * must agree with them, so a manifest cannot name a place outside of its own files. A manifest is
 * finished, and then ends with a sum of itself, or unfinished: pieces in any order, perhaps a torn
 * last line.
 */
#ifndef GMSFS_IMAGE_IMAGE_MANIFEST_H
#define GMSFS_IMAGE_IMAGE_MANIFEST_H

#include "meta/words.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define IMAGE_MANIFEST_MAX_BYTES (256u << 20)
#define IMAGE_MAX_ALLOCATIONS    65536u     /* as of a store */
#define IMAGE_MAX_PIECES         1048576u   /* and files, which have one or more */
#define IMAGE_MAX_PIECE_BYTES    (1u << 30) /* a reader may hold a piece in memory */
#define IMAGE_MAX_STORE_BYTES    4096u
#define IMAGE_MAX_LAYOUT_BYTES   (2ull << 30)
#define IMAGE_PIECE_LINE_BYTES   160u /* the longest line of a piece */

struct image_allocation {
    uint64_t size_bytes;
    uint64_t stored_bytes; /* size_bytes, or more: bytes that the client wrote behind it */
    char *name;            /* its file in `allocations/` */
    size_t first_piece, piece_count;
};

struct image_piece {
    uint64_t rank, offset_bytes; /* in its allocation */
    uint64_t file, file_offset_bytes;
    uint64_t size_bytes;
    uint8_t sum[DIGEST_BYTES];
    bool done; /* the sum is known */
};

struct image_manifest {
    uint8_t layout_hash[DIGEST_BYTES];
    uint64_t layout_bytes;
    uint64_t granularity_bytes;
    uint64_t piece_bytes, file_bytes; /* maximum of a piece and of a file */
    uint64_t generation;
    uint8_t group[DIGEST_BYTES]; /* zeros: none */
    uint8_t store_id[DIGEST_BYTES];
    char *store; /* its name when saved */
    uint64_t saved_s;
    struct image_allocation *allocations; /* by rank */
    size_t allocation_count;

    /* Planned from the fields above. */
    struct image_piece *pieces; /* by rank and offset, and so by file and offset in it */
    size_t piece_count;
    uint64_t *file_sizes;
    size_t file_count;
    uint64_t stored_bytes;
};

/*
 * Cuts the allocations into pieces, and puts them one after the other into files: a piece that no
 * longer fits begins the next file. Sets the planned fields, which must be empty. -EINVAL: a size
 * is 0 or overflows; -E2BIG: more than IMAGE_MAX_PIECES; -ENOMEM.
 */
int image_manifest_plan(struct image_manifest *manifest);

/*
 * Decodes a text; unfinished: of that kind, the other is an error. Free the result, even after a
 * failure. -EINVAL with `wrong`; -EPROTONOSUPPORT with it: another version; -ENOMEM.
 */
int image_manifest_decode(const char *text, size_t text_bytes, bool unfinished,
                          struct image_manifest *manifest, struct words_error *wrong);
void image_manifest_free(struct image_manifest *manifest);

/* Encodes a text, which the caller frees; unfinished: with the pieces that are done. -ENOMEM. */
int image_manifest_encode(const struct image_manifest *manifest, bool unfinished, char **text,
                          size_t *text_bytes);

/* Writes one line of an unfinished manifest; returns its length. */
size_t image_manifest_piece_line(const struct image_piece *piece,
                                 char line[IMAGE_PIECE_LINE_BYTES]);

/* Returns the number of pieces that are done, and their bytes. */
size_t image_manifest_count_done(const struct image_manifest *manifest, uint64_t *bytes);

#endif
