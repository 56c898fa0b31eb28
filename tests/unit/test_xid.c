/* SPDX-License-Identifier: Apache-2.0 */
/* What the driver's error numbers say of memory that is kept. */
#include "tap.h"
#include "vmm/xid.h"

static enum xid_kind kind(unsigned long long number)
{
    const char *what = NULL;
    enum xid_kind judged = xid_judge(number, &what);

    check(what && *what);
    return judged;
}

TAP_TEST(a_programs_own_fault_is_harmless)
{
    static const unsigned numbers[] = {13, 31, 43, 45, 68, 69};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        check_int(kind(numbers[i]), XID_HARMLESS);
}

TAP_TEST(errors_of_memory_make_it_suspect_contained_ones_too)
{
    static const unsigned numbers[] = {48, 64, 74, 92, 94, 95, 140};

    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        check_int(kind(numbers[i]), XID_SUSPECT);
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

TAP_TEST(what_nobody_knows_is_suspect)
{
    check_int(kind(0), XID_SUSPECT);
    check_int(kind(9999), XID_SUSPECT);
    check_int(kind(~0ull), XID_SUSPECT);
}
