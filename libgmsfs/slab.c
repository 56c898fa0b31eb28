/* SPDX-License-Identifier: Apache-2.0 */
#include "slab.h"

#include "base/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- slabs -------------------------------------------------------------------------------- */

static void slab_drop(struct gfs_slab *slab)
{
    free(slab->tag);
    free(slab->pieces);
    free(slab->gaps);
}

void gfs_slabs_free(struct gfs_slabs *slabs)
{
    for (size_t i = 0; i < slabs->count; i++)
        slab_drop(slabs->slabs + i);
    free(slabs->slabs);
    memset(slabs, 0, sizeof *slabs);
}

/* As many pieces, and the gaps that there then may be: so giving back cannot fail. */
static int slab_make_room(struct gfs_slab *slab, size_t pieces)
{
    int error = ARRAY_RESERVE(slab->pieces, slab->piece_room, pieces);

    return error ? error : ARRAY_RESERVE(slab->gaps, slab->gap_room, pieces + 1);
}

int gfs_slabs_add(struct gfs_slabs *slabs, uintptr_t va, uint64_t size_bytes, const char *tag)
{
    struct gfs_slab slab = {.va = va, .size_bytes = size_bytes, .tag = strdup(tag)};
    int error = slab.tag ? slab_make_room(&slab, 1) : -ENOMEM;

    if (!error)
        error = ARRAY_RESERVE(slabs->slabs, slabs->room, slabs->count + 1);
    if (error) {
        slab_drop(&slab);
        return error;
    }
    slab.gaps[slab.gap_count++] = (struct gfs_span){.size_bytes = size_bytes};
    slabs->slabs[slabs->count++] = slab;
    return 0;
}

void gfs_slabs_remove(struct gfs_slabs *slabs, struct gfs_slab *slab)
{
    size_t after = slabs->count - (size_t)(slab - slabs->slabs) - 1;

    slab_drop(slab);
    memmove(slab, slab + 1, after * sizeof *slab);
    slabs->count--;
}

struct gfs_slab *gfs_slabs_find(const struct gfs_slabs *slabs, uintptr_t address)
{
    for (size_t i = 0; i < slabs->count; i++)
        if (address - slabs->slabs[i].va < slabs->slabs[i].size_bytes)
            return slabs->slabs + i;
    return NULL;
}

/* ---- spans -------------------------------------------------------------------------------- */

/* How many begin below `offset`. */
static size_t spans_below(const struct gfs_span *spans, size_t count, uint64_t offset)
{
    size_t at = 0;

    ARRAY_SEARCH(at, count, spans[at].offset < offset);
    return at;
}

static void span_insert(struct gfs_span *spans, size_t *count, size_t at, struct gfs_span span)
{
    memmove(spans + at + 1, spans + at, (*count - at) * sizeof *spans);
    spans[at] = span;
    ++*count;
}

static void span_remove(struct gfs_span *spans, size_t *count, size_t at)
{
    memmove(spans + at, spans + at + 1, (*count - at - 1) * sizeof *spans);
    --*count;
}

static uint64_t slab_align(uint64_t size_bytes)
{
    return (size_bytes + GFS_SLAB_ALIGNMENT_BYTES - 1) & ~(GFS_SLAB_ALIGNMENT_BYTES - 1);
}

/* ---- pieces ------------------------------------------------------------------------------- */

static int slab_take(struct gfs_slab *slab, uint64_t size_bytes, uintptr_t *va)
{
    uint64_t taken_bytes = slab_align(size_bytes), offset;
    size_t at;

    for (at = 0; at < slab->gap_count && slab->gaps[at].size_bytes < taken_bytes; at++)
        ;
    if (at == slab->gap_count)
        return -ENOENT;
    int error = slab_make_room(slab, slab->piece_count + 1);
    if (error)
        return error;
    offset = slab->gaps[at].offset;
    slab->gaps[at].offset += taken_bytes;
    slab->gaps[at].size_bytes -= taken_bytes;
    if (slab->gaps[at].size_bytes == 0)
        span_remove(slab->gaps, &slab->gap_count, at);
    span_insert(slab->pieces, &slab->piece_count,
                spans_below(slab->pieces, slab->piece_count, offset),
                (struct gfs_span){.offset = offset, .size_bytes = size_bytes});
    *va = slab->va + offset;
    return 0;
}

int gfs_slabs_take(struct gfs_slabs *slabs, const char *tag, uint64_t size_bytes, uintptr_t *va)
{
    for (size_t i = 0; i < slabs->count; i++) {
        struct gfs_slab *slab = slabs->slabs + i;

        if (slab->closed || size_bytes > slab->size_bytes || strcmp(slab->tag, tag) != 0)
            continue;
        int error = slab_take(slab, size_bytes, va);
        if (error != -ENOENT)
            return error;
    }
    return -ENOENT;
}

int gfs_slab_give_back(struct gfs_slab *slab, uintptr_t va)
{
    uint64_t offset = va - slab->va;
    size_t at = spans_below(slab->pieces, slab->piece_count, offset);
    struct gfs_span gap, *gaps = slab->gaps;

    if (at == slab->piece_count || slab->pieces[at].offset != offset)
        return -ENOENT;
    gap =
        (struct gfs_span){.offset = offset, .size_bytes = slab_align(slab->pieces[at].size_bytes)};
    span_remove(slab->pieces, &slab->piece_count, at);
    at = spans_below(gaps, slab->gap_count, offset);
    if (at < slab->gap_count && gaps[at].offset == offset + gap.size_bytes) {
        gap.size_bytes += gaps[at].size_bytes;
        span_remove(gaps, &slab->gap_count, at);
    }
    if (at > 0 && gaps[at - 1].offset + gaps[at - 1].size_bytes == offset)
        gaps[at - 1].size_bytes += gap.size_bytes;
    else
        span_insert(gaps, &slab->gap_count, at, gap);
    return 0;
}
