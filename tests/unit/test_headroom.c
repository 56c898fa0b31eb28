/* SPDX-License-Identifier: Apache-2.0 */
/* Tests how much memory may still be taken: of the machine, and of the cgroups above this
 * process. */
#include "headroom_fixture.h"

/* ---- reserve --------------------------------------------------------------------------------- */

TAP_TEST(reserve_is_one_percent_of_a_usual_machine)
{
    check_int(headroom_reserve(50 * GIB), 50 * GIB / 100);
}

TAP_TEST(reserve_is_at_least_64_mib)
{
    check_int(headroom_reserve(1 * GIB), 64 * MIB);
}

TAP_TEST(reserve_is_at_most_1_gib)
{
    check_int(headroom_reserve(4096 * GIB), 1 * GIB);
}

TAP_TEST(reserve_leaves_most_of_a_small_cgroup)
{
    check_int(headroom_reserve(256 * MIB), 32 * MIB);
    check_int(headroom_reserve(0), 0);
}

/* ---- machine --------------------------------------------------------------------------------- */

TAP_TEST(without_cgroups_the_machine_is_the_limit)
{
    machine(NULL, NULL);
    expect_machine_only();
}

TAP_TEST(available_memory_below_the_reserve_is_none)
{
    machine(NULL, NULL);
    require(fake_root_put_meminfo(root, 64 * GIB, 10 * MIB));
    expect(64 * GIB, 0);
}

TAP_TEST(meminfo_that_is_missing_is_an_error)
{
    struct headroom_info info;

    require(fake_root_make(root));
    check_int(look(&info), -EIO);
    fake_root_remove(root);
}

TAP_TEST(meminfo_without_memavailable_is_an_error)
{
    struct headroom_info info;

    machine(NULL, NULL);
    put("/proc/meminfo", "MemTotal: 1024 kB\nMemFree: 1 kB\n");
    check_int(look(&info), -EIO);
    fake_root_remove(root);
}

TAP_TEST(malformed_meminfo_is_an_error)
{
    static const char *const texts[] = {
        "",
        "MemTotal:\nMemAvailable:\n",
        "MemTotal: lots kB\nMemAvailable: 5 kB\n",
        "MemTotal: 5x kB\nMemAvailable: 5 kB\n",
        "MemTotal: -5 kB\nMemAvailable: 5 kB\n",
        "MemTotal: 0 kB\nMemAvailable: 0 kB\n",
        "MemTotal: 4 kB\nMemAvailable: 5 kB\n",
        "MemTotal: 99999999999999999999999 kB\nMemAvailable: 5 kB\n",
    };
    struct headroom_info info;

    machine(NULL, NULL);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        put("/proc/meminfo", texts[i]);
        check_int(look(&info), -EIO);
    }
    fake_root_remove(root);
}

