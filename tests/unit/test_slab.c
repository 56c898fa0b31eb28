/* SPDX-License-Identifier: Apache-2.0 */
/* Tests pieces of slabs against a map of 512-byte cells that is searched the slow way. */
#include <errno.h>
#include <stdlib.h>

#include "slab.h"
#include "tap.h"

#define CELL      GFS_SLAB_ALIGNMENT_BYTES
#define CELLS     64 /* of each slab in the random test */
#define SLABS     4
#define SLAB_VA   ((uintptr_t)1 << 40)
#define SLAB_STEP ((uintptr_t)1 << 30)

static uintptr_t take(struct gfs_slabs *slabs, const char *tag, uint64_t size_bytes)
{
    uintptr_t va = 0;
    int r = gfs_slabs_take(slabs, tag, size_bytes, &va);

    check(r == 0 || r == -ENOENT);
    return va;
}

TAP_TEST(pieces_lie_one_behind_the_other_512_aligned)
{
    struct gfs_slabs slabs = {0};

    check_int(take(&slabs, "", 1), 0);
    check_int(gfs_slabs_add(&slabs, SLAB_VA, 4 * CELL, ""), 0);
    check_int(take(&slabs, "", 1), SLAB_VA);
    check_int(take(&slabs, "", CELL), SLAB_VA + CELL);
    check_int(take(&slabs, "", CELL + 1), SLAB_VA + 2 * CELL);
    check_int(take(&slabs, "", 1), 0);
    check_int(slabs.slabs[0].pieces[2].size_bytes, CELL + 1);
    gfs_slabs_free(&slabs);
}

TAP_TEST(freed_pieces_merge_with_both_neighbours)
{
    struct gfs_slabs slabs = {0};
    struct gfs_slab *slab;

    check_int(gfs_slabs_add(&slabs, SLAB_VA, 4 * CELL, ""), 0);
    for (int i = 0; i < 4; i++)
        check_int(take(&slabs, "", CELL), SLAB_VA + (unsigned)i * CELL);
    slab = gfs_slabs_find(&slabs, SLAB_VA + 4 * CELL - 1);
    require(slab == slabs.slabs);
    check_int(gfs_slab_give_back(slab, SLAB_VA), 0);
    check_int(gfs_slab_give_back(slab, SLAB_VA + 2 * CELL), 0);
    check_int(slab->gap_count, 2);
    check_int(gfs_slab_give_back(slab, SLAB_VA + CELL), 0);
    check_int(slab->gap_count, 1);
    check_int(take(&slabs, "", 3 * CELL), SLAB_VA);
    check_int(gfs_slab_give_back(slab, SLAB_VA + CELL), -ENOENT);
    check_int(gfs_slab_give_back(slab, SLAB_VA + 1), -ENOENT);
    check_int(gfs_slab_give_back(slab, SLAB_VA), 0);
    check_int(gfs_slab_give_back(slab, SLAB_VA + 3 * CELL), 0);
    check_int(slab->piece_count, 0);
    check_int(slab->gap_count, 1);
    check_int(slab->gaps[0].size_bytes, 4 * CELL);
    gfs_slabs_free(&slabs);
}

TAP_TEST(pieces_go_to_the_oldest_open_slab_of_their_tag)
{
    struct gfs_slabs slabs = {0};

    check_int(gfs_slabs_add(&slabs, SLAB_VA + SLAB_STEP, CELL, "a"), 0);
    check_int(gfs_slabs_add(&slabs, SLAB_VA, 2 * CELL, "a"), 0);
    check_int(gfs_slabs_add(&slabs, SLAB_VA + 2 * SLAB_STEP, 2 * CELL, "b"), 0);
    check_int(take(&slabs, "a", CELL), SLAB_VA + SLAB_STEP);
    check_int(take(&slabs, "a", CELL), SLAB_VA);
    check_int(take(&slabs, "b", CELL), SLAB_VA + 2 * SLAB_STEP);
    slabs.slabs[1].closed = 1;
    check_int(take(&slabs, "a", CELL), 0);
    gfs_slabs_remove(&slabs, slabs.slabs);
    slabs.slabs[0].closed = 0;
    check_int(take(&slabs, "a", CELL), SLAB_VA + CELL);
    check(!gfs_slabs_find(&slabs, SLAB_VA + SLAB_STEP));
    check(!gfs_slabs_find(&slabs, SLAB_VA - 1));
    gfs_slabs_free(&slabs);
}

