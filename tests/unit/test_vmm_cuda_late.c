/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU that another process had open before: existing memory is there at once, even if the driver
 * fails. The driver is initialised once a process, so the tests before the last see it fail.
 */
#include "vmm_cuda_fixture.h"

static struct vmm_description describe_gpu(void)
{
    struct vmm_description description = {
        .backend = "cuda",
        .name = "Fake",
        .uuid = {0xfa},
        .pci_id = "0000:17:00.0",
        .granularity_bytes = 2 * MIB,
        .total_bytes = 64 * MIB,
        .physical_bytes = 64 * MIB,
        .create_threads = 2,
        .free_threads = 1,
        .flags = 1,
    };

    memset(description.uuid + 1, 0x5a, 14);
    return description;
}

static void reopen_gpu(const char *control, const struct vmm_description *description)
{
    const struct vmm_options options = {.backend = "cuda"};

    require(fake_cuda_make(control));
    require(vmm_reopen(&options, description, &vmm, error, sizeof(error)) == 0);
}

/* Descriptors of another process are opaque here: any descriptor will do. */
static void adopt(struct vmm_piece *piece)
{
    struct vmm_kept kept = {.fd = open("/dev/null", O_RDWR | O_CLOEXEC), .fd_readonly = -1};

    require(kept.fd >= 0);
    require(vmm_adopt(vmm, VMM_TIER_DEVICE, &kept, 2 * MIB, 2 * MIB, true, piece) == 0);
}

static void check_device_and_piece(void)
{
    struct vmm_piece piece;
    struct vmm_info info;
    int fd;

    vmm_get_info(vmm, &info);
    check_str(info.name, "Fake");
    check_int(info.granularity_bytes, 2 * MIB);
    check_int(info.total_bytes, 64 * MIB);
    adopt(&piece);
    check_int(vmm_duplicate(vmm, &piece, true, &fd), 0);
    close(fd);
    vmm_destroy(vmm, &piece);
}

static int create(void)
{
    struct vmm_piece piece;
    int rc = vmm_create(vmm, 2 * MIB, true, &piece);

    vmm_destroy(vmm, &piece);
    return rc;
}

TAP_AFTER_EACH(close_gpu)

TAP_TEST(driver_that_does_not_open_makes_nothing_and_is_tried_again)
{
    struct vmm_description description = describe_gpu();

    setenv("GMSFS_DRIVER_RETRY_MS", "3600000", 1);
    reopen_gpu("memory 64\nfail cuInit 999\n", &description);
    check_device_and_piece();
    check_int(create(), -EIO);
    require(fake_cuda_control("memory 64\nfail cuInit 100\n"));
    check_int(create(), -EIO);
    setenv("GMSFS_DRIVER_RETRY_MS", "0", 1);
    check_int(create(), -ENODEV);
    unsetenv("GMSFS_DRIVER_RETRY_MS");
}

TAP_TEST(driver_that_hangs_holds_up_nobody_but_who_makes_memory_and_him_not_for_good)
{
    struct vmm_description description = describe_gpu();

    setenv("GMSFS_DRIVER_AWAIT_MS", "50", 1);
    reopen_gpu("memory 64\nhold cuInit\n", &description);
    check_device_and_piece();
    check_int(create(), -EIO);
    unsetenv("GMSFS_DRIVER_AWAIT_MS");
    require(fake_cuda_control("memory 64\n"));
    check_int(create(), 0);
}

TAP_TEST(gpu_that_is_not_there_any_more_is_enodev)
{
    struct vmm_description description = describe_gpu();

    description.uuid[15] = 1;
    reopen_gpu("memory 64\n", &description);
    check_device_and_piece();
    check_int(create(), -ENODEV);
}

TAP_TEST(description_is_what_the_driver_tells_and_makes_the_same_device)
{
    struct vmm_description first, second;

    open_gpu("memory 64\nrdma 0\n");
    vmm_describe(vmm, &first);
    vmm_close(vmm);
    reopen_gpu("memory 64\nrdma 0\n", &first);
    vmm_describe(vmm, &second);
    check(memcmp(&first, &second, sizeof(first)) == 0);
    check_int(create(), 0);
}

TAP_TEST(description_that_does_not_fit_is_not_believed)
{
    struct vmm_description description = describe_gpu();
    struct vmm_info info;

    description.granularity_bytes = 3 * MIB;
    reopen_gpu("memory 128\n", &description);
    vmm_get_info(vmm, &info);
    check_int(info.granularity_bytes, 2 * MIB);
    check_int(info.total_bytes, 128 * MIB);
}
