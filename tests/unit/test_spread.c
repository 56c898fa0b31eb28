/* SPDX-License-Identifier: Apache-2.0 */
/* file_tags=slow */
/* Tests the copy of a store's memory to that of others: by the copy engines of two GPUs of the fake
 * driver, which copies as late as it may, and by threads. */
#include "staging_fixture.h"

#include "mover/spread.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#define ITEMS      9u
#define LARGE      (((size_t)130 << 20) + 7) /* more than a block */
#define ALIGN_UP   ((size_t)2 << 20)
#define NO_PEERS   LAZY "peers 0\n"
#define MOST_TICKS 1000000

static const uint64_t sizes[ITEMS] = {1, LARGE, 3000000, 2, 0, 5, 6, 4096, WORK_PIECE_BYTES + 1};

/* One store's memory on a GPU, or on the host. */
struct side {
    struct gmsfs_mapping mappings[ITEMS];
    int fds[ITEMS]; /* of host memory */
};

struct copy {
    struct side *sides; /* of the targets */
    int ticks_left;
    int flags; /* of fcntl: opened so again */
};

/* ---- memory -------------------------------------------------------------------------------- */

static void map_gpu(struct gmsfs_mapping *mapping, int ordinal, uint64_t size_bytes)
{
    struct drv_memory_prop prop = {.type = DRV_ALLOCATION_PINNED,
                                   .requested_handle_types = DRV_HANDLE_POSIX_FILE_DESCRIPTOR,
                                   .location = {DRV_LOCATION_DEVICE, ordinal}};
    struct drv_access_desc access = {{DRV_LOCATION_DEVICE, ordinal}, DRV_ACCESS_READWRITE};
    size_t bytes = (size_bytes + ALIGN_UP) & ~(ALIGN_UP - 1);
    drv_memory memory;
    drv_pointer at;

    require(cu->cuMemCreate(&memory, bytes, &prop, 0) == DRV_SUCCESS);
    require(cu->cuMemAddressReserve(&at, bytes, 0, 0, 0) == DRV_SUCCESS);
    require(cu->cuMemMap(at, bytes, 0, memory, 0) == DRV_SUCCESS);
    require(cu->cuMemSetAccess(at, bytes, &access, 1) == DRV_SUCCESS);
    require(cu->cuMemRelease(memory) == DRV_SUCCESS);
    mapping->ptr = (void *)(uintptr_t)at;
    mapping->aligned_bytes = bytes;
}

static void make_gpu(struct side *side, int ordinal)
{
    for (size_t i = 0; i < ITEMS; i++)
        map_gpu(&side->mappings[i], ordinal, sizes[i]);
}

static void make_host(struct side *side)
{
    for (size_t i = 0; i < ITEMS; i++) {
        struct gmsfs_mapping *mapping = &side->mappings[i];
        mapping->aligned_bytes = sizes[i] + 1;
        side->fds[i] = memfd_create("host", MFD_CLOEXEC);
        require(side->fds[i] >= 0 && ftruncate(side->fds[i], (off_t)mapping->aligned_bytes) == 0);
        mapping->ptr =
            mmap(NULL, mapping->aligned_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, side->fds[i], 0);
        require(mapping->ptr != MAP_FAILED);
    }
}

static void put_bytes(const struct side *side)
{
    for (size_t i = 0; i < ITEMS; i++) {
        uint8_t *bytes = bytes_new(sizes[i], i + 1);
        memcpy(side->mappings[i].ptr, bytes, sizes[i]);
        free(bytes);
    }
}

static bool are_same(const struct side *side, const struct side *other)
{
    for (size_t i = 0; i < ITEMS; i++)
        if (memcmp(side->mappings[i].ptr, other->mappings[i].ptr, sizes[i]) != 0)
            return false;
    return true;
}

static void drop_gpu(const struct side *side)
{
    for (size_t i = 0; i < ITEMS; i++) {
        drv_pointer at = (uintptr_t)side->mappings[i].ptr;
        check_int(cu->cuMemUnmap(at, side->mappings[i].aligned_bytes), DRV_SUCCESS);
        check_int(cu->cuMemAddressFree(at, side->mappings[i].aligned_bytes), DRV_SUCCESS);
    }
}

static void drop_host(const struct side *side)
{
    for (size_t i = 0; i < ITEMS; i++) {
        munmap(side->mappings[i].ptr, side->mappings[i].aligned_bytes);
        close(side->fds[i]);
    }
}

