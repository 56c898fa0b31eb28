/* SPDX-License-Identifier: Apache-2.0 */
/* libgmsfs on a GPU's memory: a store of the second GPU of the fake driver's machine. */
#include <dlfcn.h>
#include <pthread.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include "api.h"
#include "cuda_fixture.h"

#define PIECES 3

static uint64_t free_bytes(void)
{
    struct statvfs device;

    require(statvfs(store_path(), &device) == 0);
    return device.f_bavail * device.f_frsize;
}

/* Publishes PIECES allocations, whose bytes are their rank plus `first`. */
static void publish_pieces(int first)
{
    gmsfs_t *writer = open_fresh_writer();
    void *ptr = NULL;

    for (int i = 0; i < PIECES; i++)
        if (check_int(gmsfs_create_mapping(writer, 5000, "t", NULL, &ptr), 0))
            check_int(fill(ptr, first + i, 5000), DRV_SUCCESS);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
    gmsfs_close(writer);
}

static gmsfs_t *open_attached(unsigned char *ptrs[PIECES])
{
    gmsfs_t *reader = open_locked(GMSFS_MODE_RO);
    struct gmsfs_mapping *list = NULL;
    size_t count = 0;

    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &count), 0);
    require(count == PIECES);
    for (int i = 0; i < PIECES; i++)
        ptrs[i] = list[i].ptr;
    free(list);
    return reader;
}

/* Returns the error that a child of fork() gets when it opens the store itself and wants memory. */
static int reserve_in_child(void)
{
    int status = -1;
    pid_t child = fork();

    if (child == 0) {
        char why[GMSFS_DEVICE_ERROR_BYTES] = "";
        gmsfs_t *store = NULL;
        void *va = NULL;
        int error;

        alarm(10);
        error = gmsfs_open(store_path(), &store);
        if (!error)
            error = gmsfs_reserve_va(store, 1, &va);
        if (error == -ECHILD && gmsfs_device_error(store, why) == 0 && !strstr(why, "fork"))
            error = -EPROTO;
        gmsfs_close(store);
        _exit(-error);
    }
    check_int(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
}

/* The first test, because later ones use the driver. */
TAP_TEST(child_of_a_process_that_has_not_used_the_driver_uses_it)
{
    auto_store *store = open_store(); /* which does not use it */

    check_int(reserve_in_child(), 0);
}

static void *begin_to_use_driver(void *context)
{
    static int error;
    gmsfs_t *store = NULL;
    void *va = NULL;

    (void)context;
    error = gmsfs_open(store_path(), &store);
    if (!error)
        error = gmsfs_reserve_va(store, 1, &va);
    gmsfs_close(store);
    return &error;
}

static int has_loaded_driver(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    int has = 0;

    while (maps && fgets(line, sizeof line, maps))
        has |= strstr(line, "/libcuda.so") != NULL;
    if (maps)
        fclose(maps);
    return has;
}

/* The second test: another thread is in this process's first call of the driver. */
TAP_TEST(child_of_a_process_whose_driver_just_starts_is_told)
{
    pthread_t thread;
    void *error;

    control("slow cuInit 500\n");
    require(pthread_create(&thread, NULL, begin_to_use_driver, NULL) == 0);
    for (int i = 0; i < WAIT_MS && !has_loaded_driver(); i++)
        usleep(1000);
    check(has_loaded_driver());
    check_int(reserve_in_child(), -ECHILD);
    pthread_join(thread, &error);
    check_int(*(int *)error, 0);
    control("");
}

TAP_TEST(child_of_a_process_that_has_used_the_driver_is_told)
{
    auto_store *store = open_store();
    void *va = NULL;

    check_int(gmsfs_reserve_va(store, 1, &va), 0);
    check_int(reserve_in_child(), -ECHILD);
    check_int(gmsfs_free_va(store, va), 0);
}

TAP_TEST(store_says_whose_memory_it_is)
{
    auto_store *store = open_store();
    struct gmsfs_info info = {0};
    struct drv_uuid uuid;

    check_int(gmsfs_get_info(store, &info), 0);
    check_int(info.memory, GMSFS_MEMORY_CUDA);
    require(driver()->cuDeviceGetUuid_v2(&uuid, 1) == DRV_SUCCESS);
    check_bytes(info.device_uuid, 16, uuid.bytes, 16);
}

TAP_TEST(reader_sees_the_bytes_and_may_not_write)
{
    unsigned char *ptrs[PIECES];
    gmsfs_t *reader;

    publish_pieces(10);
    check_int(count_mapped(), 0);
    reader = open_attached(ptrs);
    for (int i = 0; i < PIECES; i++) {
        check_int(byte_at(ptrs[i] + 4999), 10 + i);
        check_int(fill(ptrs[i], 1, 1), DRV_INVALID_VALUE);
    }
    check(ptrs[1] > ptrs[0] && (uint64_t)(ptrs[1] - ptrs[0]) == granularity_of(reader));
    gmsfs_close(reader);
    check_int(count_mapped(), 0);
}

TAP_TEST(writer_writes_until_it_commits_and_again_where_that_is_refused)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata outside = {.key = "outside", .offset = UINT64_MAX / 2};
    void *ptr = NULL;

    check_int(gmsfs_create_mapping(store, 100, "t", &outside.slot, &ptr), 0);
    check_int(gmsfs_metadata_put(store, &outside), 0);
    check_int(gmsfs_commit(store, 0, NULL), -EINVAL);
    check_int(fill(ptr, 3, 100), DRV_SUCCESS);
    check_int(gmsfs_metadata_delete(store, "outside"), 0);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(fill(ptr, 4, 100), DRV_INVALID_VALUE);
    check_int(byte_at(ptr), 3);
}

