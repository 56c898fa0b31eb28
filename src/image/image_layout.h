/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image_layout - the canonical layout in an image
 *
 * Pure: no I/O. For readers of images, and tests. Treats the bytes as hostile: a layout that opens
 * is one that a store would commit, in canonical form.
 */
#ifndef GMSFS_IMAGE_IMAGE_LAYOUT_H
#define GMSFS_IMAGE_IMAGE_LAYOUT_H

#include "image/image_manifest.h"

#include <stddef.h>
#include <stdint.h>

struct layout_document;

struct image_layout {
    uint8_t *bytes;
    size_t size_bytes;
    struct layout_document *document; /* points into bytes */
    size_t allocation_count, entry_count;
};

struct image_layout_allocation {
    uint64_t size_bytes, aligned_bytes;
    const char *tag; /* not terminated */
    size_t tag_bytes;
};

/*
 * Takes over `bytes` (from malloc) in any case. -EINVAL with *why, a constant: not a layout, not
 * canonical, or one that no store commits; -ENOMEM. Call image_layout_close() in any case.
 */
int image_layout_open(uint8_t *bytes, size_t size_bytes, struct image_layout *layout,
                      const char **why);
void image_layout_close(struct image_layout *layout);

void image_layout_get(const struct image_layout *layout, size_t rank,
                      struct image_layout_allocation *allocation);

/* Returns the hash of the layout with these aligned sizes of its allocations, by rank. -EINVAL: a
 * size or their sum is invalid; -ENOMEM. */
int image_layout_hash(const struct image_layout *layout, const uint64_t *aligned_bytes,
                      uint8_t hash[DIGEST_BYTES]);

/*
 * Returns the entries from `first` on as a bulk metadata document for a store's `ctl`, of about
 * most_bytes or one entry; the caller frees *document. *count of them are in it; 0 after the last,
 * without a document. -ENOMEM.
 */
int image_layout_bulk(const struct image_layout *layout, size_t first, size_t most_bytes,
                      uint8_t **document, size_t *document_bytes, size_t *count);

/* An entry for a list. rank: UINT64_MAX if it is unbound. The key is not terminated. */
struct image_layout_entry {
    const char *key;
    size_t key_bytes;
    uint64_t rank, offset_bytes;
    size_t value_bytes;
};

void image_layout_entry(const struct image_layout *layout, size_t index,
                        struct image_layout_entry *entry);

#endif
