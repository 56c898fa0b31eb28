/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image_layout.h"

#include "base/scope.h"
#include "meta/layout.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define WHY_BYTES 256

/* {"v":1, "metadata":[...]} with the array's length in its longest form, which is allowed. */
static const uint8_t bulk_head[] = "\x82\xa1v\x01\xa8metadata\xdd";

#define BULK_HEAD_BYTES  (sizeof(bulk_head) - 1)
#define BULK_COUNT_BYTES 4u

/* ---- building ------------------------------------------------------------------------------ */

static int build_allocation(struct layout *built, const struct image_layout *layout, size_t rank,
                            const uint64_t *aligned_bytes)
{
    struct image_layout_allocation allocation;
    char tag[LAYOUT_MAX_TAG_BYTES + 1];
    uint64_t slot;

    image_layout_get(layout, rank, &allocation);
    memcpy(tag, allocation.tag, allocation.tag_bytes);
    tag[allocation.tag_bytes] = '\0';
    int error = layout_add(built, rank + 1, NULL, tag, &slot);
    if (error)
        return error;
    return layout_set_memory(built, slot, rank + 1, allocation.size_bytes,
                             aligned_bytes ? aligned_bytes[rank] : allocation.aligned_bytes, false);
}

static int build_entries(struct layout *built, const struct image_layout *layout)
{
    SCOPED_FREE struct layout_put *puts = calloc(layout->entry_count + 1, sizeof(*puts));
    struct layout_row row;
    size_t culprit;

    if (!puts)
        return -ENOMEM;
    for (size_t i = 0; i < layout->entry_count; i++) {
        layout_document_row(layout->document, i, &row);
        puts[i] = (struct layout_put){.key = row.key,
                                      .key_bytes = row.key_bytes,
                                      .slot = row.rank,
                                      /* of a new layout they are the same */
                                      .offset = row.offset,
                                      .value = row.value,
                                      .value_bytes = row.value_bytes,
                                      .serial = i + 1};
    }
    return layout_put_many(built, puts, layout->entry_count, false, &culprit);
}

/* Builds the layout that a store would make of the document; aligned_bytes NULL: unchanged. */
static int build(const struct image_layout *layout, const uint64_t *aligned_bytes,
                 struct layout **out)
{
    struct layout *built = layout_new();
    int error = built ? 0 : -ENOMEM;

    for (size_t i = 0; !error && i < layout->allocation_count; i++)
        error = build_allocation(built, layout, i, aligned_bytes);
    if (!error)
        error = build_entries(built, layout);
    if (error)
        layout_free(built);
    else
        *out = built;
    return error;
}

/* ---- opening ------------------------------------------------------------------------------- */

static int check_canonical(const struct image_layout *layout, const struct layout *built,
                           const char **why)
{
    SCOPED_FREE uint8_t *again = NULL;
    size_t again_bytes;
    int error = layout_encode(built, &again, &again_bytes);

    if (error)
        return error;
    if (again_bytes != layout->size_bytes || memcmp(again, layout->bytes, again_bytes) != 0) {
        *why = "it is not spelled canonically";
        error = -EINVAL;
    }
    return error;
}

static int check_layout(const struct image_layout *layout, const char **why)
{
    struct layout *built = NULL;
    char message[WHY_BYTES];
    int error = build(layout, NULL, &built);

    if (!error && layout_check(built, false, message, sizeof(message)) != 0) {
        *why =
            "an allocation has no memory, or an entry points behind its allocation's aligned size";
        error = -EINVAL;
    }
    if (!error)
        error = check_canonical(layout, built, why);
    layout_free(built);
    return error;
}

int image_layout_open(uint8_t *bytes, size_t size_bytes, struct image_layout *layout,
                      const char **why)
{
    uint64_t culprit;

    *layout = (struct image_layout){.bytes = bytes, .size_bytes = size_bytes};
    *why = "it is not a canonical layout";
    int error = layout_document_decode(bytes, size_bytes, &layout->document, &culprit);
    if (!error && !layout_document_has_allocations(layout->document))
        error = -EINVAL;
    if (!error) {
        layout->allocation_count = layout_document_count_allocations(layout->document);
        layout->entry_count = layout_document_count_rows(layout->document);
        error = check_layout(layout, why);
    }
    return error == -ENOMEM || !error ? error : -EINVAL;
}

void image_layout_close(struct image_layout *layout)
{
    layout_document_free(layout->document);
    free(layout->bytes);
    memset(layout, 0, sizeof(*layout));
}

/* ---- looking ------------------------------------------------------------------------------- */

void image_layout_get(const struct image_layout *layout, size_t rank,
                      struct image_layout_allocation *allocation)
{
    layout_document_allocation(layout->document, rank, &allocation->size_bytes,
                               &allocation->aligned_bytes, &allocation->tag,
                               &allocation->tag_bytes);
}

void image_layout_entry(const struct image_layout *layout, size_t index,
                        struct image_layout_entry *entry)
{
    struct layout_row row;

    layout_document_row(layout->document, index, &row);
    *entry = (struct image_layout_entry){.key = row.key,
                                         .key_bytes = row.key_bytes,
                                         .rank = row.rank,
                                         .offset_bytes = row.offset,
                                         .value_bytes = row.value_bytes};
}

int image_layout_hash(const struct image_layout *layout, const uint64_t *aligned_bytes,
                      uint8_t hash[DIGEST_BYTES])
{
    struct layout *built = NULL;
    uint8_t *bytes;
    size_t size_bytes;
    int error = build(layout, aligned_bytes, &built);

    if (!error)
        error = layout_encode(built, &bytes, &size_bytes);
    if (!error) {
        layout_hash(bytes, size_bytes, hash);
        free(bytes);
    }
    layout_free(built);
    return error;
}

/* ---- entries for a store ------------------------------------------------------------------- */

/* Returns the end of the row: of its value. */
static const uint8_t *row_end(const struct image_layout *layout, size_t index)
{
    struct layout_row row;

    layout_document_row(layout->document, index, &row);
    return row.value + row.value_bytes;
}

/* Returns the start of the row: before the key, canonical form has one byte for the array, and one
 * or two for the key's length. */
static const uint8_t *row_begin(const struct image_layout *layout, size_t index)
{
    const size_t fixstr_most_bytes = 31;
    struct layout_row row;

    layout_document_row(layout->document, index, &row);
    return (const uint8_t *)row.key - (row.key_bytes <= fixstr_most_bytes ? 2 : 3);
}

int image_layout_bulk(const struct image_layout *layout, size_t first, size_t most_bytes,
                      uint8_t **document, size_t *document_bytes, size_t *count)
{
    const uint8_t *begin, *end;
    size_t taken = 0;

    *count = 0;
    if (first >= layout->entry_count)
        return 0;
    begin = row_begin(layout, first);
    do {
        end = row_end(layout, first + taken);
        taken++;
    } while (first + taken < layout->entry_count && (size_t)(end - begin) < most_bytes);
    *document_bytes = BULK_HEAD_BYTES + BULK_COUNT_BYTES + (size_t)(end - begin);
    *document = malloc(*document_bytes);
    if (!*document)
        return -ENOMEM;
    memcpy(*document, bulk_head, BULK_HEAD_BYTES);
    for (size_t i = 0; i < BULK_COUNT_BYTES; i++)
        (*document)[BULK_HEAD_BYTES + i] = (uint8_t)(taken >> (8 * (BULK_COUNT_BYTES - 1 - i)));
    memcpy(*document + BULK_HEAD_BYTES + BULK_COUNT_BYTES, begin, (size_t)(end - begin));
    *count = taken;
    return 0;
}
