/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and counts beyond all bounds: each call refuses them at once, and the handle is
 * unchanged. */
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <gmsfs_graph.h>

#include "api.h"

#define AT_ONCE_MS 2000

static const uint64_t HUGE[] = {UINT64_MAX,       UINT64_MAX - 1,    UINT64_MAX - 4095,
                                INT64_MAX,        UINT64_C(1) << 63, (UINT64_C(1) << 63) + 1,
                                UINT64_C(1) << 62};

#define EACH_HUGE(size) \
    for (size_t at_huge = 0; at_huge < COUNT(HUGE) && ((size) = HUGE[at_huge], 1); at_huge++)
#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* A call that a check refuses, without a wait. */
#define REFUSED(call, error)                     \
    do {                                         \
        uint64_t start_ms = now_ms();            \
        check_int(call, error);                  \
        check(now_ms() - start_ms < AT_ONCE_MS); \
    } while (0)

static void check_untouched(gmsfs_t *store)
{
    struct gmsfs_info info = {0};

    check_int(gmsfs_get_info(store, &info), 0);
    check_int(info.allocations, 0);
    check_int(info.entries, 0);
    check_int(gmsfs_total_bytes(store), 0);
}

/* ---- memory -------------------------------------------------------------------------------- */

TAP_TEST(allocations_of_huge_sizes)
{
    auto_store *store = open_fresh_writer();
    uint64_t size_bytes, slot = 77;
    void *ptr = NULL;

    EACH_HUGE(size_bytes)
    {
        REFUSED(gmsfs_allocate_handle(store, size_bytes, NULL, NULL, &slot), -ENOMEM);
        REFUSED(gmsfs_allocate_handles(store, 2, size_bytes, NULL, NULL, 0, &slot), -ENOMEM);
        REFUSED(gmsfs_allocate_handles(store, UINT32_MAX, size_bytes, NULL, NULL, 0, &slot),
                -ENOSPC);
        REFUSED(gmsfs_create_mapping(store, size_bytes, NULL, &slot, &ptr), -ENOMEM);
    }
    REFUSED(gmsfs_allocate_handles(store, UINT32_MAX, 1, NULL, NULL, 0, &slot), -ENOSPC);
    check_int(slot, 77);
    check(ptr == NULL);
    check_untouched(store);
}

TAP_TEST(slabs_of_huge_sizes)
{
    auto_store *store = open_fresh_writer();
    uint64_t size_bytes, slot = 77;
    void *ptr = NULL;

    EACH_HUGE(size_bytes)
    {
        if (size_bytes == GMSFS_SLAB_DEFAULT)
            continue;
        check_int(gmsfs_set_slab_bytes(store, size_bytes), 0);
        REFUSED(gmsfs_create_mapping(store, size_bytes, NULL, &slot, &ptr), -ENOMEM);
    }
    check_int(gmsfs_set_slab_bytes(store, GMSFS_SLAB_DEFAULT), 0);
    EACH_HUGE(size_bytes)
    REFUSED(gmsfs_create_mapping(store, size_bytes, NULL, &slot, &ptr), -ENOMEM);
    check_untouched(store);
    check_int(gmsfs_create_mapping(store, 4096, NULL, &slot, &ptr), 0);
    memset(ptr, 1, 4096);
}

TAP_TEST(addresses_of_huge_sizes)
{
    auto_store *store = open_fresh_writer();
    uint64_t size_bytes, offset, slot = 0;
    void *va = NULL, *ptr = NULL;

    EACH_HUGE(size_bytes)
    REFUSED(gmsfs_reserve_va(store, size_bytes, &va), -ENOMEM);
    check(va == NULL);
    check_int(gmsfs_create_mapping(store, 4096, NULL, &slot, &ptr), 0);
    EACH_HUGE(size_bytes)
    {
        REFUSED(gmsfs_copy_private(store, ptr, size_bytes, &va), -ENOENT);
        REFUSED(gmsfs_locate(store, slot, size_bytes, &va), -ENOENT);
        REFUSED(gmsfs_locate(store, size_bytes, 0, &va), -ENOENT);
        REFUSED(gmsfs_resolve(store, (void *)(uintptr_t)size_bytes, &slot, &offset), -ENOENT);
    }
    check(va == NULL);
}

