/* SPDX-License-Identifier: Apache-2.0 */
/* In which order several threads take the items of several files. */
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