/* ---- random calls against the model --------------------------------------------------------- */

struct model {
    uint16_t owner[SLABS][CELLS]; /* 0: free; else the number of the piece there */
    struct {
        uintptr_t va;
        uint64_t size_bytes;
    } pieces[UINT16_MAX];
    uint16_t count;
};

static unsigned next_random(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 8;
}

static unsigned cells_of(uint64_t size_bytes)
{
    return (unsigned)((size_bytes + CELL - 1) / CELL);
}

static uintptr_t model_first_fit(const struct model *model, unsigned cells)
{
    for (unsigned slab = 0; slab < SLABS; slab++) {
        unsigned run = 0;
        for (unsigned cell = 0; cell < CELLS; cell++) {
            run = model->owner[slab][cell] ? 0 : run + 1;
            if (run == cells)
                return SLAB_VA + slab * SLAB_STEP + (cell + 1 - cells) * CELL;
        }
    }
    return 0;
}

static void model_mark(struct model *model, uintptr_t va, unsigned cells, uint16_t owner)
{
    unsigned slab = (unsigned)((va - SLAB_VA) / SLAB_STEP);
    unsigned first = (unsigned)((va - SLAB_VA) % SLAB_STEP / CELL);

    for (unsigned i = 0; i < cells; i++)
        model->owner[slab][first + i] = owner;
}

static void random_take(struct model *model, struct gfs_slabs *slabs, unsigned *state)
{
    uint64_t size_bytes = 1 + next_random(state) % (next_random(state) % 8 ? 4 * CELL : 40 * CELL);
    uintptr_t expected = model_first_fit(model, cells_of(size_bytes));
    uintptr_t va = take(slabs, "", size_bytes);

    check_int(va, expected);
    if (!va || model->count == UINT16_MAX - 1)
        return;
    model->pieces[++model->count].va = va;
    model->pieces[model->count].size_bytes = size_bytes;
    model_mark(model, va, cells_of(size_bytes), model->count);
}

static void random_give_back(struct model *model, struct gfs_slabs *slabs, unsigned *state)
{
    unsigned slab = next_random(state) % SLABS, cell = next_random(state) % CELLS;
    uint16_t owner = model->owner[slab][cell];
    uintptr_t va = SLAB_VA + slab * SLAB_STEP + cell * CELL;
    struct gfs_slab *found = gfs_slabs_find(slabs, va);

    require(found != NULL && found->va == SLAB_VA + slab * SLAB_STEP);
    if (!owner || model->pieces[owner].va != va) {
        check_int(gfs_slab_give_back(found, va), -ENOENT);
        return;
    }
    check_int(gfs_slab_give_back(found, va), 0);
    model_mark(model, va, cells_of(model->pieces[owner].size_bytes), 0);
}

/* Gaps and pieces tile the slab; two gaps never touch. */
static void check_tiling(const struct gfs_slab *slab)
{
    size_t piece = 0, gap = 0;
    uint64_t at = 0;
    int after_gap = 0;

    while (piece < slab->piece_count || gap < slab->gap_count) {
        if (gap < slab->gap_count && slab->gaps[gap].offset == at) {
            check(!after_gap && slab->gaps[gap].size_bytes > 0);
            at += slab->gaps[gap++].size_bytes;
            after_gap = 1;
        } else {
            require(piece < slab->piece_count && slab->pieces[piece].offset == at);
            at += cells_of(slab->pieces[piece++].size_bytes) * CELL;
            after_gap = 0;
        }
    }
    check_int(at, slab->size_bytes);
}

TAP_TEST(random_calls_agree_with_a_map_of_cells)
{
    for (unsigned seed = 1; seed <= 20; seed++) {
        struct model *model = calloc(1, sizeof *model);
        struct gfs_slabs slabs = {0};
        unsigned state = seed;

        require(model != NULL);
        for (unsigned i = 0; i < SLABS; i++)
            check_int(gfs_slabs_add(&slabs, SLAB_VA + i * SLAB_STEP, CELLS * CELL, ""), 0);
        for (int step = 0; step < 3000; step++) {
            if (next_random(&state) % 5 < 2)
                random_take(model, &slabs, &state);
            else
                random_give_back(model, &slabs, &state);
            for (unsigned i = 0; step % 50 == 0 && i < SLABS; i++)
                check_tiling(slabs.slabs + i);
        }
        gfs_slabs_free(&slabs);
        free(model);
    }
}
