/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of host memory: properties of memfds, spools, transfers. */
#include "vmm_fixture.h"

#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define NOBODY       65534
#define UNPRIVILEGED "not run as root"

/* ---- pieces ---------------------------------------------------------------------------------- */

TAP_TEST(created_piece_has_size_and_aligned_size)
{
    struct vmm_piece piece = open_host_with(64 * MIB, 5 * MIB + 3, true);

    check_int(piece.size_bytes, 5 * MIB + 3);
    check_int(piece.aligned_bytes, 6 * MIB);
    check(piece.sealed);
    check_int(size_of(piece.fd), 6 * MIB);
    vmm_destroy(vmm, &piece);
    check_int(piece.fd, -1);
    check_int(piece.fd_readonly, -1);
    vmm_close(vmm);
}

TAP_TEST(memory_is_committed_at_creation)
{
    auto_piece piece = open_host_with(64 * MIB, 5 * MIB, true);

    check_int(committed_of(piece.fd), 6 * MIB);
}

TAP_TEST(created_memory_is_zero_to_its_aligned_end)
{
    auto_piece piece = open_host_with(256 * MIB, 5 * MIB, true);

    check(all_bytes_are(&piece, 0, 0, 6 * MIB));
}

TAP_TEST(large_piece_is_committed_over_several_chunks)
{
    auto_piece piece = open_host_with(GIB, 150 * MIB, true);

    check_int(committed_of(piece.fd), 150 * MIB);
    check_int(size_of(piece.fd), 150 * MIB);
}

TAP_TEST(sealed_piece_cannot_be_resized)
{
    auto_piece piece = open_host_with(64 * MIB, 4 * MIB, true);

    check(ftruncate(piece.fd, 2 * MIB) < 0 && errno == EPERM);
    check(ftruncate(piece.fd, 8 * MIB) < 0 && errno == EPERM);
    check(fallocate(piece.fd, 0, 4 * MIB, 2 * MIB) < 0 && errno == EPERM);
    check_int(size_of(piece.fd), 4 * MIB);
}

TAP_TEST(final_piece_takes_no_further_seals)
{
    auto_piece piece = open_host_with(64 * MIB, 4 * MIB, true);

    check_int(fcntl(piece.fd, F_GET_SEALS) & SIZE_SEALS, SIZE_SEALS);
    check_int(vmm_finish(vmm, &piece), 0);
    check_int(vmm_finish(vmm, &piece), 0);
    check(fcntl(piece.fd, F_ADD_SEALS, F_SEAL_WRITE) < 0 && errno == EPERM);
}

TAP_TEST(mode_is_0)
{
    struct vmm_piece piece, spool;

    open_host(64 * MIB);
    require(vmm_create(vmm, 4 * MIB, true, &piece) == 0);
    require(vmm_create(vmm, 0, false, &spool) == 0);
    check_int(mode_of(piece.fd), 0);
    check_int(mode_of(piece.fd_readonly), 0);
    check_int(mode_of(spool.fd), 0);
    vmm_destroy(vmm, &piece);
    close_host(&spool);
}

TAP_TEST(both_descriptors_close_on_exec)
{
    auto_piece piece = open_host_with(64 * MIB, 4 * MIB, true);

    check_int(fcntl(piece.fd, F_GETFD), FD_CLOEXEC);
    check_int(fcntl(piece.fd_readonly, F_GETFD), FD_CLOEXEC);
}

TAP_TEST(readonly_descriptor_cannot_be_written)
{
    auto_piece piece = open_host_with(64 * MIB, 4 * MIB, true);

    check_int(fcntl(piece.fd_readonly, F_GETFL) & O_ACCMODE, O_RDONLY);
    check(write(piece.fd_readonly, "x", 1) < 0 && errno == EBADF);
}

TAP_TEST(readonly_descriptor_cannot_be_mapped_writable_and_shared)
{
    auto_piece piece = open_host_with(64 * MIB, 4 * MIB, true);
    void *map;

    map = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, piece.fd_readonly, 0);
    check(map == MAP_FAILED && errno == EACCES);
    map = mmap(NULL, 4 * MIB, PROT_READ, MAP_SHARED, piece.fd_readonly, 0);
    require(map != MAP_FAILED);
    check(mprotect(map, 4 * MIB, PROT_READ | PROT_WRITE) < 0 && errno == EACCES);
    munmap(map, 4 * MIB);
}

TAP_TEST(readonly_descriptor_shows_what_the_other_writes)
{
    auto_piece piece = open_host_with(64 * MIB, 4 * MIB, true);
    char text[6] = "";

    check_int(vmm_write(vmm, &piece, "hello", 5, 3 * MIB), 0);
    check_int(pread(piece.fd_readonly, text, 5, 3 * MIB), 5);
    check_str(text, "hello");
}