TAP_TEST(sleeper_maps_nothing_and_wakes_at_its_addresses_with_new_bytes)
{
    unsigned char *ptrs[PIECES];
    auto_store *reader = NULL;

    publish_pieces(20);
    reader = open_attached(ptrs);
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    check_int(count_mapped(), 0);
    publish_pieces(30);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), -ESTALE);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 0), 0);
    check_int(byte_at(ptrs[2]), 32);
    check_int(fill(ptrs[2], 1, 1), DRV_INVALID_VALUE);
}

TAP_TEST(pieces_of_a_slab_are_found_on_the_device)
{
    gmsfs_t *store = open_fresh_writer();
    struct gmsfs_metadata entry = {.key = "second"};
    void *one = NULL, *two = NULL, *found = NULL;
    uint64_t slot = 0, offset = 0;

    check_int(gmsfs_set_slab_bytes(store, GMSFS_SLAB_DEFAULT), 0);
    check_int(gmsfs_create_mapping(store, 100, "t", NULL, &one), 0);
    check_int(gmsfs_create_mapping(store, 100, "t", NULL, &two), 0);
    check_int((char *)two - (char *)one, 512);
    check_int(fill(two, 44, 100), DRV_SUCCESS);
    check_int(gmsfs_resolve(store, two, &entry.slot, &entry.offset), 0);
    check_int(gmsfs_metadata_put(store, &entry), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    gmsfs_close(store);
    store = open_locked(GMSFS_MODE_RO);
    check_int(gmsfs_attach_all(store, GMSFS_ACCESS_READ, NULL, NULL), 0);
    check_int(gmsfs_metadata_get(store, "second", &slot, &offset, NULL, NULL), 0);
    check_int(gmsfs_locate(store, slot, offset, &found), 0);
    check_int(byte_at((char *)found + 99), 44);
    gmsfs_close(store);
}

TAP_TEST(private_copy_can_be_written_to_and_is_the_devices)
{
    unsigned char *ptrs[PIECES];
    struct gmsfs_memory_info info;
    auto_store *reader = NULL;
    void *copy = NULL;

    publish_pieces(50);
    reader = open_attached(ptrs);
    check_int(gmsfs_copy_private(reader, ptrs[1], 5000, &copy), 0);
    check_int(byte_at((char *)copy + 4999), 51);
    check_int(fill(copy, 9, 5000), DRV_SUCCESS);
    check_int(byte_at(ptrs[1]), 51);
    check_int(gmsfs_memory_info(reader, &info), 0);
    check_int(info.shared_bytes, PIECES * granularity_of(reader));
    check_int(info.private_bytes, 5000);
    check_int(gmsfs_free_private(reader, copy), 0);
}

/* The stream does not block, and does nothing before the test waits for it. */
TAP_TEST(private_copy_has_what_a_stream_was_still_to_write)
{
    static const unsigned char bytes[100] = {[99] = 33};
    auto_store *store = open_fresh_writer();
    struct drv_stream *stream = NULL;
    void *ptr = NULL, *copy = NULL;

    check_int(gmsfs_create_mapping(store, sizeof bytes, "t", NULL, &ptr), 0);
    control("lazy 1\n");
    push_context();
    require(cu->cuStreamCreate(&stream, DRV_STREAM_NON_BLOCKING) == DRV_SUCCESS);
    check_int(cu->cuMemcpyHtoDAsync_v2((uintptr_t)ptr, bytes, sizeof bytes, stream), DRV_SUCCESS);
    check_int(gmsfs_copy_private(store, ptr, sizeof bytes, &copy), 0);
    check_int(byte_at((char *)copy + 99), 33);
    cu->cuStreamDestroy_v2(stream);
    pop_context();
    control("");
}

TAP_TEST(another_device_may_be_let_in_and_a_stranger_may_not)
{
    static const uint8_t stranger[1][16] = {{1}};
    unsigned char *ptrs[PIECES];
    char text[GMSFS_DEVICE_ERROR_BYTES];
    struct drv_uuid uuid;
    gmsfs_t *reader;

    publish_pieces(60);
    reader = open_locked(GMSFS_MODE_RO);
    check_int(gmsfs_set_devices(reader, stranger, 1), 0);
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, NULL, NULL), -ENODEV);
    check_int(gmsfs_device_error(reader, text), 0);
    check(strlen(text) > 0);
    check_int(count_mapped(), 0);
    gmsfs_close(reader);
    require(driver()->cuDeviceGetUuid_v2(&uuid, 0) == DRV_SUCCESS);
    reader = open_locked(GMSFS_MODE_RO);
    check_int(gmsfs_set_devices(reader, (const uint8_t(*)[16])uuid.bytes, 1), 0);
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, NULL, NULL), 0);
    gmsfs_close(reader);
    reader = open_attached(ptrs);
    gmsfs_close(reader);
}

