/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a GPU as descriptors, over the fake driver: opening, pieces, shortage, faults, leaks.
 */
#include "vmm/cuda_choose.h"
#include "vmm_fixture.h"

#include "fake_cuda.h"

#include <pthread.h>

#define GPU0          "GPU-fa5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00"
#define LEAK_CYCLES   100000
#define PARALLEL      4
#define MEASURE_TRIES 3000 /* of 10 ms at most */

static int open_with(const char *control, struct vmm_options options)
{
    require(fake_cuda_make(control));
    options.backend = "cuda";
    return try_open(options);
}

static void open_gpu(const char *control)
{
    require(open_with(control, (struct vmm_options){0}) == 0);
}

static void close_gpu(void)
{
    vmm_close(vmm);
    vmm = NULL;
    fake_cuda_remove();
}

/* What the device says may be some milliseconds old when the machine is busy. */
static struct vmm_info measure_until(uint64_t free_bytes)
{
    struct vmm_info info = {0};

    for (int tries = 0; tries < MEASURE_TRIES; tries++) {
        vmm_measure(vmm);
        vmm_get_info(vmm, &info);
        if (info.free_bytes == free_bytes)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    check(info.knows_others);
    return info;
}

#define check_free(bytes) check_int(measure_until(bytes).free_bytes, (bytes))

static bool any_context(void)
{
    DIR *dir = opendir(fake_cuda_dir);
    struct dirent *entry;
    bool found = false;

    require(dir != NULL);
    while ((entry = readdir(dir)))
        found |= strncmp(entry->d_name, "context.", 8) == 0;
    closedir(dir);
    return found;
}

/* ---- which GPU ------------------------------------------------------------------------------- */

static int choose(const char *device, struct cuda_choice *choice)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
    error[0] = '\0';
    return cuda_choose(root, device, choice, error, sizeof(error));
}

TAP_TEST(index_and_uuid_are_said_to_the_driver_before_it_starts)
{
    struct cuda_choice choice;

    check_int(choose("3", &choice), 0);
    check_str(getenv("CUDA_VISIBLE_DEVICES"), "3");
    check_str(getenv("CUDA_DEVICE_ORDER"), "PCI_BUS_ID");
    check_str(choice.pci_id, "");
    check_int(choose(GPU0, &choice), 0);
    check_str(getenv("CUDA_VISIBLE_DEVICES"), GPU0);
    unsetenv("CUDA_VISIBLE_DEVICES");
}

TAP_TEST(no_device_leaves_the_environment_as_it_is)
{
    struct cuda_choice choice;

    check_int(choose("", &choice), 0);
    check(getenv("CUDA_VISIBLE_DEVICES") == NULL);
    check(getenv("CUDA_DEVICE_ORDER") == NULL);
}

TAP_TEST(pci_id_becomes_the_uuid_that_the_kernel_module_tells)
{
    struct cuda_choice choice;

    require(fake_root_make(root));
    require(fake_root_put(root, "/proc/driver/nvidia/gpus/0000:17:00.0/information",
                          "Model: \t\t NVIDIA H200\nGPU UUID: \t " GPU0 "\n"));
    check_int(choose("17:00", &choice), 0);
    check_str(choice.pci_id, "0000:17:00.0");
    check_str(getenv("CUDA_VISIBLE_DEVICES"), GPU0);
    check_int(choose("00000000:17:00.0", &choice), 0);
    check_str(choice.pci_id, "0000:17:00.0");
    check_int(choose("0000:18:00.0", &choice), 0);
    check_str(choice.pci_id, "0000:18:00.0");
    check(getenv("CUDA_VISIBLE_DEVICES") == NULL);
    fake_root_remove(root);
    root[0] = '\0';
    unsetenv("CUDA_VISIBLE_DEVICES");
}

TAP_TEST(mig_slice_is_refused_with_a_reason)
{
    struct cuda_choice choice;

    check_int(choose("MIG-7f1c2d3e-0a1b-4c5d-8e9f-001122334455", &choice), -EOPNOTSUPP);
    check(strstr(error, "MIG slices are not supported") != NULL);
}

