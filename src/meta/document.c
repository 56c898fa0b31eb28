/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes documents of clients and the file `layout`. The shape is fixed, so nothing recurses; a
 * vector is allocated only if the bytes that are left can hold that many items.
 */
#include "layout_internal.h"

#include "base/clean.h"
#include "name.h"
#include "pack/unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALLOCATION_LEAST_BYTES 4u /* array, two numbers, empty str */
#define ROW_LEAST_BYTES        7u /* array, str of one byte, nil, number, empty bin */

struct document_allocation {
    uint64_t size_bytes;
    uint64_t aligned_bytes;
    const char *tag;
    size_t tag_bytes;
};

struct layout_document {
    bool has_version;
    bool has_allocations;
    bool has_rows;
    struct document_allocation *allocations;
    size_t allocation_count;
    struct layout_put *rows; /* slots are ranks, serials are row numbers */
    size_t row_count;
    bool unsorted;
};

/* Reads the head of an array of at most `most` items of at least `least` bytes each. */
static int decode_count(struct unpack *unpack, uint32_t most, size_t least, uint32_t *count)
{
    int error = unpack_array(unpack, count);

    if (error < 0)
        return error;
    if (*count > unpack_left(unpack) / least)
        return -EINVAL;
    return *count > most ? -ENOSPC : 0;
}

/* Reads the head of an array of exactly `expected` items. */
static int decode_tuple(struct unpack *unpack, uint32_t expected)
{
    uint32_t count;
    int error = unpack_array(unpack, &count);

    if (error < 0)
        return error;
    return count == expected ? 0 : -EINVAL;
}

static int decode_version(struct layout_document *document, struct unpack *unpack)
{
    uint64_t version;
    int error = unpack_uint(unpack, &version);

    if (error < 0)
        return error;
    if (document->has_version || version != 1)
        return -EINVAL;
    document->has_version = true;
    return 0;
}

static int decode_allocation(struct document_allocation *allocation, struct unpack *unpack,
                             uint64_t *total_bytes)
{
    int error = decode_tuple(unpack, 3);

    if (error == 0)
        error = unpack_uint(unpack, &allocation->size_bytes);
    if (error == 0)
        error = unpack_uint(unpack, &allocation->aligned_bytes);
    if (error == 0)
        error = unpack_str(unpack, &allocation->tag, &allocation->tag_bytes);
    if (error < 0)
        return error;
    if (allocation->aligned_bytes < allocation->size_bytes ||
        allocation->aligned_bytes > UINT64_MAX - *total_bytes)
        return -EINVAL;
    *total_bytes += allocation->aligned_bytes;

    /* A layout's tags end at a NUL, so a NUL inside is invalid. */
    if (allocation->tag_bytes > LAYOUT_MAX_TAG_BYTES ||
        memchr(allocation->tag, '\0', allocation->tag_bytes) ||
        !clean_is_utf8(allocation->tag, allocation->tag_bytes))
        return -EINVAL;
    return 0;
}

static int decode_allocations(struct layout_document *document, struct unpack *unpack)
{
    uint64_t total_bytes = 0;
    uint32_t count;

    if (document->has_allocations)
        return -EINVAL;
    document->has_allocations = true;
    int error = decode_count(unpack, LAYOUT_MAX_ALLOCATIONS, ALLOCATION_LEAST_BYTES, &count);
    if (error < 0)
        return error;
    document->allocations = calloc((size_t)count + 1, sizeof document->allocations[0]);
    if (!document->allocations)
        return -ENOMEM;
    document->allocation_count = count;
    for (uint32_t i = 0; i < count && error == 0; i++)
        error = decode_allocation(&document->allocations[i], unpack, &total_bytes);
    return error;
}

static int compare_keys(const struct layout_put *a, const struct layout_put *b)
{
    return layout_compare_keys(a->key, a->key_bytes, b->key, b->key_bytes);
}

static int decode_row(struct layout_put *row, struct unpack *unpack)
{
    const uint8_t *value;
    const char *key;
    int error = decode_tuple(unpack, 4);

    if (error == 0)
        error = unpack_str(unpack, &key, &row->key_bytes);
    if (error < 0)
        return error;
    row->key = key;
    error = name_check_key(key, row->key_bytes);
    if (error < 0)
        return error;
    if (unpack_nil(unpack)) {
        row->slot = LAYOUT_UNBOUND;
    } else {
        error = unpack_uint(unpack, &row->slot);
        if (error < 0 || row->slot >= LAYOUT_MAX_ALLOCATIONS)
            return -EINVAL;
    }
    error = unpack_uint(unpack, &row->offset);
    if (error == 0)
        error = unpack_bin(unpack, &value, &row->value_bytes);
    if (error == 0)
        row->value = value;
    if (error == 0 && row->value_bytes > LAYOUT_MAX_VALUE_BYTES)
        error = -EINVAL;
    return error;
}