/* Returns the error of opening our own descriptor `fd` again for writing, as uid 65534. */
static int reopen_as_nobody(int fd)
{
    char path[64];
    int status = 0;
    pid_t child = fork();

    require(child >= 0);
    if (child == 0) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY))
            _exit(255);
        prctl(PR_SET_DUMPABLE, 1);
        _exit(open(path, O_RDWR | O_CLOEXEC) < 0 ? errno : 0);
    }
    require(waitpid(child, &status, 0) == child);
    require(WIFEXITED(status) && WEXITSTATUS(status) != 255);
    return WEXITSTATUS(status);
}

TAP_TEST(another_uid_cannot_reopen_a_readonly_descriptor_for_writing)
{
    struct vmm_piece piece;
    int open_to_all;

    if (skip(geteuid() != 0, UNPRIVILEGED))
        return;
    open_host(64 * MIB);
    require(vmm_create(vmm, 4 * MIB, true, &piece) == 0);
    check_int(reopen_as_nobody(piece.fd_readonly), EACCES);
    check_int(reopen_as_nobody(piece.fd), EACCES);
    /* It is the mode that refuses: a memfd as it comes can be reopened. */
    open_to_all = memfd_create("control", MFD_CLOEXEC);
    require(open_to_all >= 0 && fchmod(open_to_all, 0666) == 0);
    check_int(reopen_as_nobody(open_to_all), 0);
    close(open_to_all);
    close_host(&piece);
}

TAP_TEST(an_ordinary_user_can_make_pieces)
{
    struct vmm_piece piece;
    int status = 0;
    pid_t child;

    if (skip(geteuid() != 0, UNPRIVILEGED))
        return;
    open_host(64 * MIB);
    child = fork();
    require(child >= 0);
    if (child == 0) {
        if (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY))
            _exit(255);
        if (vmm_create(vmm, 4 * MIB, true, &piece) < 0)
            _exit(1);
        _exit(fcntl(piece.fd_readonly, F_GETFL) < 0 || mode_of(piece.fd) != 0);
    }
    require(waitpid(child, &status, 0) == child);
    check_int(status, 0);
    vmm_close(vmm);
}

TAP_TEST(sealed_piece_of_size_0_is_einval)
{
    struct vmm_piece piece;

    open_host(64 * MIB);
    check_int(vmm_create(vmm, 0, true, &piece), -EINVAL);
    check_int(piece.fd, -1);
    vmm_close(vmm);
}

TAP_TEST(destroying_twice_is_harmless)
{
    struct vmm_piece piece = open_host_with(64 * MIB, 2 * MIB, true);

    vmm_destroy(vmm, &piece);
    close_host(&piece);
    vmm_close(NULL);
}

TAP_TEST(descriptors_do_not_leak_over_1000_cycles)
{
    struct vmm_piece piece;
    int before = count_descriptors();

    open_host(64 * MIB);
    for (int i = 0; i < CYCLES; i++) {
        require(vmm_create(vmm, 0, false, &piece) == 0);
        require(vmm_grow(vmm, &piece, 2 * MIB) == 0);
        require(vmm_seal(vmm, &piece, 2 * MIB) == 0);
        vmm_destroy(vmm, &piece);
    }
    vmm_close(vmm);
    check_int(count_descriptors(), before);
}

/* ---- spools ---------------------------------------------------------------------------------- */

TAP_TEST(spool_begins_empty_and_unsealed)
{
    auto_piece piece = open_host_with(64 * MIB, 0, false);

    check_int(piece.aligned_bytes, 0);
    check(!piece.sealed);
    check_int(size_of(piece.fd), 0);
    check_int(fcntl(piece.fd, F_GET_SEALS) & SIZE_SEALS, 0);
}

TAP_TEST(grown_spool_is_committed_and_keeps_its_bytes)
{
    auto_piece piece = open_host_with(64 * MIB, 0, false);

    check_int(vmm_grow(vmm, &piece, 2 * MIB), 0);
    fill(&piece, 7, 0, 2 * MIB);
    check_int(vmm_grow(vmm, &piece, 6 * MIB), 0);
    check_int(piece.aligned_bytes, 6 * MIB);
    check_int(committed_of(piece.fd), 6 * MIB);
    check(all_bytes_are(&piece, 7, 0, 2 * MIB));
    check(all_bytes_are(&piece, 0, 2 * MIB, 6 * MIB));
}

TAP_TEST(growing_to_less_changes_nothing)
{
    auto_piece piece = open_host_with(64 * MIB, 0, false);

    check_int(vmm_grow(vmm, &piece, 4 * MIB), 0);
    check_int(vmm_grow(vmm, &piece, 2 * MIB), 0);
    check_int(piece.aligned_bytes, 4 * MIB);
}