/* ---- one copy ------------------------------------------------------------------------------ */

static int get_files(void *context, size_t target, size_t item, size_t count, int *fds)
{
    const struct copy *copy = context;
    char path[64];

    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", copy->sides[target].fds[item + i]);
        fds[i] = open(path, copy->flags | O_CLOEXEC);
        require(fds[i] >= 0);
    }
    return 0;
}

static int count_tick(void *context, uint64_t done_bytes)
{
    struct copy *copy = context;

    (void)done_bytes;
    return copy->ticks_left-- > 0 ? 0 : -ECANCELED;
}

static struct spread make_spread(struct staging *staging, const struct staging_memory *from,
                                 const struct side *source, struct copy *copy)
{
    return (struct spread){.staging = staging,
                           .from = from,
                           .items = source->mappings,
                           .item_bytes = sizes,
                           .item_count = ITEMS,
                           .threads = 2,
                           .at_once = 4,
                           .get = get_files,
                           .tick = count_tick,
                           .context = copy};
}

static void open_host(struct staging *staging, struct staging_memory *memory)
{
    static const uint8_t none[16];
    struct failure failure;

    require(staging_open_memory(staging, GMSFS_MEMORY_HOST, none, "host", memory, &failure) == 0);
}

/* ---- the copy engines ------------------------------------------------------------------------ */

TAP_TEST(the_engines_pass_blocks_along_a_chain_and_no_byte_comes_to_the_host)
{
    struct staging_memory memory[2];
    struct staging *staging = begin(LAZY, memory);
    struct side source, sides[3];
    struct copy copy = {.sides = sides, .ticks_left = MOST_TICKS};
    struct spread_target targets[] = {{&memory[1], sides[0].mappings, true},
                                      {&memory[1], sides[1].mappings, true},
                                      {&memory[0], sides[2].mappings, true}};
    struct spread spread = make_spread(staging, &memory[0], &source, &copy);

    make_gpu(&source, 0);
    put_bytes(&source);
    for (int i = 0; i < 3; i++)
        make_gpu(&sides[i], i < 2);
    spread.targets = targets;
    spread.target_count = 3;
    check(fake_cuda_control(LAZY "fail cuMemHostRegister_v2 999\n"));
    check_int(spread_run(&spread), 0);
    for (int i = 0; i < 3; i++) {
        check(!targets[i].by_host);
        check(are_same(&source, &sides[i]));
        drop_gpu(&sides[i]);
    }
    drop_gpu(&source);
    end(staging);
}

TAP_TEST(a_gpu_without_peer_access_gets_its_bytes_through_the_host)
{
    struct staging_memory memory[2];
    struct staging *staging = begin(NO_PEERS, memory);
    struct side source, sides[2];
    struct copy copy = {.sides = sides, .ticks_left = MOST_TICKS};
    struct spread_target targets[] = {{&memory[1], sides[0].mappings, false},
                                      {&memory[0], sides[1].mappings, false}};
    struct spread spread = make_spread(staging, &memory[0], &source, &copy);

    make_gpu(&source, 0);
    put_bytes(&source);
    make_gpu(&sides[0], 1);
    make_gpu(&sides[1], 0);
    spread.targets = targets;
    spread.target_count = 2;
    check_int(spread_run(&spread), 0);
    check(targets[0].by_host);
    check(!targets[1].by_host);
    for (int i = 0; i < 2; i++) {
        check(are_same(&source, &sides[i]));
        drop_gpu(&sides[i]);
    }
    drop_gpu(&source);
    end(staging);
}

TAP_TEST(a_failing_engine_ends_the_copy_and_the_device_is_named)
{
    struct staging_memory memory[2];
    struct staging *staging = begin(LAZY, memory);
    struct side source, side;
    struct copy copy = {.ticks_left = MOST_TICKS};
    struct spread_target target = {&memory[1], side.mappings, false};
    struct spread spread = make_spread(staging, &memory[0], &source, &copy);
    struct failure failure;
    bool is_told;

    make_gpu(&source, 0);
    make_gpu(&side, 1);
    spread.targets = &target;
    spread.target_count = 1;
    check(fake_cuda_control(LAZY "fail cuMemcpyDtoDAsync_v2 999 3 1\n"));
    check_int(spread_run(&spread), -EIO);
    check_int(spread.failure, 0);
    check(staging_get_failure(staging, &failure, &is_told));
    check(strstr(failure.text, "cannot copy from GPU to GPU") != NULL);
    check(strstr(failure.text, "cuMemcpyDtoDAsync_v2") != NULL);
    drop_gpu(&source);
    drop_gpu(&side);
    end(staging);
}

