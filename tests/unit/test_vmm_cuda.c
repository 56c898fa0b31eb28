/* SPDX-License-Identifier: Apache-2.0 */
/* file_tags=slow */
/* Memory of a GPU as descriptors, over the fake driver: which one, opening, pieces, leaks. */
#include "vmm/cuda_choose.h"
#include "vmm_cuda_fixture.h"

#include <pthread.h>

#define GPU0        "GPU-fa5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00"
#define LEAK_CYCLES 10000
#define PARALLEL    4

/* ---- which GPU ------------------------------------------------------------------------------- */

static int choose(const char *device, struct cuda_choice *choice)
{
    unsetenv("CUDA_VISIBLE_DEVICES");
    unsetenv("CUDA_DEVICE_ORDER");
    error[0] = '\0';
    return cuda_choose(root, device, choice, error, sizeof(error));
}

TAP_AFTER_EACH(close_gpu)

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
    vmm_get_info(vmm, &info);
    check_str(info.backend, "cuda");
    check_str(info.name, "Fake GPU 0");
    check_str(info.pci_id, "0000:17:00.0");
    check_int(info.uuid[0], 0xfa);
    check_int(info.uuid[15], 0);
    check_int(info.memory, VMM_MEMORY_CUDA);
    check_str(info.version_name, "cuda_version");
    check_str(info.version, "13.0");
    check_int(info.granularity_bytes, 2 * MIB);
    check_int(info.total_bytes, 512 * MIB);
    check_int(info.used_bytes, 0);
    check_int(info.other_bytes, 32 * MIB);
    check_int(info.free_bytes, 480 * MIB);
    check(vmm_can_settle(vmm));
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
}

TAP_TEST(memory_that_cannot_be_exported_is_said_at_opening)
{
    check_int(open_with("fail cuMemExportToShareableHandle 801\n", (struct vmm_options){0}), -EIO);
    check(strstr(error, "device cuda: Fake GPU 0 makes no memory that can be shared") == error);
}

TAP_TEST(rdma_is_left_out_where_the_driver_promises_it_and_refuses)
{
    open_gpu("fail cuMemCreate 801 1 1\n");
    close_gpu();
    open_gpu("rdma 0\n");
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
}

TAP_TEST(piece_is_held_by_its_descriptor_and_nothing_else)
{
    struct vmm_piece piece;

    open_gpu("memory 64\n");
    require(vmm_create(vmm, 48 * MIB, true, &piece) == 0);
    check_free(16 * MIB);
    vmm_destroy(vmm, &piece);
    check_free(64 * MIB);
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
}

TAP_TEST(without_a_copier_bytes_are_an_error_and_memory_is_as_before)
{
    static const char *const PROGRAMS[] = {"/bin/false", "/bin/true", "/nonexistent/gmsfs"};
    struct vmm_piece piece;
    struct vmm_span span = {.bytes = 1};
    struct vmm_loan loan;
    char byte = 0;

    open_gpu("");
    for (size_t i = 0; i < sizeof(PROGRAMS) / sizeof(PROGRAMS[0]); i++) {
        setenv("GMSFS_COPIER_EXE", PROGRAMS[i], 1);
        require(vmm_create(vmm, 2 * MIB, true, &piece) == 0);
        check_int(vmm_read(vmm, &piece, &byte, 1, 0), -EIO);
        check_int(vmm_write(vmm, &piece, &byte, 1, 0), -EIO);
        check_int(vmm_lend(vmm, &piece, &span, &loan), -EIO);
        check_int(vmm_lend_now(vmm, &piece, &span, &loan), -EAGAIN);
        check_int(vmm_read(vmm, &piece, &byte, 1, 2 * MIB), -EINVAL);
        vmm_destroy(vmm, &piece);
    }
    unsetenv("GMSFS_COPIER_EXE");
}

TAP_TEST(a_spool_is_host_memory_and_stays_one_while_it_cannot_be_sealed)
{
    struct vmm_piece piece;
    char text[6] = "";

    open_gpu("memory 512");
    setenv("GMSFS_COPIER_EXE", "/bin/false", 1);
    require(vmm_create(vmm, 0, false, &piece) == 0);
    require(vmm_grow(vmm, &piece, 4 * MIB) == 0);
    check_int(vmm_write(vmm, &piece, "hello", 5, 3 * MIB), 0);
    check_free(512 * MIB);
    check_int(vmm_seal(vmm, &piece, 3 * MIB + 5), -EIO);
    check(!piece.sealed);
    check_int(vmm_read(vmm, &piece, text, 5, 3 * MIB), 0);
    check(strcmp(text, "hello") == 0);
    vmm_destroy(vmm, &piece);
    check_free(512 * MIB);
    unsetenv("GMSFS_COPIER_EXE");
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
}

TAP_TEST(nothing_leaks_over_ten_thousand_pieces)
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
}