TAP_TEST(device_that_is_named_twice_or_is_the_stores_own_counts_once)
{
    uint8_t uuids[4][16];
    unsigned char *ptrs[PIECES];
    struct drv_uuid uuid;
    auto_store *reader = NULL;

    publish_pieces(65);
    for (int i = 0; i < 4; i++) {
        require(driver()->cuDeviceGetUuid_v2(&uuid, i % 2) == DRV_SUCCESS);
        memcpy(uuids[i], uuid.bytes, sizeof uuids[i]);
    }
    reader = open_attached(ptrs);
    check_int(gmsfs_set_devices(reader, (const uint8_t(*)[16])uuids, 4), 0);
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), 0);
    check_int(byte_at(ptrs[2]), 67);
}

/* ---- rights of other devices ---------------------------------------------------------------- */

/* Returns the device's rights there: enum drv_access. */
static unsigned long long rights_of(drv_device device, const void *ptr)
{
    enum drv_result (*get)(unsigned long long *, const struct drv_location *, drv_pointer);
    struct drv_location location = {.type = DRV_LOCATION_DEVICE, .id = device};
    unsigned long long flags = 77;

    *(void **)&get = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuMemGetAccess");
    check_int(get(&flags, &location, (uintptr_t)ptr), DRV_SUCCESS);
    return flags;
}