TAP_TEST(what_is_no_device_is_einval)
{
    static const char *const wrong[] = {"x",       "-1",  "1000", "GPU-",    "GPU-xyz", "0,1",
                                        "17:00.9", "17:", "17.0", "1:2:3:4", "gpu0"};
    struct cuda_choice choice;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (!check_int(choose(wrong[i], &choice), -EINVAL))
            fprintf(stderr, "#   %s\n", wrong[i]);
        check(strstr(error, "expected an index") != NULL);
    }
    check(getenv("CUDA_VISIBLE_DEVICES") == NULL);
    unsetenv("CUDA_DEVICE_ORDER");
}

/* ---- opening --------------------------------------------------------------------------------- */

TAP_TEST(machine_without_a_gpu_is_told_how_to_mount_host_memory)
{
    check_int(try_open((struct vmm_options){0}), -ENODEV);
    check_str(error, "device cuda: cuInit: CUDA_ERROR_NO_DEVICE (no CUDA-capable device); mount "
                     "host memory with: gmsfs mount -o backend=host,size=4G MOUNTPOINT");
}

TAP_TEST(device_tells_what_it_is)
{
    struct vmm_info info;

    open_gpu("memory 512\nothers 32\n");
    vmm_measure(vmm);
    vmm_get_info(vmm, &info);
    check_str(info.backend, "cuda");
    check_str(info.name, "Fake GPU 0");
    check_str(info.pci_id, "0000:17:00.0");
    check_int(info.uuid[0], 0xfa);
    check_int(info.uuid[15], 0);
    check_int(info.cuda_version, 13000);
    check_int(info.granularity_bytes, 2 * MIB);
    check_int(info.total_bytes, 512 * MIB);
    check_int(info.used_bytes, 0);
    check_int(info.other_bytes, 32 * MIB);
    check_int(info.free_bytes, 480 * MIB);
    check(!vmm_can_transfer(vmm));
    close_gpu();
}

TAP_TEST(size_is_a_part_of_the_device_in_whole_units)
{
    struct vmm_info info;

    require(open_with("", (struct vmm_options){.size_bytes = 101 * MIB}) == 0);
    vmm_get_info(vmm, &info);
    check_int(info.total_bytes, 100 * MIB);
    close_gpu();
    require(open_with("", (struct vmm_options){.size_bytes = 100 * GIB}) == 0);
    vmm_get_info(vmm, &info);
    check_int(info.total_bytes, GIB);
    close_gpu();
    check_int(open_with("", (struct vmm_options){.size_bytes = MIB}), -EINVAL);
    check_str(error, "size=: is less than the granularity, 2.0 MiB");
    fake_cuda_remove();
}

TAP_TEST(granularity_is_a_multiple_of_the_devices)
{
    struct vmm_info info;

    require(open_with("", (struct vmm_options){.granularity_bytes = 8 * MIB}) == 0);
    vmm_get_info(vmm, &info);
    check_int(info.granularity_bytes, 8 * MIB);
    close_gpu();
    check_int(open_with("", (struct vmm_options){.granularity_bytes = 4096}), -EINVAL);
    check(strstr(error, "granularity=: Fake GPU 0 hands memory out in multiples of 2.0 MiB") ==
          error);
    fake_cuda_remove();
}

TAP_TEST(options_of_host_memory_are_refused)
{
    check_int(open_with("", (struct vmm_options){.hugepage_bytes = 2 * MIB}), -EINVAL);
    check(strstr(error, "hugepages=: ") == error);
    fake_cuda_remove();
    check_int(open_with("", (struct vmm_options){.uuid = {1}}), -EINVAL);
    check(strstr(error, "uuid=: ") == error);
    fake_cuda_remove();
    check_int(try_open((struct vmm_options){.backend = "host", .device = "0"}), -EINVAL);
    check_str(error, "device=0: names a GPU; take backend=cuda, or leave it out");
}

/* The n-th call of the driver fails, for every n until opening no longer meets the fault. */
TAP_TEST(opening_that_fails_anywhere_says_where_and_leaks_nothing)
{
    int descriptors, refused = 0;

    open_gpu(""); /* the driver is open from here on */
    close_gpu();
    descriptors = count_descriptors();
    for (int n = 1; n < 100; n++) {
        char control[64];

        snprintf(control, sizeof(control), "fail * 999 %d 1\n", n);
        if (open_with(control, (struct vmm_options){0}) == 0) {
            close_gpu();
            continue;
        }
        refused++;
        check(strstr(error, "device cuda: ") == error);
        check_int(count_descriptors(), descriptors);
        fake_cuda_remove();
    }
    check(refused >= 8);
}

