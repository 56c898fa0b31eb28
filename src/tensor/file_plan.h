/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file_plan - where each byte of a file lies that is made of a store
 *
 * Pure. For the files that `gmsfs save` writes and that the daemon shows. Build each plan twice
 * with the same calls: the first pass counts its parts, file_plan_room() allocates, the second
 * fills them in.
 */
#ifndef GMSFS_TENSOR_FILE_PLAN_H
#define GMSFS_TENSOR_FILE_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sources of an extent. Every lower number is an allocation: the caller chooses these numbers. */
#define FILE_PLAN_TEXT  UINT64_MAX
#define FILE_PLAN_ZEROS (UINT64_MAX - 1)

struct file_extent {
    uint64_t at;     /* in the file; an extent ends where the next one begins */
    uint64_t source; /* an allocation, FILE_PLAN_TEXT or FILE_PLAN_ZEROS */
    uint64_t offset; /* in the allocation or in the text */
};

/* Begins as zeros. */
struct file_plan {
    uint64_t size_bytes;
    char *text;
    size_t text_bytes;
    struct file_extent *extents; /* from the file's first byte on, without gaps */
    size_t count;
    uint64_t last_source; /* of the last extent */
};

/* Each adds a part behind the parts so far; one of 0 bytes is none. */
void file_plan_add_memory(struct file_plan *plan, uint64_t allocation, uint64_t offset,
                          uint64_t bytes);
void file_plan_add_zeros(struct file_plan *plan, uint64_t bytes);
/* Returns where the caller writes the text; NULL while parts are only counted. */
char *file_plan_add_text(struct file_plan *plan, size_t bytes);

/* Makes room for the counted parts and begins anew. -ENOMEM */
int file_plan_room(struct file_plan *plan);
void file_plan_free(struct file_plan *plan);
/* Returns the memory of its text and extents. */
uint64_t file_plan_bytes(const struct file_plan *plan);

/* Returns the index of the extent with this byte of the file. */
size_t file_plan_find(const struct file_plan *plan, uint64_t at);
/* Returns the offset in the file behind an extent's last byte. */
uint64_t file_plan_end(const struct file_plan *plan, size_t index);
/* Returns true if the extent's bytes lie in an allocation. */
bool file_extent_is_memory(const struct file_extent *extent);

/* Memory that one read of an allocation takes for several extents. */
struct file_span {
    uint64_t source, offset, bytes;
    size_t walked; /* extents that were looked at */
};

/* Returns the span that begins with the byte `at` of the extent `index`, which lies in an
 * allocation, for a read to `end`. Extents belong to it while their offsets ascend with small gaps;
 * so a read looks at each extent twice at most, in any order of offsets. */
struct file_span file_plan_span(const struct file_plan *plan, size_t index, uint64_t at,
                                uint64_t end);

#endif
