/* SPDX-License-Identifier: Apache-2.0 */
/*
 * headroom_fixture - a machine and its cgroups that are files below a directory of the test
 */
#ifndef GMSFS_TESTS_UNIT_HEADROOM_FIXTURE_H
#define GMSFS_TESTS_UNIT_HEADROOM_FIXTURE_H

#include "vmm/headroom.h"

#include "fake_root.h"
#include "tap.h"

#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>

#define GIB FAKE_GIB
#define MIB FAKE_MIB

#define V2_MOUNT "31 23 0:28 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1_MOUNT "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
#define OTHER_MOUNTS                                  \
    "22 27 0:21 / /proc rw,relatime - proc proc rw\n" \
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"

static char root[FAKE_PATH_BYTES];

/* A machine of 64 GiB with 32 GiB available. */
__attribute__((unused)) static void machine(const char *mountinfo, const char *cgroup)
{
    require(fake_root_make(root));
    require(fake_root_put_meminfo(root, 64 * GIB, 32 * GIB));
    if (mountinfo)
        require(fake_root_put(root, "/proc/self/mountinfo", mountinfo));
    if (cgroup)
        require(fake_root_put(root, "/proc/self/cgroup", cgroup));
}

__attribute__((unused)) static int look(struct headroom_info *info)
{
    struct headroom *headroom = NULL;
    int rc = headroom_open(root, &headroom);

    if (rc == 0)
        rc = headroom_read(headroom, info);
    headroom_close(headroom);
    return rc;
}

__attribute__((unused)) static void expect(uint64_t limit_bytes, uint64_t available_bytes)
{
    struct headroom_info info = {0};

    check_int(look(&info), 0);
    check_int(info.machine_bytes, 64 * GIB);
    check_int(info.limit_bytes, limit_bytes);
    check_int(info.available_bytes, available_bytes);
    fake_root_remove(root);
}

__attribute__((unused)) static void expect_machine_only(void)
{
    expect(64 * GIB, 32 * GIB - headroom_reserve(64 * GIB));
}

__attribute__((unused)) static void put(const char *path, const char *text)
{
    require(fake_root_put(root, path, text));
}

__attribute__((unused)) static void put_number(const char *path, uint64_t number)
{
    require(fake_root_put_number(root, path, number));
}

#endif
