/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_pieces - a store on other nodes, as an image that can be loaded
 *
 * Pure: no I/O. For `gmsfs pull`. The texts `pieces` and `layout` of a store tell all that the
 * manifest of an image tells; each allocation is one data file. Both texts are hostile: they count
 * only if the contents id follows from them.
 */
#ifndef GMSFS_IMAGE_IMAGE_PIECES_H
#define GMSFS_IMAGE_IMAGE_PIECES_H

#include "base/digest.h"
#include "image/image_layout.h"
#include "image/image_manifest.h"
#include "meta/pieces.h"

/* Makes the id of the contents from the sums of a whole image. -ENODATA: they do not give one: its
 * pieces have another size than a store's, or it keeps bytes behind a size. -ENOMEM */
int image_pieces_make_id(const struct image_manifest *manifest, const struct image_layout *layout,
                         uint8_t id[DIGEST_BYTES]);
/*
 * Makes manifest and layout of an image of the contents `id`. Takes over layout_bytes (from malloc)
 * in any case. -EPROTO with *why: the texts do not have this id; -ENOMEM. Free both in any case.
 */
int image_pieces_open(const uint8_t id[DIGEST_BYTES], const char *text, size_t text_bytes,
                      uint8_t *layout_bytes, size_t layout_size_bytes,
                      struct image_manifest *manifest, struct image_layout *layout,
                      const char **why);

#endif
