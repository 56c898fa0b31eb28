/* SPDX-License-Identifier: Apache-2.0 */
/* Tests in which order several threads take the items of several files, and in which pieces. */
#include "mover/work.h"

#include "tap.h"

#define COUNT 7

static const size_t files[COUNT] = {4, 4, 4, 9, 2, 2, 7}; /* a, b, c; d; e, f; g */

static void check_order(unsigned abreast, const size_t expected[COUNT])
{
    size_t order[COUNT] = {0};

    work_order_abreast(files, COUNT, abreast, order);
    for (size_t i = 0; i < COUNT; i++)
        check_int(order[i], expected[i]);
}

TAP_TEST(files_are_taken_in_turns_so_many_at_a_time)
{
    check_order(2, (const size_t[]){0, 3, 1, 4, 2, 5, 6});
    check_order(3, (const size_t[]){0, 3, 4, 1, 6, 5, 2});
}

TAP_TEST(one_file_at_a_time_is_the_order_that_there_was)
{
    check_order(1, (const size_t[]){0, 1, 2, 3, 4, 5, 6});
}

TAP_TEST(more_than_there_are_take_all_in_turns)
{
    check_order(100000, (const size_t[]){0, 3, 4, 6, 1, 5, 2});
}

static int note_piece(void *context, const struct work_piece *piece, void *own)
{
    uint64_t *sizes = context;

    (void)own;
    sizes[piece->offset_bytes / WORK_LAST_BYTES] = piece->size_bytes;
    return 0;
}

TAP_TEST(a_work_that_tapers_ends_with_small_pieces)
{
    static const uint64_t whole = 5 * WORK_PIECE_BYTES + 100;
    uint64_t sizes[5 * WORK_PIECE_BYTES / WORK_LAST_BYTES + 1] = {0}, sum = 0;
    struct work work = {.item_bytes = &whole,
                        .item_count = 1,
                        .threads = 2,
                        .tapers = true,
                        .context = sizes,
                        .piece = note_piece};

    check_int(work_run(&work), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        sum += sizes[i];
    check_int(sum, whole);
    check_int(sizes[0], WORK_PIECE_BYTES);
    check_int(sizes[4 * WORK_PIECE_BYTES / WORK_LAST_BYTES], WORK_LAST_BYTES);
    check_int(sizes[5 * WORK_PIECE_BYTES / WORK_LAST_BYTES], 100);
}