TAP_TEST(full_device_can_be_opened)
{
    struct vmm_piece piece;

    open_gpu("memory 64\nothers 64\n");
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), -ENOMEM);
    require(fake_cuda_control("memory 64\n"));
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), 0);
    vmm_destroy(vmm, &piece);
    close_gpu();
}

TAP_TEST(memory_that_cannot_be_exported_is_said_at_opening)
{
    check_int(open_with("fail cuMemExportToShareableHandle 801\n", (struct vmm_options){0}), -EIO);
    check(strstr(error, "device cuda: Fake GPU 0 makes no memory that can be shared") == error);
    fake_cuda_remove();
}

TAP_TEST(rdma_is_left_out_where_the_driver_promises_it_and_refuses)
{
    open_gpu("fail cuMemCreate 801 1 1\n");
    close_gpu();
    open_gpu("rdma 0\n");
    close_gpu();
}

/* ---- pieces ---------------------------------------------------------------------------------- */

TAP_TEST(piece_is_one_descriptor_closed_on_exec)
{
    struct vmm_piece piece;

    open_gpu("");
    require(vmm_create(vmm, 3 * MIB, true, &piece) == 0);
    check_int(piece.size_bytes, 3 * MIB);
    check_int(piece.aligned_bytes, 4 * MIB);
    check_int(piece.fd_readonly, piece.fd);
    check_int(fcntl(piece.fd, F_GETFD), FD_CLOEXEC);
    vmm_destroy(vmm, &piece);
    check_int(piece.fd, -1);
    check_int(piece.fd_readonly, -1);
    close_gpu();
}

TAP_TEST(piece_is_held_by_its_descriptor_and_nothing_else)
{
    struct vmm_piece piece;

    open_gpu("memory 64\n");
    require(vmm_create(vmm, 48 * MIB, true, &piece) == 0);
    check_free(16 * MIB);
    vmm_destroy(vmm, &piece);
    check_free(64 * MIB);
    close_gpu();
}

TAP_TEST(no_context_is_ever_made)
{
    struct vmm_piece piece;

    open_gpu("");
    require(vmm_create(vmm, 2 * MIB, true, &piece) == 0);
    vmm_measure(vmm);
    check(!any_context());
    vmm_destroy(vmm, &piece);
    check(!any_context());
    close_gpu();
}

TAP_TEST(freed_memory_that_somebody_keeps_is_held_by_others)
{
    struct vmm_piece piece;
    struct vmm_info info;
    int kept;

    open_gpu("memory 64\n");
    require(vmm_reserve(vmm, 16 * MIB) == 0);
    require(vmm_create(vmm, 16 * MIB, true, &piece) == 0);
    info = measure_until(48 * MIB);
    check_int(info.used_bytes, 16 * MIB);
    check_int(info.other_bytes, 0);
    kept = dup(piece.fd);
    vmm_destroy(vmm, &piece);
    vmm_unreserve(vmm, 16 * MIB);
    info = measure_until(48 * MIB);
    check_int(info.used_bytes, 0);
    check_int(info.other_bytes, 16 * MIB);
    close(kept);
    check_free(64 * MIB);
    close_gpu();
}

