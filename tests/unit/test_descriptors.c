/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/descriptors.h"
#include "tap.h"

TAP_TEST(every_kind_has_some_however_few_there_are)
{
    const uint64_t limits[] = {64, 256, 300, 1024, 4096, 20000, 1048576, UINT64_MAX / 2};

    for (unsigned i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        struct descriptors d = descriptors_divide(limits[i]);
        check(d.own >= 8 && d.connections >= 8 && d.watches >= 16 && d.regions >= 8);
        check(d.regions <= limits[i] / 8 && d.regions <= 4096);
        check(d.own + d.connections + d.watches <= limits[i] / 2);
    }
}

TAP_TEST(memory_leaves_room_for_the_missing_kinds)
{
    struct descriptors d = descriptors_divide(1024); /* 64, 128, 256 */

    check(descriptors_admit(&d, 575, 0));
    check(!descriptors_admit(&d, 576, 0));
    check(descriptors_admit(&d, 959, 384));
    check(!descriptors_admit(&d, 960, 384));
    check(!descriptors_admit(&d, 960, 5000));
}