TAP_TEST(reservations_of_huge_sizes)
{
    auto_store *store = open_store();
    uint64_t size_bytes;

    EACH_HUGE(size_bytes)
    {
        REFUSED(gmsfs_connect_reserve(store, GMSFS_MODE_RW, WAIT_MS, size_bytes), -ENOMEM);
        REFUSED(gmsfs_connect_group_reserve(&store, 1, GMSFS_MODE_RW, WAIT_MS, &size_bytes),
                -ENOMEM);
    }
    check_int(gmsfs_granted_lock(store), GMSFS_MODE_NONE);
}

/* ---- metadata ------------------------------------------------------------------------------ */

TAP_TEST(entries_of_huge_sizes)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata entry = {.key = "key", .slot = GMSFS_SLOT_NONE, .value = "value"};
    size_t culprit = 0;
    uint64_t size_bytes;

    EACH_HUGE(size_bytes)
    {
        entry.value_bytes = size_bytes;
        REFUSED(gmsfs_metadata_put(store, &entry), -EFBIG);
        REFUSED(gmsfs_metadata_put_many(store, &entry, 1, &culprit), -EFBIG);
        check_int(culprit, 0);
        entry.value_bytes = 5;
        REFUSED(gmsfs_metadata_put_many(store, &entry, size_bytes, &culprit), -ENOSPC);
        check(culprit == SIZE_MAX);
        REFUSED(gmsfs_metadata_put_many(store, &entry, GMSFS_ENTRIES_MAX + 1, &culprit), -ENOSPC);
        entry.slot = size_bytes;
        if (size_bytes != GMSFS_SLOT_NONE)
            REFUSED(gmsfs_metadata_put(store, &entry), -EINVAL);
        entry.slot = GMSFS_SLOT_NONE;
    }
    check_untouched(store);
}

/* ---- lists --------------------------------------------------------------------------------- */

TAP_TEST(lists_of_huge_counts)
{
    static const uint8_t uuid[1][16];
    auto_store *store = open_store();
    void *stream = NULL;
    uint64_t count;

    EACH_HUGE(count)
    {
        REFUSED(gmsfs_set_devices(store, uuid, count), -EINVAL);
        REFUSED(gmsfs_set_streams(store, &stream, count), -EINVAL);
        REFUSED(gmsfs_connect_group(&store, count, GMSFS_MODE_RO, 0), -EINVAL);
        REFUSED(gmsfs_commit_group(&store, count, 0, NULL), -EINVAL);
    }
}

/* Sizes as of a later library's programs, or by mistake. */
TAP_TEST(structs_of_huge_sizes)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_memory_info memory;
    struct gmsfs_handle_info handle, *handles = NULL;
    struct gmsfs_mapping *mappings = NULL;
    struct gmsfs_info info;
    uint64_t size_bytes, slot = 0;
    size_t count = 0;
    void *ptr = NULL;

    check_int(gmsfs_create_mapping(store, 4096, NULL, &slot, &ptr), 0);
    EACH_HUGE(size_bytes)
    {
        REFUSED((gmsfs_get_info)(store, &info, size_bytes), -EINVAL);
        REFUSED((gmsfs_memory_info)(store, &memory, size_bytes), -EINVAL);
        REFUSED((gmsfs_get_handle_info)(store, slot, &handle, size_bytes), -EINVAL);
        REFUSED((gmsfs_list_handles)(store, NULL, &handles, &count, size_bytes), -EINVAL);
        REFUSED((gmsfs_list_mappings)(store, &mappings, &count, size_bytes), -EINVAL);
    }
    check(handles == NULL && mappings == NULL);
}

/* Of a later version: fields that this library does not know are zeros. */
struct later_entry {
    struct gmsfs_layout_entry entry;
    uint64_t more;
};

struct later_region {
    struct gmsfs_region_info info;
    uint64_t more;
};

