/* SPDX-License-Identifier: Apache-2.0 */
/*
 * reader_manifest - an image's manifest and layout, made of a store that is held by a reader
 *
 * For the commands that write a whole store elsewhere: into an image, or into other stores. Errors
 * are printed here, once.
 */
#ifndef GMSFS_CLI_READER_MANIFEST_H
#define GMSFS_CLI_READER_MANIFEST_H

#include "cli/reader.h"
#include "image/image.h"

struct reader_manifest {
    struct image_manifest manifest; /* without pieces, and the sizes of pieces and files */
    uint8_t *layout;                /* the bytes of the file `layout` */
    size_t layout_bytes;
};

/* threads: that look behind the sizes of the allocations; 0: as many as are best. CLI_OK or
 * CLI_FAILURE; in any case the caller frees the manifest and `layout`. The struct begins as
 * zeros. */
int reader_make_manifest(const struct reader *reader, uint64_t threads,
                         struct reader_manifest *made);

#endif
