/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that ends with its size, not with its unit. */
#include "vmm_fixture.h"

#include <sys/mman.h>
#include <unistd.h>

#define PAGE_BYTES 4096u

static const uint64_t sizes[] = {1, 4095, 4096, 4097, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1};

static void check_last_page(const struct vmm_piece *piece, uint64_t bytes)
{
    uint64_t mapped = (bytes + PAGE_BYTES - 1) & ~(uint64_t)(PAGE_BYTES - 1);
    uint8_t *at = mmap(NULL, mapped, PROT_READ, MAP_SHARED, piece->fd_readonly, 0);

    require(at != MAP_FAILED);
    check_int(at[bytes - 1], 'x');
    for (uint64_t i = bytes; i < mapped; i++)
        require(at[i] == 0);
    munmap(at, mapped);
}

TAP_TEST(exact_memory_ends_with_its_size)
{
    struct vmm_piece piece;
    uint8_t sum[16], byte;

    open_host(64 * MIB);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t bytes = sizes[i];

        require(vmm_create_exact(vmm, bytes, &piece) == 0);
        check_int(size_of(piece.fd), bytes);
        check_int(piece.aligned_bytes, bytes);
        check_int(vmm_write(vmm, &piece, "x", 1, bytes - 1), 0);
        check_int(vmm_write(vmm, &piece, "x", 1, bytes), -EINVAL);
        check_int(vmm_read(vmm, &piece, &byte, 1, bytes), -EINVAL);
        check_int(vmm_sum(vmm, &piece, 0, bytes, sum), 0);
        check(ftruncate(piece.fd, 2 * MIB + 2) < 0 && errno == EPERM);
        check(ftruncate(piece.fd, 0) < 0 && errno == EPERM);
        check_int(vmm_make_immutable(vmm, &piece), 0);
        check_last_page(&piece, bytes);
        vmm_destroy(vmm, &piece);
    }
    check_int(vmm_create_exact(vmm, 0, &piece), -EINVAL);
    check_int(vmm_create_exact(vmm, UINT64_MAX, &piece), -ENOMEM);
    vmm_close(vmm);
}

static void adopt(const struct vmm_piece *piece, struct vmm_piece *adopted)
{
    struct vmm_kept kept = {.fd = piece->fd, .fd_readonly = piece->fd_readonly};

    require(vmm_adopt(vmm, VMM_TIER_DEVICE, &kept, 2 * MIB, 2 * MIB, true, adopted) == 0);
}

TAP_TEST(a_next_process_finds_where_exact_memory_ends)
{
    struct vmm_piece piece, adopted;

    open_host(64 * MIB);
    require(vmm_create_exact(vmm, 4097, &piece) == 0);
    adopt(&piece, &adopted);
    check_int(adopted.aligned_bytes, 4097);
    close_host(&adopted);
}

TAP_TEST(a_next_process_clears_the_last_page_of_memory_that_the_former_only_sealed)
{
    struct vmm_piece piece, adopted;
    uint8_t *at;

    open_host(64 * MIB);
    require(vmm_create_exact(vmm, 4097, &piece) == 0);
    at = mmap(NULL, 2 * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, piece.fd, 0);
    require(at != MAP_FAILED);
    memset(at, 'x', 2 * PAGE_BYTES);
    munmap(at, 2 * PAGE_BYTES);
    require(fcntl(piece.fd, F_ADD_SEALS, SIZE_SEALS | F_SEAL_WRITE | F_SEAL_SEAL) == 0);
    adopt(&piece, &adopted);
    check(adopted.immutable);
    check_last_page(&adopted, 4097);
    close_host(&adopted);
}

TAP_TEST(zeros_behind_the_size_are_trimmed_and_other_bytes_stay)
{
    struct vmm_piece piece;

    open_host(64 * MIB);
    for (int step = 0; step < 3; step++) {
        bool has_tail = step == 1;

        require(vmm_create_untrimmed(vmm, 4 * MIB, &piece) == 0);
        check_int(vmm_write(vmm, &piece, "x", 1, 2 * MIB), 0);
        check_int(vmm_write(vmm, &piece, "x", has_tail, 4 * MIB - 1), 0);
        check_int(vmm_trim(vmm, &piece, step == 2 ? 4 * MIB : 2 * MIB + 1), 0);
        check_int(piece.aligned_bytes, step == 0 ? 2 * MIB + 1 : 4 * MIB);
        check_int(size_of(piece.fd), piece.aligned_bytes);
        check(ftruncate(piece.fd, 0) < 0 && errno == EPERM);
        check_int(vmm_make_immutable(vmm, &piece), 0);
        vmm_destroy(vmm, &piece);
    }
    vmm_close(vmm);
}

TAP_TEST(memory_of_a_fixed_size_is_not_trimmed)
{
    auto_piece piece = open_host_with(64 * MIB, 4 * MIB, true);

    check_int(vmm_trim(vmm, &piece, 1), -EPERM);
    check_int(size_of(piece.fd), 4 * MIB);
    check_int(vmm_trim(vmm, &piece, 0), -EINVAL);
    check_int(vmm_trim(vmm, &piece, 4 * MIB + 1), -EINVAL);
}