TAP_TEST(layout_for_a_program_that_knows_other_sizes)
{
    auto_store *store = open_fresh_writer();
    struct gmsfs_metadata entries[] = {{.key = "a", .slot = GMSFS_SLOT_NONE},
                                       {.key = "b", .slot = GMSFS_SLOT_NONE}};
    struct gmsfs_layout *layout = NULL;
    const struct later_entry *later;
    uint64_t first_bytes;

    check_int(gmsfs_metadata_put_many(store, entries, 2, NULL), 0);
    check_int(gmsfs_allocate_handle(store, 100, NULL, NULL, NULL), 0);
    check_int(gmsfs_allocate_handle(store, 200, NULL, NULL, NULL), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int((gmsfs_read_layout)(store, &layout, sizeof first_bytes, sizeof *later), 0);
    require(layout && layout->entry_count == 2 && layout->allocation_count == 2);
    later = (const struct later_entry *)layout->entries;
    check_str(later[1].entry.key, "b");
    check_int(later[1].more, 0);
    memcpy(&first_bytes, (const uint64_t *)layout->allocations + 1, sizeof first_bytes);
    check_int(first_bytes, 200);
    gmsfs_free_layout(layout);
    layout = NULL;
    check_int((gmsfs_read_layout)(store, &layout, 0, sizeof *later), -EINVAL);
    check_int((gmsfs_read_layout)(store, &layout, 8, SIZE_MAX), -EINVAL);
    check(layout == NULL);
}

TAP_TEST(regions_for_a_program_that_knows_other_sizes)
{
    static const uint8_t handle[GMSFS_REGION_HANDLE_BYTES];
    struct gmsfs_region_request wish = {.kind = GMSFS_REGION_CUDA,
                                        .uid = GMSFS_REGION_SELF,
                                        .fd = -1,
                                        .byte_size = 10,
                                        .raw_handle = handle,
                                        .raw_handle_bytes = GMSFS_REGION_HANDLE_BYTES};
    auto_regions *regions = NULL;
    struct gmsfs_region_info *list = NULL;
    struct later_region later = {.more = 1};
    uint64_t id = 0;
    char mount[4096];
    size_t count = 0;

    snprintf(mount, sizeof mount, "%s/..", store_path());
    require(gmsfs_regions_open(mount, &regions) == 0);
    for (wish.name = "a"; wish.name; wish.name = wish.name[0] == 'a' ? "b" : NULL)
        check_int(gmsfs_region_register(regions, &wish, NULL), 0);
    check_int(
        (gmsfs_region_get)(regions, wish.uid, GMSFS_REGION_ANY, "a", &later.info, sizeof later), 0);
    check_str(later.info.name, "a");
    check_int(later.more, 0);
    check_int((gmsfs_region_get)(regions, wish.uid, GMSFS_REGION_ANY, "a",
                                 (struct gmsfs_region_info *)&id, sizeof id),
              0);
    check_int((gmsfs_region_list)(regions, wish.uid, GMSFS_REGION_ANY, &list, &count, sizeof later),
              0);
    require(count == 2);
    check_str(((struct later_region *)list)[1].info.name, "b");
    gmsfs_region_list_free(list);
    check_int((gmsfs_region_list)(regions, wish.uid, GMSFS_REGION_ANY, &list, &count, 0), -EINVAL);
    check_int((gmsfs_region_get)(regions, wish.uid, GMSFS_REGION_ANY, "a", &later.info, SIZE_MAX),
              -EINVAL);
    check_int(gmsfs_region_unregister_all(regions, wish.uid, GMSFS_REGION_ANY, NULL), 0);
}

/* ---- graph pools --------------------------------------------------------------------------- */

TAP_TEST(graph_pools_of_huge_sizes)
{
    gmsfs_graph_space_t *space = NULL, *none = NULL;
    gmsfs_graph_pool_t *pool = NULL;
    struct gmsfs_graph_stats stats;
    char path[4096];
    uint64_t size_bytes;
    void *ptr = NULL;

    snprintf(path, sizeof path, "%s.sizes", store_path());
    EACH_HUGE(size_bytes)
    REFUSED(gmsfs_graph_open(path, size_bytes, &pool), -EINVAL);
    check(pool == NULL);
    require(gmsfs_graph_open(path, 0, &pool) == 0);
    check_int(gmsfs_graph_wake(pool, WAIT_MS), 0);
    EACH_HUGE(size_bytes)
    {
        REFUSED(gmsfs_graph_space_new(pool, size_bytes, 0, &none), -ENOMEM);
        REFUSED(gmsfs_graph_grow(pool, size_bytes), -ENOMEM);
        REFUSED((gmsfs_graph_get_stats)(pool, &stats, size_bytes), -EINVAL);
    }
    check(none == NULL);
    check_int(gmsfs_graph_space_new(pool, 1, 0, &space), 0);
    EACH_HUGE(size_bytes)
    REFUSED(gmsfs_graph_space_alloc(space, size_bytes, &ptr), -ENOSPC);
    check(ptr == NULL);
    gmsfs_graph_close(pool);
    rmdir(path);
}

/* ---- regions ------------------------------------------------------------------------------- */

TAP_TEST(regions_of_huge_sizes)
{
    struct gmsfs_region_request wish = {.kind = GMSFS_REGION_SYSTEM,
                                        .uid = GMSFS_REGION_SELF,
                                        .name = "sizes",
                                        .key = "sizes",
                                        .byte_size = 4096};
    enum gmsfs_region_reason reason;
    gmsfs_regions_t *regions = NULL;
    gmsfs_region_t *region = NULL;
    char path[4096], byte = 0;
    uint64_t size_bytes;

    snprintf(path, sizeof path, "%s/..", store_path());
    require(gmsfs_regions_open(path, &regions) == 0);
    wish.fd = memfd_create("sizes", MFD_CLOEXEC);
    require(wish.fd >= 0 && ftruncate(wish.fd, 4096) == 0);
    EACH_HUGE(size_bytes)
    {
        wish.byte_size = size_bytes;
        REFUSED(gmsfs_region_register(regions, &wish, &reason), -EINVAL);
        check_int(reason, GMSFS_REGION_BAD_RANGE);
        wish.byte_size = 4096;
        wish.offset = size_bytes;
        REFUSED(gmsfs_region_register(regions, &wish, &reason), -EINVAL);
        check_int(reason, GMSFS_REGION_BAD_RANGE);
        wish.offset = 0;
        wish.raw_handle_bytes = size_bytes;
        REFUSED(gmsfs_region_register(regions, &wish, &reason), -EINVAL);
        wish.raw_handle_bytes = 0;
        wish.group_count = size_bytes;
        REFUSED(gmsfs_region_register(regions, &wish, &reason), -EINVAL);
        wish.group_count = 0;
    }
    check_int(gmsfs_region_register(regions, &wish, &reason), 0);
    require(gmsfs_region_open(regions, GMSFS_REGION_SELF, "sizes", &region, &reason) == 0);
    EACH_HUGE(size_bytes)
    {
        REFUSED(gmsfs_region_check(gmsfs_region_info(region), size_bytes, 1, NULL), -ERANGE);
        REFUSED(gmsfs_region_check(gmsfs_region_info(region), 1, size_bytes, NULL), -ERANGE);
        REFUSED(gmsfs_region_read(region, 1, &byte, size_bytes, NULL), -ERANGE);
        REFUSED(gmsfs_region_read(region, size_bytes, &byte, 1, NULL), -ERANGE);
        REFUSED(gmsfs_region_write(region, 1, &byte, size_bytes, NULL), -ERANGE);
        REFUSED(gmsfs_region_write(region, size_bytes, &byte, 1, NULL), -ERANGE);
    }
    gmsfs_region_close(region);
    check_int(gmsfs_region_unregister(regions, GMSFS_REGION_SELF, GMSFS_REGION_ANY, "sizes"), 0);
    gmsfs_regions_close(regions);
    close(wish.fd);
}