static int decode_rows(struct layout_document *document, struct unpack *unpack, uint64_t *culprit)
{
    uint64_t entry_bytes = 0;
    uint32_t count;

    if (document->has_rows)
        return -EINVAL;
    document->has_rows = true;
    int error = decode_count(unpack, LAYOUT_MAX_ENTRIES, ROW_LEAST_BYTES, &count);
    if (error < 0)
        return error;
    document->rows = malloc(((size_t)count + 1) * sizeof document->rows[0]);
    if (!document->rows)
        return -ENOMEM;
    document->row_count = count;
    for (uint32_t i = 0; i < count; i++) {
        struct layout_put *row = &document->rows[i];

        *row = (struct layout_put){.serial = i};
        error = decode_row(row, unpack);
        entry_bytes += row->key_bytes + row->value_bytes;
        if (error == 0 && entry_bytes > LAYOUT_MAX_ENTRY_BYTES)
            error = -ENOSPC;
        if (error < 0) {
            *culprit = i;
            return error;
        }
        document->unsorted |= i > 0 && compare_keys(row - 1, row) > 0;
    }
    return 0;
}

static bool key_is(const char *key, size_t key_bytes, const char *expected)
{
    return key_bytes == strlen(expected) && memcmp(key, expected, key_bytes) == 0;
}

/* Ranks are checked last, because "metadata" may come before "allocations". */
static int check_ranks(const struct layout_document *document, uint64_t *culprit)
{
    for (size_t i = 0; document->has_allocations && i < document->row_count; i++) {
        uint64_t rank = document->rows[i].slot;
        if (rank != LAYOUT_UNBOUND && rank >= document->allocation_count) {
            *culprit = i;
            return -EINVAL;
        }
    }
    return 0;
}

static int decode_map(struct layout_document *document, struct unpack *unpack, uint64_t *culprit)
{
    uint32_t count;
    int error = unpack_map(unpack, &count);

    for (uint32_t i = 0; error == 0 && i < count; i++) {
        const char *key;
        size_t key_bytes;

        error = unpack_str(unpack, &key, &key_bytes);
        if (error < 0)
            return error;
        if (key_is(key, key_bytes, "v"))
            error = decode_version(document, unpack);
        else if (key_is(key, key_bytes, "allocations"))
            error = decode_allocations(document, unpack);
        else if (key_is(key, key_bytes, "metadata"))
            error = decode_rows(document, unpack, culprit);
        else
            error = -EINVAL;
    }
    if (error < 0)
        return error;
    if (!document->has_version || !document->has_rows || unpack_left(unpack) > 0)
        return -EINVAL;
    return check_ranks(document, culprit);
}

int layout_document_decode(const void *bytes, size_t size, struct layout_document **document,
                           uint64_t *culprit)
{
    struct layout_document *decoded = NULL;
    struct unpack unpack;

    *culprit = UINT64_MAX;
    if (size == 0)
        return -EINVAL;
    unpack = (struct unpack){bytes, (const uint8_t *)bytes + size};
    decoded = calloc(1, sizeof *decoded);
    if (!decoded)
        return -ENOMEM;
    int error = decode_map(decoded, &unpack, culprit);
    if (error < 0) {
        layout_document_free(decoded);
        return error;
    }
    *document = decoded;
    return 0;
}

void layout_document_free(struct layout_document *document)
{
    if (!document)
        return;
    free(document->allocations);
    free(document->rows);
    free(document);
}

bool layout_document_has_allocations(const struct layout_document *document)
{
    return document->has_allocations;
}

size_t layout_document_count_allocations(const struct layout_document *document)
{
    return document->allocation_count;
}

void layout_document_allocation(const struct layout_document *document, size_t rank,
                                uint64_t *size_bytes, uint64_t *aligned_bytes, const char **tag,
                                size_t *tag_bytes)
{
    const struct document_allocation *allocation = &document->allocations[rank];

    *size_bytes = allocation->size_bytes;
    *aligned_bytes = allocation->aligned_bytes;
    *tag = allocation->tag;
    *tag_bytes = allocation->tag_bytes;
}

size_t layout_document_count_rows(const struct layout_document *document)
{
    return document->row_count;
}

void layout_document_row(const struct layout_document *document, size_t index,
                         struct layout_row *row)
{
    const struct layout_put *put = &document->rows[index];

    *row = (struct layout_row){
        .key = put->key,
        .key_bytes = put->key_bytes,
        .rank = put->slot,
        .offset = put->offset,
        .value = put->value,
        .value_bytes = put->value_bytes,
    };
}

/* Sorts by key; rows of one key keep the order of the document. */
static int compare_rows(const void *left, const void *right)
{
    const struct layout_put *a = left, *b = right;
    int order = compare_keys(a, b);

    return order != 0 ? order : (a->serial > b->serial) - (a->serial < b->serial);
}

struct layout_put *layout_document_take_puts(struct layout_document *document, size_t *count)
{
    struct layout_put *puts = document->rows;

    if (document->unsorted)
        qsort(puts, document->row_count, sizeof *puts, compare_rows);
    *count = document->row_count;
    document->rows = NULL;
    document->row_count = 0;
    return puts;
}