/* Gives rights to the first GPU, which does not have the store; or takes them. */
static void let_in_other(gmsfs_t *store, int let_in)
{
    struct drv_uuid uuid;

    require(driver()->cuDeviceGetUuid_v2(&uuid, 0) == DRV_SUCCESS);
    check_int(gmsfs_set_devices(store, (const uint8_t(*)[16])uuid.bytes, let_in), 0);
}

TAP_TEST(commit_takes_the_right_to_write_from_every_device_that_was_let_in)
{
    auto_store *store = open_fresh_writer();
    void *both = NULL, *own = NULL;

    let_in_other(store, 1);
    check_int(gmsfs_create_mapping(store, 100, "t", NULL, &both), 0);
    let_in_other(store, 0);
    check_int(gmsfs_create_mapping(store, 100, "t", NULL, &own), 0);
    check_int(rights_of(0, both), DRV_ACCESS_READWRITE);
    check_int(rights_of(0, own), DRV_ACCESS_NONE);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(rights_of(0, both), DRV_ACCESS_READ);
    check_int(rights_of(1, both), DRV_ACCESS_READ);
    check_int(rights_of(0, own), DRV_ACCESS_NONE);
    check_int(rights_of(1, own), DRV_ACCESS_READ);
}

TAP_TEST(refused_commit_gives_every_device_back_what_it_had)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata outside = {.key = "outside", .offset = UINT64_MAX / 2};
    void *both = NULL, *own = NULL;

    let_in_other(store, 1);
    check_int(gmsfs_create_mapping(store, 100, "t", &outside.slot, &both), 0);
    let_in_other(store, 0);
    check_int(gmsfs_create_mapping(store, 100, "t", NULL, &own), 0);
    check_int(gmsfs_metadata_put(store, &outside), 0);
    check_int(gmsfs_commit(store, 0, NULL), -EINVAL);
    check_int(rights_of(0, both), DRV_ACCESS_READWRITE);
    check_int(rights_of(1, both), DRV_ACCESS_READWRITE);
    check_int(rights_of(0, own), DRV_ACCESS_NONE);
    check_int(rights_of(1, own), DRV_ACCESS_READWRITE);
}

TAP_TEST(device_that_is_named_later_may_touch_what_is_mapped_from_then_on)
{
    auto_store *store = open_fresh_writer();
    void *before = NULL, *after = NULL;

    check_int(gmsfs_create_mapping(store, 100, "t", NULL, &before), 0);
    let_in_other(store, 1);
    check_int(gmsfs_create_mapping(store, 100, "t", NULL, &after), 0);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(rights_of(0, before), DRV_ACCESS_NONE);
    check_int(rights_of(0, after), DRV_ACCESS_READ);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    check_int(gmsfs_remap_all_vas(store, WAIT_MS, 1), 0);
    check_int(rights_of(0, before), DRV_ACCESS_READ);
    let_in_other(store, 0);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    check_int(gmsfs_remap_all_vas(store, WAIT_MS, 1), 0);
    check_int(rights_of(0, after), DRV_ACCESS_NONE);
    check_int(rights_of(1, after), DRV_ACCESS_READ);
}

/* ---- captures ------------------------------------------------------------------------------- */

static enum drv_result begin_capture(struct drv_stream *stream)
{
    enum drv_result (*begin)(struct drv_stream *, enum drv_capture_mode);

    *(void **)&begin =
        dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuStreamBeginCapture_v2");
    return begin(stream, DRV_CAPTURE_MODE_GLOBAL);
}

static enum drv_result end_capture(struct drv_stream *stream)
{
    enum drv_result (*end)(struct drv_stream *, void **);
    void *graph;

    *(void **)&end = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "cuStreamEndCapture");
    return end(stream, &graph);
}