TAP_TEST(bytes_of_a_gpu_are_not_moved_from_here)
{
    struct vmm_piece piece;
    char byte = 0;

    open_gpu("");
    require(vmm_create(vmm, 2 * MIB, true, &piece) == 0);
    check_int(vmm_read(vmm, &piece, &byte, 1, 0), -EOPNOTSUPP);
    check_int(vmm_write(vmm, &piece, &byte, 1, 0), -EOPNOTSUPP);
    check_int(vmm_grow(vmm, &piece, 4 * MIB), -EOPNOTSUPP);
    vmm_destroy(vmm, &piece);
    check_int(vmm_create(vmm, 0, false, &piece), -EOPNOTSUPP);
    check_int(piece.fd, -1);
    check_int(vmm_seal(vmm, &piece, 0), -EOPNOTSUPP);
    close_gpu();
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* Threads of the watch have one open for a moment now and then. */
static bool has_descriptors(int count)
{
    for (int tries = 0; tries < MEASURE_TRIES && count_descriptors() != count; tries++)
        usleep(10000);
    return count_descriptors() == count;
}

static int count_quiet_descriptors(void)
{
    int count = count_descriptors();

    for (int same = 0; same < 5;) {
        int now;
        usleep(2000);
        now = count_descriptors();
        same = now == count ? same + 1 : 0;
        count = now < count ? now : count;
    }
    return count;
}

/* One call fails with `result`: the request gets `expected`, and nothing stays behind. */
static void check_fault(const char *call, unsigned result, int expected)
{
    int descriptors = count_quiet_descriptors();
    struct vmm_piece piece;
    char control[128];

    snprintf(control, sizeof(control), "memory 64\nfail %s %u 1 1\n", call, result);
    require(fake_cuda_control(control));
    check_int(vmm_create(vmm, 64 * MIB, true, &piece), expected);
    check_int(piece.fd, -1);
    check(has_descriptors(descriptors));
    check_int(vmm_create(vmm, 64 * MIB, true, &piece), 0);
    vmm_destroy(vmm, &piece);
}

TAP_TEST(error_of_the_driver_harms_the_request_alone)
{
    open_gpu("memory 64\n");
    check_fault("cuMemCreate", 2, -ENOMEM);
    check_fault("cuMemCreate", 999, -EIO);
    check_fault("cuMemCreate", 1, -EIO);
    check_fault("cuMemExportToShareableHandle", 2, -ENOMEM);
    check_fault("cuMemExportToShareableHandle", 304, -EIO);
    close_gpu();
}

TAP_TEST(device_that_vanished_is_enodev)
{
    struct vmm_piece piece;

    open_gpu("");
    require(fake_cuda_control("lost 0\n"));
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), -ENODEV);
    close_gpu();
}

static struct vmm_health news;
static _Atomic unsigned calls;

static void on_news(void *context)
{
    (void)context;
    calls++;
}

/* Until there are some. */
static bool wait_for_news(void)
{
    for (int tries = 0; tries < MEASURE_TRIES; tries++) {
        if (vmm_take_health(vmm, &news))
            return true;
        usleep(10000);
    }
    return false;
}

TAP_TEST(errors_of_memory_are_news_and_those_of_programs_are_not)
{
    open_gpu("");
    require(fake_cuda_control("xid 0 13\nxid 0 31\nxid 0 63\nxid 0 48\n"));
    check(wait_for_news());
    check(news.suspect && !news.lost);
    check_str(news.why, "Xid 48: uncorrectable memory error");
    check(!vmm_take_health(vmm, &news));
    require(fake_cuda_control("xid 0 13\nxid 0 31\nxid 0 63\nxid 0 48\necc 0\n"));
    check(wait_for_news());
    check_str(news.why, "uncorrectable memory error (ECC)");
    close_gpu();
}

TAP_TEST(a_storm_is_one_call_until_the_news_are_taken)
{
    char storm[4096] = "";

    open_gpu("");
    calls = 0;
    vmm_on_health(vmm, on_news, NULL);
    for (int i = 0; i < 60; i++)
        strcat(storm, "xid 0 95\n");
    strcat(storm, "xid 0 79\n");
    require(fake_cuda_control(storm));
    for (int tries = 0; tries < MEASURE_TRIES && calls == 0; tries++)
        usleep(10000);
    do
        check(wait_for_news());
    while (!news.lost);
    check_str(news.why, "Xid 79: the GPU has fallen off the bus");
    check(calls <= 61);
    vmm_on_health(vmm, NULL, NULL);
    close_gpu();
}

TAP_TEST(news_from_before_somebody_listens_are_told)
{
    open_gpu("xid 0 48\n");
    calls = 0;
    for (int tries = 0; tries < MEASURE_TRIES && calls == 0; tries++) {
        vmm_on_health(vmm, on_news, NULL);
        usleep(10000);
    }
    check(calls > 0);
    check(vmm_take_health(vmm, &news));
    vmm_on_health(vmm, NULL, NULL);
    close_gpu();
}

TAP_TEST(one_call_that_says_no_device_is_no_loss)
{
    struct vmm_piece piece;

    open_gpu("");
    require(fake_cuda_control("fail cuMemCreate 46 1 1\n"));
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), 0);
    vmm_destroy(vmm, &piece);
    check(!vmm_take_health(vmm, &news));
    /* NVML sees it all the same. */
    require(fake_cuda_control("fail cuMemCreate 46\n"));
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), -ENODEV);
    check(!vmm_take_health(vmm, &news));
    close_gpu();
}

TAP_TEST(where_nvml_is_silent_the_driver_is_believed_when_asked_twice)
{
    struct vmm_piece piece;

    open_gpu("");
    require(fake_cuda_control("fail cuMemCreate 46\nfail nvmlDeviceGetMemoryInfo 999\n"));
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), -ENODEV);
    check(vmm_take_health(vmm, &news));
    check(news.lost && !news.suspect);
    close_gpu();
}

