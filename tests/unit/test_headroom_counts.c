/* SPDX-License-Identifier: Apache-2.0 */
/* Tests swap, huge pages, and the number of processes that the kernel killed. */
#include "headroom_fixture.h"

/* ---- swap ------------------------------------------------------------------------------------ */

/* A machine with this much swap. */
static void swapping_machine(const char *mountinfo, const char *cgroup, uint64_t swap_bytes)
{
    char text[256];

    machine(mountinfo, cgroup);
    snprintf(text, sizeof(text),
             "MemTotal: 1000 kB\nMemAvailable: 1 kB\nSwapCached: 7 kB\nSwapTotal: %llu kB\n"
             "SwapFree: 5 kB\n",
             (unsigned long long)(swap_bytes >> 10));
    put("/proc/meminfo", text);
}

static void expect_swap(uint64_t bytes)
{
    struct headroom *headroom = NULL;
    uint64_t found_bytes = 1;

    require(headroom_open(root, &headroom) == 0);
    check_int(headroom_read_swap(headroom, &found_bytes), 0);
    check_int(found_bytes, bytes);
    headroom_close(headroom);
    fake_root_remove(root);
}

TAP_TEST(swap_is_the_machines_unless_a_cgroup_has_less)
{
    swapping_machine(V2_MOUNT, "0::/job\n", 8 * GIB);
    put("/sys/fs/cgroup/job/memory.swap.max", "max\n");
    expect_swap(8 * GIB);
}

TAP_TEST(a_machine_without_swap_has_none_even_if_cgroups_allow_it)
{
    machine(V2_MOUNT, "0::/job\n");
    put_number("/sys/fs/cgroup/job/memory.swap.max", GIB);
    expect_swap(0);
}

TAP_TEST(swap_is_bounded_by_the_tightest_group_above_us)
{
    swapping_machine(V2_MOUNT, "0::/slice/job\n", 8 * GIB);
    put_number("/sys/fs/cgroup/slice/job/memory.swap.max", 4 * GIB);
    put_number("/sys/fs/cgroup/slice/memory.swap.max", 2 * GIB);
    expect_swap(2 * GIB);
}

TAP_TEST(a_unit_that_forbids_swap_has_none)
{
    swapping_machine(V2_MOUNT, "0::/job\n", 8 * GIB);
    put_number("/sys/fs/cgroup/job/memory.swap.max", 0);
    expect_swap(0);
}

TAP_TEST(swap_of_a_v1_group_is_the_rest_of_its_second_limit_beyond_the_first)
{
    swapping_machine(V1_MOUNT, "4:memory:/job\n", 8 * GIB);
    put_number("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", 4 * GIB);
    put_number("/sys/fs/cgroup/memory/job/memory.memsw.limit_in_bytes", 5 * GIB);
    expect_swap(GIB);
    swapping_machine(V1_MOUNT, "4:memory:/job\n", 8 * GIB);
    put_number("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", 4 * GIB);
    put_number("/sys/fs/cgroup/memory/job/memory.memsw.limit_in_bytes", 9223372036854771712ull);
    expect_swap(8 * GIB);
}

/* ---- huge pages ------------------------------------------------------------------------------ */

TAP_TEST(pool_of_huge_pages_counts_free_and_unpromised_ones)
{
    const char *dir = "/sys/kernel/mm/hugepages/hugepages-2048kB";
    static const char *const names[] = {"nr_hugepages", "free_hugepages", "resv_hugepages",
                                        "surplus_hugepages", "nr_overcommit_hugepages"};
    static const uint64_t counts[] = {12, 7, 3, 2, 6};
    struct headroom *headroom = NULL;
    struct headroom_pool pool = {0, 0};
    char path[128];

    machine(NULL, NULL);
    for (size_t i = 0; i < 5; i++) {
        snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        put_number(path, counts[i]);
    }
    require(headroom_open(root, &headroom) == 0);
    check_int(headroom_read_pool(headroom, 2 * MIB, &pool), 0);
    check_int(pool.total_bytes, 16 * 2 * MIB);
    check_int(pool.free_bytes, 8 * 2 * MIB);
    headroom_close(headroom);
    fake_root_remove(root);
}

TAP_TEST(huge_pages_that_the_machine_lacks_are_eopnotsupp)
{
    struct headroom *headroom = NULL;
    struct headroom_pool pool;

    machine(NULL, NULL);
    require(headroom_open(root, &headroom) == 0);
    check_int(headroom_read_pool(headroom, 1 * GIB, &pool), -EOPNOTSUPP);
    headroom_close(headroom);
    fake_root_remove(root);
}

/* ---- OOM kills ------------------------------------------------------------------------------- */

static uint64_t count_kills(void)
{
    struct headroom *headroom = NULL;
    uint64_t kills = 99;

    check_int(headroom_open(root, &headroom), 0);
    check_int(headroom_read_kills(headroom, &kills), 0);
    headroom_close(headroom);
    return kills;
}

TAP_TEST(kills_of_the_machine_are_counted)
{
    machine(NULL, NULL);
    check_int(count_kills(), 0); /* an old kernel has no count */
    put("/proc/vmstat", "pgfault 17\noom_kill 3\nnr_unstable 0\n");
    check_int(count_kills(), 3);
    fake_root_remove(root);
}

TAP_TEST(kills_in_a_v2_group_are_counted)
{
    machine(V2_MOUNT, "0::/a\n");
    put("/sys/fs/cgroup/a/memory.events", "low 0\noom 9\noom_kill 2\noom_group_kill 0\n");
    check_int(count_kills(), 2);
    fake_root_remove(root);
}

TAP_TEST(kills_in_a_v1_group_are_counted)
{
    machine(V1_MOUNT, "5:memory:/a\n");
    put("/sys/fs/cgroup/memory/a/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
    check_int(count_kills(), 4);
    fake_root_remove(root);
}

TAP_TEST(kills_of_other_groups_are_not_counted)
{
    machine(V1_MOUNT, "5:memory:/a/b\n");
    put("/proc/vmstat", "oom_kill 17\n");
    put("/sys/fs/cgroup/memory/memory.oom_control", "oom_kill 3\n");
    put("/sys/fs/cgroup/memory/a/memory.oom_control", "oom_kill 2\n");
    put("/sys/fs/cgroup/memory/a/b/memory.oom_control", "oom_kill 0\n");
    check_int(count_kills(), 0);
    put("/sys/fs/cgroup/memory/a/b/memory.oom_control", "oom_kill 1\n");
    check_int(count_kills(), 1);
    fake_root_remove(root);
}

TAP_TEST(where_a_group_does_not_tell_the_one_above_it_does)
{
    machine(V2_MOUNT, "0::/a/b\n");
    put("/proc/vmstat", "oom_kill 17\n");
    put("/sys/fs/cgroup/a/memory.events", "oom_kill 2\n");
    check_int(count_kills(), 2);
    fake_root_remove(root);
}
