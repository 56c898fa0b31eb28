/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a host device, its options and messages, and its account. */
#include "vmm_fixture.h"

#include <pthread.h>

/* ---- opening a device ------------------------------------------------------------------------ */

TAP_TEST(default_backend_is_cuda)
{
    check_int(try_open((struct vmm_options){0}), -ENODEV);
    check(strstr(error, "device cuda: ") == error);
}

TAP_TEST(unknown_backend_is_einval_and_named)
{
    check_int(try_open((struct vmm_options){.backend = "tape"}), -EINVAL);
    check_str(error, "backend=tape: there is no such backend; use cuda or host");
}

TAP_TEST(message_is_cut_to_the_room_given)
{
    struct vmm_options options = {.backend = "tape"};
    char small[8];

    check_int(vmm_open(&options, &vmm, small, sizeof(small)), -EINVAL);
    check_str(small, "backend");
    check_int(vmm_open(&options, &vmm, NULL, 0), -EINVAL);
}

TAP_TEST(granularity_is_2_mib_by_default)
{
    struct vmm_info info;

    open_host(64 * MIB);
    vmm_get_info(vmm, &info);
    check_int(info.granularity_bytes, 2 * MIB);
    check_str(info.backend, "host");
    check_str(info.name, "host memory");
    check_int(info.used_bytes, 0);
    vmm_close(vmm);
}

TAP_TEST(granularity_that_is_no_power_of_two_or_out_of_range_is_einval)
{
    static const uint64_t wrong[] = {1, 512, 3 * MIB, 5000, 2 * GIB, UINT64_MAX};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        check_int(try_open((struct vmm_options){
                      .backend = "host", .size_bytes = 8 * GIB, .granularity_bytes = wrong[i]}),
                  -EINVAL);
        check(strstr(error, "granularity=") == error);
        check(strstr(error, "a power of two from 4K (the page size) to 1G") != NULL);
    }
}

TAP_TEST(granularity_from_the_page_size_to_1_gib_is_taken)
{
    static const uint64_t right[] = {4096, 64 << 10, 2 * MIB, GIB};
    struct vmm_info info;

    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        require(try_open((struct vmm_options){
                    .backend = "host", .size_bytes = GIB, .granularity_bytes = right[i]}) == 0);
        vmm_get_info(vmm, &info);
        check_int(info.granularity_bytes, right[i]);
        vmm_close(vmm);
    }
}

TAP_TEST(size_is_aligned_down)
{
    struct vmm_info info;

    open_host(7 * MIB + 1);
    vmm_get_info(vmm, &info);
    check_int(info.total_bytes, 6 * MIB);
    vmm_close(vmm);
}

TAP_TEST(size_below_the_granularity_is_einval_and_says_what_to_do)
{
    check_int(try_open((struct vmm_options){.backend = "host", .size_bytes = MIB}), -EINVAL);
    check_str(error, "size=1M: less than one unit of memory; say at least size=2M, or a smaller "
                     "granularity");
}

TAP_TEST(size_beyond_any_file_is_einval)
{
    check_int(try_open((struct vmm_options){.backend = "host", .size_bytes = UINT64_C(1) << 63}),
              -EINVAL);
    check(strstr(error, "size=") == error);
}

TAP_TEST(size_0_is_half_of_the_machine)
{
    struct vmm_options options = {.backend = "host"};
    struct vmm_info info;

    require(fake_root_make(root));
    require(fake_root_put_meminfo(root, 64 * GIB + 6 * MIB, GIB));
    require(vmm_open_under(root, &options, &vmm, error, sizeof(error)) == 0);
    vmm_get_info(vmm, &info);
    check_int(info.total_bytes, 32 * GIB + 2 * MIB);
    close_short_host();
}

TAP_TEST(size_0_is_half_of_the_cgroup_where_that_is_less)
{
    struct vmm_options options = {.backend = "host"};
    struct vmm_info info;

    require(fake_root_make(root));
    require(fake_root_put_meminfo(root, 64 * GIB, 32 * GIB));
    require(fake_root_put(root, "/proc/self/cgroup", "0::/job\n"));
    require(fake_root_put(root, "/proc/self/mountinfo", "31 23 0:28 / /cg rw - cgroup2 none rw\n"));
    require(fake_root_put_number(root, "/cg/job/memory.max", 8 * GIB));
    require(vmm_open_under(root, &options, &vmm, error, sizeof(error)) == 0);
    vmm_get_info(vmm, &info);
    check_int(info.total_bytes, 4 * GIB);
    close_short_host();
}

TAP_TEST(size_0_on_a_machine_that_cannot_be_read_asks_for_a_size)
{
    struct vmm_options options = {.backend = "host"};

    require(fake_root_make(root));
    check_int(vmm_open_under(root, &options, &vmm, error, sizeof(error)), -EIO);
    check(strstr(error, "say size=SIZE") != NULL);
    fake_root_remove(root);
}

TAP_TEST(uuid_comes_from_the_machine_id)
{
    /* xxhsum -H2 of "0123456789abcdef0123456789abcdefgmsfs host" */
    static const uint8_t expected[16] = {0xba, 0x41, 0xe6, 0xf9, 0xc3, 0x1a, 0x19, 0x2e,
                                         0x88, 0x0a, 0xf1, 0x9a, 0xfd, 0xc0, 0xd8, 0x9b};
    struct vmm_options options = {.backend = "host", .size_bytes = GIB};
    struct vmm_info info;

    require(fake_root_make(root));
    require(fake_root_put(root, "/etc/machine-id", "0123456789abcdef0123456789abcdef\n"));
    require(vmm_open_under(root, &options, &vmm, error, sizeof(error)) == 0);
    vmm_get_info(vmm, &info);
    check_bytes(info.uuid, 16, expected, 16);
    close_short_host();
}

