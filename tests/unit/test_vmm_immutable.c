/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that no process can write any more. */
#include "vmm_fixture.h"

#include <linux/capability.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct vmm_piece piece;

static void make_piece(void)
{
    open_host(64 * MIB);
    require(vmm_create(vmm, 4 * MIB, true, &piece) == 0);
    require(vmm_write(vmm, &piece, "hello", 5, 0) == 0);
}

static void drop_piece(void)
{
    close_host(&piece);
}

/* A descriptor as a client gets it. */
static int duplicate(bool writable)
{
    int fd = -1;

    require(vmm_duplicate(vmm, &piece, writable, &fd) == 0);
    return fd;
}

static uint8_t *map(int fd, int protection)
{
    uint8_t *at = mmap(NULL, 4 * MIB, protection, MAP_SHARED, fd, 0);

    require(at != MAP_FAILED);
    return at;
}

TAP_TEST(immutable_memory_is_read_and_mapped_and_never_written)
{
    int writer, reader;
    uint8_t *at;

    make_piece();
    writer = duplicate(true);
    check_int(vmm_make_immutable(vmm, &piece), 0);
    check_int(vmm_make_immutable(vmm, &piece), 0);
    check(write(writer, "x", 1) < 0 && errno == EPERM);
    check_int(vmm_write(vmm, &piece, "x", 1, 0), -EPERM);
    check(mmap(NULL, 4 * MIB, PROT_WRITE, MAP_SHARED, writer, 0) == MAP_FAILED && errno == EPERM);
    reader = duplicate(false);
    at = map(reader, PROT_READ);
    check(memcmp(at, "hello", 5) == 0);
    munmap(at, 4 * MIB);
    close(writer);
    close(reader);
    drop_piece();
}

TAP_TEST(immutable_memory_is_held_while_another_description_has_it_open_or_mapped)
{
    int reader;
    uint8_t *at;

    make_piece();
    reader = duplicate(false);
    check(!vmm_is_held(&piece)); /* nobody asks for memory that may change */
    check_int(vmm_make_immutable(vmm, &piece), 0);
    piece.immutable = true;
    check(vmm_is_held(&piece));
    at = map(reader, PROT_READ);
    close(reader);
    check(vmm_is_held(&piece));
    munmap(at, 4 * MIB);
    check(!vmm_is_held(&piece));
    drop_piece();
}

/* Sets the effective capabilities of this thread, and returns the former ones. */
static uint32_t set_effective(uint32_t capabilities)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];

    require(syscall(SYS_capget, &head, sets) == 0);
    uint32_t former = sets[0].effective;
    sets[0].effective = capabilities & sets[0].permitted;
    require(syscall(SYS_capset, &head, sets) == 0);
    return former;
}

TAP_TEST(immutable_memory_counts_as_held_where_the_kernel_refuses_to_tell)
{
    uint32_t capabilities;

    if (skip(geteuid() != 0, "needs root"))
        return;
    make_piece();
    check_int(vmm_make_immutable(vmm, &piece), 0);
    piece.immutable = true;
    check(vmm_tells_holders(vmm) && !vmm_is_held(&piece));
    setfsuid(1); /* the owner of a file and CAP_LEASE get leases of it */
    capabilities = set_effective(0);
    check(vmm_is_held(&piece));
    set_effective(capabilities);
    setfsuid(0);
    check(!vmm_is_held(&piece));
    drop_piece();
}

TAP_TEST(memory_that_is_mapped_for_writing_is_ebusy_and_stays_writable)
{
    uint8_t *at;
    int writer;

    make_piece();
    writer = duplicate(true);
    at = map(writer, PROT_READ | PROT_WRITE);
    close(writer);
    check_int(vmm_make_immutable(vmm, &piece), -EBUSY);
    check_int(vmm_write(vmm, &piece, "world", 5, 0), 0);
    munmap(at, 4 * MIB);
    check_int(vmm_make_immutable(vmm, &piece), 0);
    drop_piece();
}

TAP_TEST(a_readers_mapping_does_not_keep_memory_from_being_immutable)
{
    int reader, copier;
    uint8_t *at, *private;

    make_piece();
    reader = duplicate(false);
    copier = duplicate(true);
    at = map(reader, PROT_READ);
    private = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, copier, 0);
    require(private != MAP_FAILED);
    check_int(vmm_make_immutable(vmm, &piece), 0);
    munmap(private, 4 * MIB);
    munmap(at, 4 * MIB);
    close(reader);
    close(copier);
    drop_piece();
}

TAP_TEST(memory_that_is_final_cannot_become_immutable)
{
    make_piece();
    check_int(vmm_finish(vmm, &piece), 0);
    check_int(vmm_make_immutable(vmm, &piece), -EOPNOTSUPP);
    drop_piece();
}

TAP_TEST(memory_that_a_client_sealed_against_writes_can_be_immutable_and_not_plain)
{
    static const int seals[] = {F_SEAL_WRITE, 0x0010 /* F_SEAL_FUTURE_WRITE */};
    int writer;

    for (size_t i = 0; i < 2; i++) {
        make_piece();
        writer = duplicate(true);
        require(fcntl(writer, F_ADD_SEALS, seals[i]) == 0);
        check_int(vmm_finish(vmm, &piece), -EPERM);
        close(writer);
        drop_piece();
        make_piece();
        writer = duplicate(true);
        require(fcntl(writer, F_ADD_SEALS, seals[i]) == 0);
        check_int(vmm_make_immutable(vmm, &piece), 0);
        close(writer);
        drop_piece();
    }
}

TAP_TEST(another_process_finds_out_what_is_final_and_what_is_immutable)
{
    struct vmm_kept kept = {.fd_readonly = -1};
    struct vmm_piece adopted;

    for (int step = 0; step < 3; step++) {
        make_piece();
        require(step != 1 || vmm_finish(vmm, &piece) == 0);
        require(step != 2 || vmm_make_immutable(vmm, &piece) == 0);
        kept.fd = fcntl(piece.fd, F_DUPFD_CLOEXEC, 0);
        require(vmm_adopt(vmm, VMM_TIER_DEVICE, &kept, 4 * MIB, 4 * MIB, true, &adopted) == 0);
        check_int(adopted.final, step > 0);
        check_int(adopted.immutable, step == 2);
        vmm_destroy(vmm, &adopted);
        drop_piece();
    }
}

TAP_TEST(a_spool_becomes_neither)
{
    auto_piece spool = open_host_with(64 * MIB, 0, false);

    check_int(vmm_finish(vmm, &spool), -EINVAL);
    check_int(vmm_make_immutable(vmm, &spool), -EINVAL);
}
