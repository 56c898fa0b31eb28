/* SPDX-License-Identifier: Apache-2.0 */
/* Tests host memory in libgmsfs: ranges that are filled while other threads map at will. */
#include <errno.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory.h"
#include "tap.h"

#define GRANULE ((uint64_t)64 << 10)

static struct gfs_memory host;
static struct gfs_scope scope;

static void enter_host_memory(void)
{
    gfs_memory_init(&host, &gfs_memory_host, (const uint8_t[16]){0}, GRANULE);
    require(gfs_memory_enter(&host, 0, &scope) == 0);
}

/* A memfd of one granule whose first byte is `fill`. */
static int make_piece(char fill)
{
    int fd = memfd_create("piece", MFD_CLOEXEC);

    require(fd >= 0 && ftruncate(fd, (off_t)GRANULE) == 0 && pwrite(fd, &fill, 1, 0) == 1);
    return fd;
}

static int append_piece(struct gfs_memory *memory, struct gfs_range *range, char fill)
{
    int fd = make_piece(fill);
    int r = gfs_range_append(memory, range, GRANULE, 0, GMSFS_ACCESS_READ, fd);

    close(fd);
    return r;
}

/* Returns true if the kernel has a mapping there. */
static int is_mapped(uintptr_t va)
{
    unsigned char here;

    return mincore((void *)va, 1, &here) == 0;
}

TAP_TEST(the_kind_of_memory_goes_by_the_number_of_the_abi)
{
    check(gfs_memory_find_kind(GMSFS_MEMORY_HOST) == &gfs_memory_host);
    check(gfs_memory_find_kind(GMSFS_MEMORY_CUDA) == &gfs_memory_cuda);
    check(gfs_memory_find_kind(GMSFS_MEMORY_CUDA + 1) == NULL);
    check(gfs_memory_find_kind(UINT32_MAX) == NULL);
}

static void fill_range(struct gfs_range *range, int pieces)
{
    enter_host_memory();
    check_int(gfs_range_begin(&host, range, (uint64_t)pieces * GRANULE), 0);
    check_int(range->base % GRANULE, 0);
    check_int(gfs_range_end(&host, range, GMSFS_ACCESS_READ), -ENOSPC);
    for (int i = 0; i < pieces; i++)
        check_int(append_piece(&host, range, (char)i), 0);
    check_int(append_piece(&host, range, 0), -ENOSPC);
    check_int(gfs_range_end(&host, range, GMSFS_ACCESS_READ), 0);
    for (int i = 0; i < pieces; i++)
        check_int(*(const char *)(range->base + (uint64_t)i * GRANULE), i);
    gfs_memory_leave(&scope);
}

TAP_TEST(range_is_filled_side_by_side)
{
    for (int careful = 0; careful < 2; careful++) {
        for (int pieces = 1; pieces < 50; pieces += 7) {
            enter_host_memory();
            struct gfs_range range = {.careful = careful};
            uintptr_t base;
            fill_range(&range, pieces);
            base = range.base;
            gfs_range_cancel(&host, &range);
            check_int(range.base, 0);
            check(!is_mapped(base) && !is_mapped(base + (uint64_t)(pieces - 1) * GRANULE));
        }
    }
}

/* Returns the address of the next piece: the open part, as after a first append. */
static void *take_next_address(const struct gfs_range *range)
{
    void *va = (void *)(range->base + range->mapped_bytes);

    return mmap(va, GRANULE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
}

TAP_TEST(address_that_was_taken_is_noticed_and_left_alone)
{
    enter_host_memory();
    struct gfs_range range = {0};
    uintptr_t base, theirs;

    check_int(gfs_range_begin(&host, &range, 64 * GRANULE), 0);
    check_int(append_piece(&host, &range, 1), 0);
    base = range.base;
    theirs = (uintptr_t)take_next_address(&range);
    require(theirs == base + GRANULE);
    check_int(append_piece(&host, &range, 2), -EEXIST);
    gfs_range_cancel(&host, &range);
    check(is_mapped(theirs));
    check(!is_mapped(base) && !is_mapped(base + 63 * GRANULE));
    munmap((void *)theirs, GRANULE);
}

TAP_TEST(careful_range_holds_every_address)
{
    enter_host_memory();
    struct gfs_range range = {.careful = 1};

    check_int(gfs_range_begin(&host, &range, 64 * GRANULE), 0);
    check_int(append_piece(&host, &range, 1), 0);
    check(take_next_address(&range) == MAP_FAILED);
    gfs_range_cancel(&host, &range);
}

TAP_TEST(child_keeps_nothing_of_a_range_that_is_being_filled)
{
    for (int careful = 0; careful < 2; careful++) {
        enter_host_memory();
        struct gfs_range range = {.careful = careful};
        struct gfs_vmap map = {0};
        int status = -1;
        pid_t child;

        check_int(gfs_range_begin(&host, &range, 64 * GRANULE), 0);
        check_int(append_piece(&host, &range, 1), 0);
        fflush(stdout);
        child = fork();
        require(child >= 0);
        if (child == 0) {
            gfs_memory_after_fork(&host, &range, &map, 0);
            _exit(is_mapped(range.base) || is_mapped(range.base + 63 * GRANULE));
        }
        check(waitpid(child, &status, 0) == child && status == 0);
        check(is_mapped(range.base));
        gfs_range_cancel(&host, &range);
    }
}

TAP_TEST(unmapped_memory_stays_reserved)
{
    enter_host_memory();
    uint64_t reserved_bytes = 0;
    uintptr_t base = 0;
    auto_fd fd = make_piece(7);

    check_int(gfs_memory_reserve(&host, GRANULE + 1, &base, &reserved_bytes), 0);
    check_int(reserved_bytes, 2 * GRANULE);
    check_int(gfs_memory_map(&host, base, GRANULE, GMSFS_ACCESS_WRITE, fd), 0);
    check_int(gfs_memory_settle(&host, base, GRANULE, GMSFS_ACCESS_WRITE, 0), 0);
    *(char *)base = 8;
    check_int(gfs_memory_unmap(&host, base, GRANULE), 0);
    check(mmap((void *)base, GRANULE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
               -1, 0) == MAP_FAILED);
    gfs_memory_release(&host, base, reserved_bytes);
    check(!is_mapped(base));
    check_int(gfs_memory_reserve(&host, 0, &base, &reserved_bytes), -EINVAL);
    check_int(gfs_memory_reserve(&host, UINT64_MAX, &base, &reserved_bytes), -ENOMEM);
}