TAP_TEST(growing_a_sealed_piece_or_by_odd_bytes_is_einval)
{
    struct vmm_piece piece, spool;

    open_host(64 * MIB);
    require(vmm_create(vmm, 2 * MIB, true, &piece) == 0);
    require(vmm_create(vmm, 0, false, &spool) == 0);
    check_int(vmm_grow(vmm, &piece, 4 * MIB), -EINVAL);
    check_int(vmm_grow(vmm, &spool, MIB), -EINVAL);
    vmm_destroy(vmm, &piece);
    close_host(&spool);
}

TAP_TEST(sealed_spool_has_a_zero_tail)
{
    auto_piece piece = open_host_with(64 * MIB, 0, false);

    require(vmm_grow(vmm, &piece, 4 * MIB) == 0);
    fill(&piece, 9, 0, 4 * MIB);
    require(vmm_seal(vmm, &piece, 3 * MIB + 5) == 0);
    check_int(piece.size_bytes, 3 * MIB + 5);
    check_int(piece.aligned_bytes, 4 * MIB);
    check(all_bytes_are(&piece, 9, 0, 3 * MIB + 5));
    check(all_bytes_are(&piece, 0, 3 * MIB + 5, 4 * MIB));
}

TAP_TEST(sealed_spool_gives_back_what_it_does_not_need)
{
    auto_piece piece = open_host_with(64 * MIB, 0, false);

    require(vmm_grow(vmm, &piece, 16 * MIB) == 0);
    require(vmm_seal(vmm, &piece, 3 * MIB) == 0);
    check_int(piece.aligned_bytes, 4 * MIB);
    check_int(committed_of(piece.fd), 4 * MIB);
    check_int(size_of(piece.fd), 4 * MIB);
}

TAP_TEST(sealed_spool_cannot_be_resized)
{
    auto_piece piece = open_host_with(64 * MIB, 0, false);

    require(vmm_grow(vmm, &piece, 4 * MIB) == 0);
    require(vmm_seal(vmm, &piece, 4 * MIB) == 0);
    check(piece.sealed);
    check_int(fcntl(piece.fd, F_GET_SEALS) & SIZE_SEALS, SIZE_SEALS);
    check(ftruncate(piece.fd, 2 * MIB) < 0 && errno == EPERM);
    check(ftruncate(piece.fd, 8 * MIB) < 0 && errno == EPERM);
}

TAP_TEST(sealing_twice_or_beyond_the_memory_is_einval)
{
    auto_piece piece = open_host_with(64 * MIB, 0, false);

    require(vmm_grow(vmm, &piece, 4 * MIB) == 0);
    check_int(vmm_seal(vmm, &piece, 4 * MIB + 1), -EINVAL);
    check_int(vmm_seal(vmm, &piece, UINT64_MAX), -EINVAL);
    check_int(vmm_seal(vmm, &piece, 4 * MIB), 0);
    check_int(vmm_seal(vmm, &piece, 4 * MIB), -EINVAL);
}

/* ---- transfers ------------------------------------------------------------------------------- */

TAP_TEST(whole_ranges_are_written_and_read)
{
    auto_piece piece = open_host_with(64 * MIB, 8 * MIB, true);

    write_and_read_back(&piece, 0, 8 * MIB);
    write_and_read_back(&piece, 1, 1);
    write_and_read_back(&piece, 4095, 8193);
    write_and_read_back(&piece, 8 * MIB - 3, 3);
}

TAP_TEST(transfer_of_nothing_is_done)
{
    auto_piece piece = open_host_with(64 * MIB, 2 * MIB, true);

    check_int(vmm_read(vmm, &piece, NULL, 0, 2 * MIB), 0);
    check_int(vmm_write(vmm, &piece, NULL, 0, 0), 0);
}

TAP_TEST(transfer_beyond_the_memory_is_einval)
{
    struct vmm_piece piece = open_host_with(64 * MIB, 2 * MIB, true);
    char byte = 0;

    check_int(vmm_read(vmm, &piece, &byte, 1, 2 * MIB), -EINVAL);
    check_int(vmm_write(vmm, &piece, &byte, 1, UINT64_MAX), -EINVAL);
    check_int(vmm_write(vmm, &piece, &byte, 4 * MIB, 0), -EINVAL);
    vmm_destroy(vmm, &piece);
    check_int(vmm_read(vmm, &piece, &byte, 1, 0), -EINVAL);
    vmm_close(vmm);
}

TAP_TEST(transfer_to_a_bad_address_is_efault)
{
    struct vmm_piece piece;
    void *hole = mmap(NULL, MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    require(hole != MAP_FAILED);
    open_host(64 * MIB);
    require(vmm_create(vmm, 2 * MIB, true, &piece) == 0);
    check_int(vmm_read(vmm, &piece, hole, MIB, 0), -EFAULT);
    close_host(&piece);
    munmap(hole, MIB);
}
