/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the meaning of the driver's error numbers for memory that is kept. */
#include "tap.h"
#include "vmm/xid.h"

static enum xid_kind kind(unsigned long long number)
{
    const char *meaning = NULL;
    enum xid_kind judged = xid_judge(number, &meaning);

    check(meaning && *meaning);
    return judged;
}

TAP_TEST(a_programs_own_fault_is_harmless)
{
    static const unsigned numbers[] = {13, 25, 31, 43, 45, 60, 68, 69, 137};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        check_int(kind(numbers[i]), XID_HARMLESS);
}

TAP_TEST(errors_of_memory_make_it_suspect_contained_ones_too)
{
    static const unsigned numbers[] = {48, 64, 74, 94, 95, 140, 171, 172};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        check_int(kind(numbers[i]), XID_SUSPECT);
}

TAP_TEST(exceptions_of_copy_and_video_engines_are_a_programs)
{
    static const unsigned ranges[][2] = {{39, 41}, {70, 72},  {75, 77},   {82, 86},
                                         {88, 89}, {96, 105}, {126, 135}, {139, 139}};

    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        for (unsigned number = ranges[i][0]; number <= ranges[i][1]; number++)
            check_int(kind(number), XID_HARMLESS);
    check_int(kind(87), XID_SUSPECT); /* in none of them, and unknown */
}

TAP_TEST(errors_that_need_a_reset_of_the_gpu_are_suspect)
{
    static const unsigned numbers[] = {46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 158};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        check_int(kind(numbers[i]), XID_SUSPECT);
}

TAP_TEST(errors_that_were_corrected_harm_nothing)
{
    check_int(kind(92), XID_HARMLESS);
    check_int(kind(121), XID_HARMLESS);
}

TAP_TEST(notices_that_go_with_another_error_are_harmless)
{
    check_int(kind(63), XID_HARMLESS);
    check_int(kind(154), XID_HARMLESS);
}

TAP_TEST(off_the_bus_is_lost)
{
    check_int(kind(79), XID_LOST);
}

TAP_TEST(unknown_errors_are_suspect)
{
    check_int(kind(0), XID_SUSPECT);
    check_int(kind(9999), XID_SUSPECT);
    check_int(kind(~0ull), XID_SUSPECT);
}