TAP_TEST(calls_wait_for_no_capture_and_break_none)
{
    struct drv_stream *stream = NULL;
    unsigned char *ptrs[PIECES];
    gmsfs_t *reader;

    publish_pieces(70);
    reader = open_attached(ptrs);
    push_context();
    require(cu->cuStreamCreate(&stream, DRV_STREAM_NON_BLOCKING) == DRV_SUCCESS);
    check_int(gmsfs_set_streams(reader, (void *const *)&stream, 1), 0);
    check_int(begin_capture(stream), DRV_SUCCESS);
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, NULL, NULL), -EBUSY);
    check_int(gmsfs_unmap_all_vas(reader, 0), -EBUSY);
    check_int(gmsfs_destroy_mapping(reader, ptrs[0]), -EBUSY);
    check_int(gmsfs_is_connected(reader), 1);
    check_int(count_mapped(), PIECES);
    check_int(end_capture(stream), DRV_SUCCESS);
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    check_int(begin_capture(stream), DRV_SUCCESS);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 0), -EBUSY);
    gmsfs_close(reader); /* frees in spite of captures */
    check_int(end_capture(stream), DRV_SUCCESS);
    cu->cuStreamDestroy_v2(stream);
    pop_context();
}

/* ---- failures ------------------------------------------------------------------------------- */

TAP_TEST(attach_that_fails_half_way_leaves_nothing)
{
    static const char *const faults[] = {"fail cuMemMap 2 2 1\n",
                                         "fail cuMemImportFromShareableHandle 2 3 1\n",
                                         "fail cuMemSetAccess 2 1 1\n"};
    int before, error;

    publish_pieces(80);
    before = count_fds();
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        gmsfs_t *reader = open_locked(GMSFS_MODE_RO);

        control(faults[i]);
        error = gmsfs_attach_all(reader, GMSFS_ACCESS_READ, NULL, NULL);
        check_int(error, -ENOMEM);
        check_int(count_mapped(), 0);
        check_int(gmsfs_total_bytes(reader), 0);
        check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, NULL, NULL), 0);
        gmsfs_close(reader);
    }
    control("");
    check_int(count_fds(), before);
}

TAP_TEST(complaint_of_the_driver_stays_until_the_next_call_that_uses_it)
{
    char text[GMSFS_DEVICE_ERROR_BYTES];
    auto_store *reader = NULL;

    publish_pieces(85);
    reader = open_locked(GMSFS_MODE_RO);
    check_int(gmsfs_device_error(reader, text), 0);
    check_str(text, "");
    control("fail cuMemMap 2 1 1\n");
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, NULL, NULL), -ENOMEM);
    check_int(gmsfs_get_info(reader, &(struct gmsfs_info){0}), 0);
    check_int(gmsfs_device_error(reader, text), 0);
    check(strstr(text, "cuMemMap") != NULL);
    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, NULL, NULL), 0);
    check_int(gmsfs_device_error(reader, text), 0);
    check_str(text, "");
    control("");
}

TAP_TEST(remap_that_fails_half_way_sleeps_on)
{
    unsigned char *ptrs[PIECES];
    auto_store *reader = NULL;

    publish_pieces(90);
    reader = open_attached(ptrs);
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    control("fail cuMemMap 2 3 1\n");
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 0), -ENOMEM);
    check_int(count_mapped(), 0);
    check_int(gmsfs_is_unmapped(reader), 1);
    check_int(gmsfs_is_connected(reader), 0);
    control("");
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 0), 0);
    check_int(byte_at(ptrs[2]), 92);
}

TAP_TEST(nothing_is_left_after_many_cycles)
{
    auto_store *writer = NULL;
    uint64_t room;
    int fds;

    publish_pieces(1);
    room = free_bytes();
    fds = count_fds();
    for (int i = 0; i < 50; i++) {
        unsigned char *ptrs[PIECES];
        gmsfs_t *reader = open_attached(ptrs);

        check_int(gmsfs_unmap_all_vas(reader, 0), 0);
        check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), 0);
        gmsfs_close(reader);
    }
    check_int(count_fds(), fds);
    check_int(count_mapped(), 0);
    check(free_bytes() >= room); /* more if memory of an earlier test was freed meanwhile */
    writer = open_fresh_writer();
    check_int(gmsfs_commit(writer, 0, NULL), 0);
}