/* ---- threads ------------------------------------------------------------------------------- */

TAP_TEST(a_block_is_read_once_and_put_into_files_and_gpus)
{
    struct staging_memory memory[2], host;
    struct staging *staging = begin(LAZY, memory);
    struct side source, sides[3];
    struct copy copy = {.sides = sides, .ticks_left = MOST_TICKS, .flags = O_RDWR};
    struct spread_target targets[] = {
        {&host, NULL, false}, {&memory[0], sides[1].mappings, false}, {&host, NULL, false}};
    struct spread spread = make_spread(staging, &host, &source, &copy);

    open_host(staging, &host);
    make_host(&source);
    put_bytes(&source);
    make_host(&sides[0]);
    make_gpu(&sides[1], 0);
    make_host(&sides[2]);
    spread.targets = targets;
    spread.target_count = 3;
    check_int(spread_run(&spread), 0);
    for (int i = 0; i < 3; i++)
        check(are_same(&source, &sides[i]));
    /* And back to the host. */
    spread = make_spread(staging, &memory[0], &sides[1], &copy);
    put_bytes(&sides[2]);
    memset(sides[0].mappings[1].ptr, 0, LARGE);
    spread.targets = targets;
    spread.target_count = 1;
    check_int(spread_run(&spread), 0);
    check(are_same(&source, &sides[0]));
    drop_host(&source);
    drop_host(&sides[0]);
    drop_gpu(&sides[1]);
    drop_host(&sides[2]);
    end(staging);
}

TAP_TEST(a_file_that_cannot_be_written_is_named)
{
    struct staging_memory memory[2], host;
    struct staging *staging = begin(LAZY, memory);
    struct side source, side;
    struct copy copy = {.sides = &side, .ticks_left = MOST_TICKS, .flags = O_RDONLY};
    struct spread_target target = {&host, NULL, false};
    struct spread spread = make_spread(staging, &host, &source, &copy);

    open_host(staging, &host);
    make_host(&source);
    make_host(&side);
    spread.targets = &target;
    spread.target_count = 1;
    check_int(spread_run(&spread), -EBADF);
    check_int(spread.failure, -EBADF);
    check_int((int)spread.failed_target, 0);
    check(spread.failed_item < 4);
    drop_host(&source);
    drop_host(&side);
    end(staging);
}

static int get_closed(void *context, size_t target, size_t item, size_t count, int *fds)
{
    int error = get_files(context, target, item, count, fds);

    for (size_t i = 0; !error && i < count; i++)
        close(fds[i]);
    return error;
}

TAP_TEST(files_that_cannot_be_used_close_no_descriptor_of_others)
{
    struct staging_memory memory[2], host;
    struct staging *staging = begin(LAZY, memory);
    struct side source, side;
    struct copy copy = {.sides = &side, .ticks_left = MOST_TICKS, .flags = O_RDWR};
    struct spread_target target = {&host, NULL, false};
    struct spread spread = make_spread(staging, &host, &source, &copy);

    open_host(staging, &host);
    make_host(&source);
    make_host(&side);
    require(fcntl(STDIN_FILENO, F_GETFD) >= 0);
    spread.targets = &target;
    spread.target_count = 1;
    spread.get = get_closed;
    check_int(spread_run(&spread), -EBADF);
    check(fcntl(STDIN_FILENO, F_GETFD) >= 0);
    drop_host(&source);
    drop_host(&side);
    end(staging);
}

TAP_TEST(a_tick_ends_the_copy)
{
    struct staging_memory memory[2], host;
    struct staging *staging = begin(LAZY, memory);
    struct side source, side;
    struct copy copy = {.sides = &side, .flags = O_RDWR};
    struct spread_target target = {&host, NULL, false};
    struct spread spread = make_spread(staging, &host, &source, &copy);

    open_host(staging, &host);
    make_host(&source);
    make_host(&side);
    spread.targets = &target;
    spread.target_count = 1;
    check_int(spread_run(&spread), -ECANCELED);
    check_int(spread.failure, 0);
    drop_host(&source);
    drop_host(&side);
    end(staging);
}