TAP_TEST(no_free_descriptor_is_an_error_and_not_no_limit)
{
    struct headroom *headroom = NULL;
    struct headroom_info info;
    struct rlimit before, none;

    machine(V2_MOUNT, "0::/job\n");
    require(headroom_open(root, &headroom) == 0);
    require(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none = before;
    none.rlim_cur = 0;
    require(setrlimit(RLIMIT_NOFILE, &none) == 0);
    check_int(headroom_read(headroom, &info), -EMFILE);
    require(setrlimit(RLIMIT_NOFILE, &before) == 0);
    headroom_close(headroom);
    fake_root_remove(root);
}

TAP_TEST(a_root_path_of_endless_length_is_refused)
{
    static char endless[2 * FAKE_PATH_BYTES];
    struct headroom *headroom = NULL;

    memset(endless, 'a', sizeof(endless) - 1);
    check_int(headroom_open(endless, &headroom), -ENAMETOOLONG);
}

TAP_TEST(this_machine_can_be_read)
{
    struct headroom_info info = {0};

    root[0] = '\0';
    require(look(&info) == 0);
    check(info.machine_bytes > 0);
    check(info.limit_bytes <= info.machine_bytes);
    check(info.available_bytes < info.limit_bytes);
}

/* A group at this path, with a limit and a usage. */
static void put_group(const char *at, const char *limit, uint64_t limit_bytes, const char *usage,
                      uint64_t usage_bytes)
{
    char path[FAKE_PATH_BYTES];

    snprintf(path, sizeof(path), "%s/%s", at, limit);
    put_number(path, limit_bytes);
    snprintf(path, sizeof(path), "%s/%s", at, usage);
    put_number(path, usage_bytes);
}

static void put_v2(const char *at, uint64_t limit_bytes, uint64_t usage_bytes)
{
    put_group(at, "memory.max", limit_bytes, "memory.current", usage_bytes);
}

static void put_v1(const char *at, uint64_t limit_bytes, uint64_t usage_bytes)
{
    put_group(at, "memory.limit_in_bytes", limit_bytes, "memory.usage_in_bytes", usage_bytes);
}

/* ---- cgroup v2 ------------------------------------------------------------------------------- */

TAP_TEST(v2_limit_minus_usage_minus_reserve_is_left)
{
    machine(OTHER_MOUNTS V2_MOUNT, "0::/job\n");
    put_v2("/sys/fs/cgroup/job", 8 * GIB, 3 * GIB);
    expect(8 * GIB, 5 * GIB - headroom_reserve(8 * GIB));
}

TAP_TEST(v2_file_cache_counts_as_free)
{
    machine(V2_MOUNT, "0::/job\n");
    put_v2("/sys/fs/cgroup/job", 8 * GIB, 7 * GIB);
    put("/sys/fs/cgroup/job/memory.stat", "anon 1\nfile 4294967296\nshmem 7\n"
                                          "inactive_anon 99\nactive_anon 99\n"
                                          "inactive_file 1073741824\nactive_file 2147483648\n");
    expect(8 * GIB, 4 * GIB - headroom_reserve(8 * GIB));
}

TAP_TEST(v2_cache_larger_than_usage_leaves_the_limit)
{
    machine(V2_MOUNT, "0::/job\n");
    put_v2("/sys/fs/cgroup/job", 8 * GIB, 1 * GIB);
    put("/sys/fs/cgroup/job/memory.stat", "inactive_file 3221225472\n");
    expect(8 * GIB, 8 * GIB - headroom_reserve(8 * GIB));
}

TAP_TEST(v2_max_is_no_limit)
{
    machine(V2_MOUNT, "0::/job\n");
    put("/sys/fs/cgroup/job/memory.max", "max\n");
    put("/sys/fs/cgroup/job/memory.high", "max\n");
    put_number("/sys/fs/cgroup/job/memory.current", 3 * GIB);
    expect_machine_only();
}

TAP_TEST(v2_memory_high_is_a_limit_too)
{
    machine(V2_MOUNT, "0::/job\n");
    put("/sys/fs/cgroup/job/memory.max", "max\n");
    put_number("/sys/fs/cgroup/job/memory.high", 4 * GIB);
    put_number("/sys/fs/cgroup/job/memory.current", 1 * GIB);
    expect(4 * GIB, 3 * GIB - headroom_reserve(4 * GIB));
}

TAP_TEST(v2_the_tightest_group_above_us_decides)
{
    machine(V2_MOUNT, "0::/a/b/c\n");
    put_v2("/sys/fs/cgroup/a/b/c", 20 * GIB, 1 * GIB);
    put_v2("/sys/fs/cgroup/a/b", 16 * GIB, 2 * GIB);
    put_v2("/sys/fs/cgroup/a", 18 * GIB, 17 * GIB);
    expect(16 * GIB, 1 * GIB - headroom_reserve(18 * GIB));
}

TAP_TEST(the_group_of_this_process_is_found)
{
    static const struct {
        const char *name, *mountinfo, *cgroup, *at;
    } cases[] = {
        {"levels without files are passed over", V2_MOUNT, "0::/a/gone/away\n", "/sys/fs/cgroup/a"},
        {"the root of the namespace", V2_MOUNT, "0::/\n", "/sys/fs/cgroup"},
        {"outside of the namespace: the top", V2_MOUNT, "0::/../other\n", "/sys/fs/cgroup"},
        {"a name that begins with dots", V2_MOUNT, "0::/..job\n", "/sys/fs/cgroup/..job"},
        {"a mount point with a space", "35 31 0:32 / /mnt/cg\\040dir rw - cgroup2 none rw\n",
         "0::/job\n", "/mnt/cg dir/job"},
        {"a name with colons", V2_MOUNT, "0::/system.slice:docker:abc\n",
         "/sys/fs/cgroup/system.slice:docker:abc"},
        {"malformed lines of cgroup", V2_MOUNT,
         "\n:\n::\ngarbage\n0:\n0::relative\n1:cpu:/x\n0::/job", "/sys/fs/cgroup/job"},
        {"malformed lines of mountinfo",
         "\n - \n1 - x\n1 2 3 4 5 - \n1 2 3 / /x rw - cgroup2\n1 2 3 / /y rw - cgroup2 z\n"
         "1 2 3 - cgroup2 a b\n" V2_MOUNT,
         "0::/job\n", "/sys/fs/cgroup/job"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        printf("# %s\n", cases[i].name);
        machine(cases[i].mountinfo, cases[i].cgroup);
        put_v2("/sys/fs/other", 1 * GIB, 0);
        put_v2(cases[i].at, 8 * GIB, 1 * GIB);
        expect(8 * GIB, 7 * GIB - headroom_reserve(8 * GIB));
    }
}

TAP_TEST(a_usage_above_the_limit_leaves_nothing)
{
    machine(V2_MOUNT, "0::/job\n");
    put_v2("/sys/fs/cgroup/job", 1 * GIB, 2 * GIB);
    expect(1 * GIB, 0);
}

TAP_TEST(a_limit_of_zero_leaves_nothing)
{
    machine(V2_MOUNT, "0::/job\n");
    put_v2("/sys/fs/cgroup/job", 0, 0);
    expect(0, 0);
}

/* ---- cgroup v1 and mixed --------------------------------------------------------------------- */

TAP_TEST(v1_limit_minus_usage_with_cache_free)
{
    machine(OTHER_MOUNTS V1_MOUNT, "5:devices:/x\n4:cpu,memory:/job\n0::/\n");
    put_v1("/sys/fs/cgroup/memory/job", 8 * GIB, 6 * GIB);
    put("/sys/fs/cgroup/memory/job/memory.stat", "active_file 5\ninactive_file 5\n"
                                                 "total_inactive_file 1073741824\n"
                                                 "total_active_file 1073741824\n");
    expect(8 * GIB, 4 * GIB - headroom_reserve(8 * GIB));
}

TAP_TEST(v1_unlimited_number_is_no_limit)
{
    machine(V1_MOUNT, "4:memory:/job\n");
    put("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
    put_number("/sys/fs/cgroup/memory/job/memory.usage_in_bytes", 1 * GIB);
    expect_machine_only();
}

TAP_TEST(v1_memory_and_swap_together_limit_too)
{
    machine(V1_MOUNT, "4:memory:/job\n");
    put_v1("/sys/fs/cgroup/memory/job", 8 * GIB, 1 * GIB);
    put_number("/sys/fs/cgroup/memory/job/memory.memsw.limit_in_bytes", 8 * GIB);
    put_number("/sys/fs/cgroup/memory/job/memory.memsw.usage_in_bytes", 6 * GIB);
    expect(8 * GIB, 2 * GIB - headroom_reserve(8 * GIB));
}

TAP_TEST(v1_container_mount_strips_its_own_top)
{
    machine("35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro shared:4 - cgroup cgroup rw,memory\n",
            "4:memory:/docker/abc/inner\n");
    put_v1("/sys/fs/cgroup/memory", 8 * GIB, 1 * GIB);
    put_v1("/sys/fs/cgroup/memory/inner", 4 * GIB, 1 * GIB);
    expect(4 * GIB, 3 * GIB - headroom_reserve(4 * GIB));
}

TAP_TEST(mount_top_that_is_only_a_prefix_of_a_name_is_not_stripped)
{
    machine("35 31 0:32 /ab /mnt/cg rw - cgroup2 none rw\n", "0::/abc\n");
    put_v2("/mnt/cg/c", 1 * GIB, 0);
    expect_machine_only();
}

TAP_TEST(of_two_mounts_the_one_that_shows_more_is_used)
{
    machine("35 31 0:32 /a /mnt/part rw - cgroup2 none rw\n" V2_MOUNT, "0::/a/b\n");
    put_v2("/mnt/part", 8 * GIB, 1 * GIB);
    put_v2("/sys/fs/cgroup/a", 4 * GIB, 1 * GIB);
    expect(4 * GIB, 3 * GIB - headroom_reserve(4 * GIB));
}

TAP_TEST(v1_and_v2_both_count)
{
    machine(V1_MOUNT "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            "4:memory:/one\n0::/two\n");
    put_v1("/sys/fs/cgroup/memory/one", 8 * GIB, 1 * GIB);
    put_v2("/sys/fs/cgroup/unified/two", 6 * GIB, 5 * GIB);
    expect(6 * GIB, 1 * GIB - headroom_reserve(6 * GIB));
}

/* ---- unreadable files set no limit ----------------------------------------------------------- */

TAP_TEST(malformed_limits_set_none)
{
    static const char *const texts[] = {
        "", "\n", "lots\n", "-1\n", "12monkeys\n", "0x10\n", "99999999999999999999999999\n"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        machine(V2_MOUNT, "0::/job\n");
        put("/sys/fs/cgroup/job/memory.max", texts[i]);
        put_number("/sys/fs/cgroup/job/memory.current", 1 * GIB);
        expect_machine_only();
    }
}

TAP_TEST(limit_without_usage_still_bounds_the_size)
{
    machine(V2_MOUNT, "0::/job\n");
    put_number("/sys/fs/cgroup/job/memory.max", 8 * GIB);
    expect(8 * GIB, 32 * GIB - headroom_reserve(64 * GIB));
}

TAP_TEST(malformed_stat_frees_nothing)
{
    machine(V2_MOUNT, "0::/job\n");
    put_v2("/sys/fs/cgroup/job", 8 * GIB, 3 * GIB);
    put("/sys/fs/cgroup/job/memory.stat", "inactive_file\nactive_file many\n\n\xff\xfe 5\n");
    expect(8 * GIB, 5 * GIB - headroom_reserve(8 * GIB));
}

TAP_TEST(endless_group_path_is_passed_over)
{
    static char text[3 * FAKE_PATH_BYTES];
    int start = snprintf(text, sizeof(text), "0::/");

    memset(text + start, 'a', sizeof(text) - 1 - (size_t)start);
    machine(V2_MOUNT, text);
    expect_machine_only();
}

TAP_TEST(group_path_as_long_as_can_be_asks_the_top)
{
    static char text[FAKE_PATH_BYTES + 3];
    int start = snprintf(text, sizeof(text), "0::/");

    memset(text + start, 'a', sizeof(text) - 1 - (size_t)start);
    machine(V2_MOUNT, text);
    put_v2("/sys/fs/cgroup", 8 * GIB, 1 * GIB);
    expect(8 * GIB, 7 * GIB - headroom_reserve(8 * GIB));
}