TAP_TEST(uuid_without_a_machine_id_stays_the_same_from_mount_to_mount)
{
    struct vmm_options options = {.backend = "host", .size_bytes = GIB};
    struct vmm_info info[2];
    static const uint8_t none[16];

    for (int i = 0; i < 2; i++) {
        require(fake_root_make(root));
        require(vmm_open_under(root, &options, &vmm, error, sizeof(error)) == 0);
        vmm_get_info(vmm, &info[i]);
        close_short_host();
    }
    check_bytes(info[0].uuid, 16, info[1].uuid, 16);
    check(memcmp(info[0].uuid, none, 16) != 0);
}

TAP_TEST(uuid_option_overrides)
{
    struct vmm_options options = {.backend = "host", .size_bytes = GIB, .uuid = {1, 2, 3}};
    struct vmm_info info;

    require(try_open(options) == 0);
    vmm_get_info(vmm, &info);
    check_bytes(info.uuid, 16, options.uuid, 16);
    vmm_close(vmm);
}

TAP_TEST(align_goes_up_to_the_granularity)
{
    open_host(64 * MIB);
    check_int(vmm_align(vmm, 0), 0);
    check_int(vmm_align(vmm, 1), 2 * MIB);
    check_int(vmm_align(vmm, 2 * MIB), 2 * MIB);
    check_int(vmm_align(vmm, 2 * MIB + 1), 4 * MIB);
    check_int(vmm_align(vmm, UINT64_MAX - 2 * MIB + 1), UINT64_MAX - 2 * MIB + 1);
    vmm_close(vmm);
}

TAP_TEST(align_that_overflows_is_0)
{
    open_host(64 * MIB);
    check_int(vmm_align(vmm, UINT64_MAX), 0);
    check_int(vmm_align(vmm, UINT64_MAX - 2 * MIB + 2), 0);
    vmm_close(vmm);
}

/* ---- account --------------------------------------------------------------------------------- */

TAP_TEST(account_gives_all_and_then_enomem)
{
    struct vmm_info info;

    open_host(8 * MIB);
    check_int(vmm_reserve(vmm, 6 * MIB), 0);
    check_int(vmm_reserve(vmm, 4 * MIB), -ENOMEM);
    check_int(vmm_reserve(vmm, 2 * MIB), 0);
    check_int(vmm_reserve(vmm, 2 * MIB), -ENOMEM);
    vmm_get_info(vmm, &info);
    check_int(info.used_bytes, 8 * MIB);
    vmm_close(vmm);
}

TAP_TEST(account_takes_back)
{
    struct vmm_info info;

    open_host(8 * MIB);
    check_int(vmm_reserve(vmm, 8 * MIB), 0);
    vmm_unreserve(vmm, 2 * MIB);
    check_int(vmm_reserve(vmm, 2 * MIB), 0);
    vmm_unreserve(vmm, 8 * MIB);
    vmm_get_info(vmm, &info);
    check_int(info.used_bytes, 0);
    vmm_close(vmm);
}

TAP_TEST(account_refuses_what_would_overflow)
{
    open_host(8 * MIB);
    check_int(vmm_reserve(vmm, 2 * MIB), 0);
    check_int(vmm_reserve(vmm, UINT64_MAX - 2 * MIB + 1), -ENOMEM);
    check_int(vmm_reserve(vmm, UINT64_C(1) << 63), -ENOMEM);
    vmm_close(vmm);
}

TAP_TEST(what_is_set_aside_is_neither_used_nor_free)
{
    struct vmm_info info;

    open_host(8 * MIB);
    check_int(vmm_reserve(vmm, 2 * MIB), 0);
    check_int(vmm_set_aside(vmm, 4 * MIB), 0);
    vmm_get_info(vmm, &info);
    check_int(info.used_bytes, 2 * MIB);
    check_int(info.aside_bytes, 4 * MIB);
    check_int(vmm_get_free(vmm), 2 * MIB);
    check_int(vmm_reserve(vmm, 4 * MIB), -ENOMEM);
    check_int(vmm_set_aside(vmm, 8 * MIB), -ENOMEM); /* then it is as it was */
    check_int(vmm_get_free(vmm), 2 * MIB);
    check_int(vmm_set_aside(vmm, 2 * MIB), 0);
    check_int(vmm_reserve(vmm, 4 * MIB), 0);
    check_int(vmm_get_free(vmm), 0);
    check_int(vmm_set_aside(vmm, 0), 0);
    vmm_unreserve(vmm, 6 * MIB);
    check_int(vmm_get_free(vmm), 8 * MIB);
    vmm_close(vmm);
}

static void *reserve_much(void *granted)
{
    for (int i = 0; i < CYCLES; i++)
        *(int *)granted += vmm_reserve(vmm, 2 * MIB) == 0;
    return NULL;
}

TAP_TEST(account_raced_by_threads_never_gives_too_much)
{
    pthread_t threads[THREADS];
    int granted[THREADS] = {0}, sum = 0;

    open_host(1000 * MIB);
    for (int i = 0; i < THREADS; i++)
        require(pthread_create(&threads[i], NULL, reserve_much, &granted[i]) == 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += granted[i];
    }
    check_int(sum, 500);
    vmm_close(vmm);
}
