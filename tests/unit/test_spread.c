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
#define HOST       2u /* a place; the others are GPUs */
#define PLACES     3u

static const uint64_t sizes[ITEMS] = {1, LARGE, 3000000, 2, 0, 5, 6, 4096, WORK_PIECE_BYTES + 1};

/* One store's memory on a GPU, or on the host. */
struct side {
    struct gmsfs_mapping mappings[ITEMS];
    size_t place;
    int fds[ITEMS]; /* of host memory */
};

/* One copy, from `source` to the first of `sides`. */
static struct {
    struct staging *staging;
    struct staging_memory memory[PLACES];
    struct side source, sides[3];
    struct spread_target targets[3];
    struct spread spread;
    int ticks_left;
    int flags; /* of open(2) of a target's file */
} copy;

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

static void make_gpu(struct side *side)
{
    for (size_t i = 0; i < ITEMS; i++)
        map_gpu(&side->mappings[i], (int)side->place, sizes[i]);
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

static void drop(const struct side *side)
{
    if (side->place == HOST)
        drop_host(side);
    else
        drop_gpu(side);
}

static void make(struct side *side, size_t place)
{
    side->place = place;
    if (place == HOST)
        make_host(side);
    else
        make_gpu(side);
}

/* ---- one copy ------------------------------------------------------------------------------ */

static int get_files(void *context, size_t target, size_t item, size_t count, int *fds)
{
    char path[64];

    (void)context;
    for (size_t i = 0; i < count; i++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", copy.sides[target].fds[item + i]);
        fds[i] = open(path, copy.flags | O_CLOEXEC);
        require(fds[i] >= 0);
    }
    return 0;
}

static int count_tick(void *context, uint64_t done_bytes)
{
    (void)context;
    (void)done_bytes;
    return copy.ticks_left-- > 0 ? 0 : -ECANCELED;
}

/* The copy takes its bytes from this side. */
static void copy_from(const struct side *source)
{
    copy.spread = (struct spread){.staging = copy.staging,
                                  .from = &copy.memory[source->place],
                                  .items = source->mappings,
                                  .item_bytes = sizes,
                                  .item_count = ITEMS,
                                  .threads = 2,
                                  .at_once = 4,
                                  .targets = copy.targets,
                                  .get = get_files,
                                  .tick = count_tick};
}

/* Begins a copy from a store at this place. */
static void begin_copy(const char *control, size_t place)
{
    static const uint8_t none[16];
    struct failure failure;

    memset(&copy, 0, sizeof copy);
    copy.ticks_left = MOST_TICKS;
    copy.flags = O_RDWR;
    copy.staging = begin(control, copy.memory);
    require(staging_open_memory(copy.staging, GMSFS_MEMORY_HOST, none, "host", &copy.memory[HOST],
                                &failure) == 0);
    make(&copy.source, place);
    put_bytes(&copy.source);
    copy_from(&copy.source);
}

static void add_target(size_t place, bool by_engine)
{
    struct side *side = &copy.sides[copy.spread.target_count];

    make(side, place);
    copy.targets[copy.spread.target_count++] = (struct spread_target){
        &copy.memory[place], place == HOST ? NULL : side->mappings, by_engine};
}

static void check_targets(void)
{
    for (size_t i = 0; i < copy.spread.target_count; i++)
        check(are_same(&copy.source, &copy.sides[i]));
}

static void end_copy(void)
{
    for (size_t i = 0; i < copy.spread.target_count; i++)
        drop(&copy.sides[i]);
    drop(&copy.source);
    end(copy.staging);
}

TAP_AFTER_EACH(end_copy)

/* ---- the copy engines ------------------------------------------------------------------------ */

TAP_TEST(the_engines_pass_blocks_along_a_chain_and_no_byte_comes_to_the_host)
{
    begin_copy(LAZY, 0);
    add_target(1, true);
    add_target(1, true);
    add_target(0, true);
    check(fake_cuda_control(LAZY "fail cuMemHostRegister_v2 999\n"));
    check_int(spread_run(&copy.spread), 0);
    for (int i = 0; i < 3; i++)
        check(!copy.targets[i].by_host);
    check_targets();
}

TAP_TEST(a_gpu_without_peer_access_gets_its_bytes_through_the_host)
{
    begin_copy(NO_PEERS, 0);
    add_target(1, false);
    add_target(0, false);
    check_int(spread_run(&copy.spread), 0);
    check(copy.targets[0].by_host);
    check(!copy.targets[1].by_host);
    check_targets();
}

TAP_TEST(a_failing_engine_ends_the_copy_and_the_device_is_named)
{
    struct failure failure;
    bool is_told;

    begin_copy(LAZY, 0);
    add_target(1, false);
    check(fake_cuda_control(LAZY "fail cuMemcpyDtoDAsync_v2 999 3 1\n"));
    check_int(spread_run(&copy.spread), -EIO);
    check_int(copy.spread.failure, 0);
    check(staging_get_failure(copy.staging, &failure, &is_told));
    check(strstr(failure.text, "cannot copy from GPU to GPU") != NULL);
    check(strstr(failure.text, "cuMemcpyDtoDAsync_v2") != NULL);
}

/* ---- threads ------------------------------------------------------------------------------- */

TAP_TEST(a_block_is_read_once_and_put_into_files_and_gpus)
{
    begin_copy(LAZY, HOST);
    add_target(HOST, false);
    add_target(0, false);
    add_target(HOST, false);
    check_int(spread_run(&copy.spread), 0);
    check_targets();
    /* And back to the host. */
    copy_from(&copy.sides[1]);
    memset(copy.sides[0].mappings[1].ptr, 0, LARGE);
    copy.spread.target_count = 1;
    check_int(spread_run(&copy.spread), 0);
    check_targets();
    copy.spread.target_count = 3;
}

TAP_TEST(a_file_that_cannot_be_written_is_named)
{
    begin_copy(LAZY, HOST);
    add_target(HOST, false);
    copy.flags = O_RDONLY;
    check_int(spread_run(&copy.spread), -EBADF);
    check_int(copy.spread.failure, -EBADF);
    check_int((int)copy.spread.failed_target, 0);
    check(copy.spread.failed_item < 4);
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
    begin_copy(LAZY, HOST);
    add_target(HOST, false);
    require(fcntl(STDIN_FILENO, F_GETFD) >= 0);
    copy.spread.get = get_closed;
    check_int(spread_run(&copy.spread), -EBADF);
    check(fcntl(STDIN_FILENO, F_GETFD) >= 0);
}

TAP_TEST(a_tick_ends_the_copy)
{
    begin_copy(LAZY, HOST);
    add_target(HOST, false);
    copy.ticks_left = 0;
    check_int(spread_run(&copy.spread), -ECANCELED);
    check_int(copy.spread.failure, 0);
}