TAP_TEST(nvml_that_says_once_that_the_gpu_is_lost_is_asked_again)
{
    open_gpu("");
    require(fake_cuda_control("fail nvmlEventSetWait_v2 15 1 3\nxid 0 48\n"));
    check(wait_for_news());
    check(news.suspect && !news.lost);
    require(fake_cuda_control("lost 0\n"));
    check(wait_for_news());
    check(news.lost);
    check_str(news.why, "NVML says that the GPU is lost");
    close_gpu();
}

TAP_TEST(a_gpu_that_tells_no_events_is_served_without)
{
    struct vmm_piece piece;

    open_gpu("fail nvmlDeviceRegisterEvents 3\n");
    check_int(vmm_create(vmm, 2 * MIB, true, &piece), 0);
    vmm_destroy(vmm, &piece);
    check_free(1024 * MIB);
    close_gpu();
    open_gpu("fail nvmlDeviceRegisterEvents 3 1 1\nxid 0 48\n"); /* no ECC, but Xids */
    check(wait_for_news());
    close_gpu();
}

TAP_TEST(measuring_does_not_wait_for_a_library_that_hangs)
{
    struct vmm_info info;

    open_gpu("memory 64\nothers 2\n");
    check_free(62 * MIB);
    require(fake_cuda_control("memory 64\nothers 8\nslow nvmlDeviceGetMemoryInfo 1000\n"));
    vmm_measure(vmm);
    vmm_get_info(vmm, &info);
    check_int(info.free_bytes, 62 * MIB);
    require(fake_cuda_control("memory 64\nothers 8\n"));
    check_free(56 * MIB);
    close_gpu();
}

/* Each of them waiting its time would be longer than the library hangs. */
TAP_TEST(a_library_that_hangs_is_waited_for_once_not_by_each_measurement)
{
    struct vmm_info info;

    open_gpu("memory 64\nothers 2\n");
    check_free(62 * MIB);
    require(fake_cuda_control("memory 64\nothers 8\nslow nvmlDeviceGetMemoryInfo 3000\n"));
    for (int i = 0; i < 400; i++)
        vmm_measure(vmm);
    vmm_get_info(vmm, &info);
    check_int(info.free_bytes, 62 * MIB);
    require(fake_cuda_control("memory 64\nothers 8\n"));
    check_free(56 * MIB);
    close_gpu();
}

TAP_TEST(sizes_beyond_any_device_are_enomem)
{
    struct vmm_piece piece;

    open_gpu("");
    check_int(vmm_create(vmm, UINT64_MAX, true, &piece), -ENOMEM);
    check_int(vmm_create(vmm, INT64_MAX, true, &piece), -ENOMEM);
    check_int(vmm_create(vmm, UINT64_C(1) << 46, true, &piece), -ENOMEM);
    close_gpu();
}

/* ---- many ------------------------------------------------------------------------------------ */

static void *make_and_drop(void *count)
{
    for (int i = 0; i < *(int *)count; i++) {
        struct vmm_piece piece;

        if (!check_int(vmm_create(vmm, 2 * MIB, true, &piece), 0))
            break;
        vmm_destroy(vmm, &piece);
    }
    return NULL;
}

static void run_parallel(int count)
{
    pthread_t threads[PARALLEL];

    for (int i = 0; i < PARALLEL; i++)
        require(pthread_create(&threads[i], NULL, make_and_drop, &count) == 0);
    for (int i = 0; i < PARALLEL; i++)
        pthread_join(threads[i], NULL);
}

TAP_TEST(several_threads_create_while_exports_are_slow)
{
    open_gpu("slow cuMemExportToShareableHandle 2\n");
    run_parallel(20);
    check_free(GIB);
    close_gpu();
}

TAP_TEST(nothing_leaks_over_a_hundred_thousand_pieces)
{
    const char *cycles = getenv("GMSFS_CYCLES");
    int count = cycles ? atoi(cycles) : LEAK_CYCLES;
    int descriptors;

    open_gpu("memory 256\n");
    run_parallel(1);
    descriptors = count_descriptors();
    run_parallel(count / PARALLEL);
    check_int(count_descriptors(), descriptors);
    check_free(256 * MIB);
    close_gpu();
}
