/* SPDX-License-Identifier: Apache-2.0 */
/*
 * document_check - checks of every document that the daemon accepts
 *
 * For the two targets of documents, after fuzz.h.
 */
#ifndef GMSFS_TESTS_FUZZ_DOCUMENT_CHECK_H
#define GMSFS_TESTS_FUZZ_DOCUMENT_CHECK_H

#include "gfs_msgpack.h"
#include "meta/layout.h"
#include "meta/name.h"

#include <errno.h>

static void check_row(const struct layout_document *document, size_t index)
{
    char name[NAME_MAX_BYTES + 1];
    struct layout_row row;

    layout_document_row(document, index, &row);
    must(name_encode_key(row.key, row.key_bytes, name) > 0);
    must(row.value_bytes <= LAYOUT_MAX_VALUE_BYTES);
    must(row.rank == LAYOUT_UNBOUND || row.rank < LAYOUT_MAX_ALLOCATIONS);
    must(row.rank == LAYOUT_UNBOUND || !layout_document_has_allocations(document) ||
         row.rank < layout_document_count_allocations(document));
}

/* Returns NULL if it is refused. The caller frees it, and keeps `data` until then. */
static struct layout_document *decode_checked(const uint8_t *data, size_t size)
{
    struct layout_document *document = NULL;
    uint64_t culprit = 0;
    int error = layout_document_decode(data, size, &document, &culprit);

    must(error == 0 || error == -EINVAL || error == -ENAMETOOLONG || error == -ENOSPC);
    if (error) {
        must(document == NULL && (culprit == UINT64_MAX || culprit < size));
        return NULL;
    }
    must(layout_document_count_rows(document) < size);
    must(layout_document_count_allocations(document) < size);
    for (size_t i = 0; i < layout_document_count_rows(document); i++)
        check_row(document, i);
    return document;
}

/* Writes with the library's writer: the daemon's reader and the clients' writer are two
 * programs. */
static void write_document(const struct layout_document *document, struct gfs_writer *writer)
{
    bool with_allocations = layout_document_has_allocations(document);

    gfs_write_map(writer, with_allocations ? 3 : 2);
    gfs_write_text(writer, "v", 1);
    gfs_write_uint(writer, 1);
    if (with_allocations) {
        gfs_write_text(writer, "allocations", 11);
        gfs_write_array(writer, (uint32_t)layout_document_count_allocations(document));
    }
    for (size_t i = 0; i < layout_document_count_allocations(document); i++) {
        uint64_t size_bytes, aligned_bytes;
        const char *tag;
        size_t tag_bytes;

        layout_document_allocation(document, i, &size_bytes, &aligned_bytes, &tag, &tag_bytes);
        gfs_write_array(writer, 3);
        gfs_write_uint(writer, size_bytes);
        gfs_write_uint(writer, aligned_bytes);
        gfs_write_text(writer, tag, tag_bytes);
    }
    gfs_write_text(writer, "metadata", 8);
    gfs_write_array(writer, (uint32_t)layout_document_count_rows(document));
    for (size_t i = 0; i < layout_document_count_rows(document); i++) {
        struct layout_row row;

        layout_document_row(document, i, &row);
        gfs_write_array(writer, 4);
        gfs_write_text(writer, row.key, row.key_bytes);
        if (row.rank == LAYOUT_UNBOUND)
            gfs_write_nil(writer);
        else
            gfs_write_uint(writer, row.rank);
        gfs_write_uint(writer, row.offset);
        gfs_write_binary(writer, row.value, row.value_bytes);
    }
    must(!writer->failed);
}

static void check_same_rows(const struct layout_document *a, const struct layout_document *b)
{
    must(layout_document_count_rows(a) == layout_document_count_rows(b));
    for (size_t i = 0; i < layout_document_count_rows(a); i++) {
        struct layout_row x, y;

        layout_document_row(a, i, &x);
        layout_document_row(b, i, &y);
        must(fuzz_same(x.key, x.key_bytes, y.key, y.key_bytes));
        must(fuzz_same(x.value, x.value_bytes, y.value, y.value_bytes));
        must(x.rank == y.rank && x.offset == y.offset);
    }
}

/* Written and read again it is the same, and no longer than before. */
static void check_again(const struct layout_document *document, size_t size)
{
    struct gfs_writer writer = {0};
    struct layout_document *again;

    write_document(document, &writer);
    must(writer.size_bytes <= size);
    again = decode_checked(writer.bytes, writer.size_bytes);
    must(again != NULL);
    must(layout_document_has_allocations(again) == layout_document_has_allocations(document));
    check_same_rows(document, again);
    layout_document_free(again);
    free(writer.bytes);
}

/* Puts all rows; of a repeated key the last counts. `layout` has slots 0.. without a gap. */
static void put_rows(struct layout *layout, const struct layout_document *document)
{
    size_t count = layout_document_count_rows(document), culprit = 0;
    struct layout_put *puts = calloc(count + 1, sizeof *puts);

    must(puts != NULL);
    for (size_t i = 0; i < count; i++) {
        struct layout_row row;

        layout_document_row(document, i, &row);
        puts[i] = (struct layout_put){.key = row.key,
                                      .key_bytes = row.key_bytes,
                                      .slot = row.rank,
                                      .offset = row.offset,
                                      .value = row.value,
                                      .value_bytes = row.value_bytes,
                                      .serial = 1000000 + i};
    }
    must(layout_put_many(layout, puts, count, true, &culprit) == 0);
    must(layout_count_entries(layout) <= count);
    free(puts);
}

#endif
