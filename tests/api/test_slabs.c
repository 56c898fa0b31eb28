/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes carved from slabs: found again, freed, put to sleep and woken. */
#include <sys/statvfs.h>

#include "api.h"
#include "ioctl_hook.h"

#define SLAB ((uint64_t)16 << 20)

static gmsfs_t *open_slab_writer(uint64_t slab_bytes)
{
    gmsfs_t *store = open_fresh_writer();

    check_int(gmsfs_set_slab_bytes(store, slab_bytes), 0);
    return store;
}

static unsigned char *create(gmsfs_t *store, uint64_t size_bytes, const char *tag, int fill)
{
    void *ptr = NULL;

    if (!check_int(gmsfs_create_mapping(store, size_bytes, tag, NULL, &ptr), 0))
        require(0);
    memset(ptr, fill, size_bytes);
    return ptr;
}

static size_t count_allocations(gmsfs_t *store)
{
    struct gmsfs_info info = {0};

    check_int(gmsfs_get_info(store, &info), 0);
    return info.allocations;
}

static uint64_t slot_of(gmsfs_t *store, const void *ptr, uint64_t *offset)
{
    uint64_t slot = GMSFS_SLOT_NONE;

    check_int(gmsfs_resolve(store, ptr, &slot, offset), 0);
    return slot;
}

TAP_TEST(small_sizes_share_a_slab_and_a_large_one_has_its_own)
{
    auto_store *store = open_slab_writer(SLAB);
    unsigned char *a = create(store, 100, "w", 1), *b = create(store, 513, "w", 2);
    unsigned char *own = create(store, SLAB + 1, "w", 3), *c = create(store, 1, "w", 4);
    uint64_t slab, offset;
    struct gmsfs_handle_info info;

    check_int(b - a, 512);
    check_int(c - b, 1024);
    slab = slot_of(store, c + 0, &offset);
    check_int(offset, 1536);
    check_int(slot_of(store, a, &offset), slab);
    check_int(offset, 0);
    check(slot_of(store, own, &offset) != slab);
    check_int(offset, 0);
    check_int(count_allocations(store), 2);
    check_int(gmsfs_get_handle_info(store, slab, &info), 0);
    check_int(info.size_bytes, SLAB);
    check_str(info.tag, "w");
    check_int(gmsfs_get_handle_info(store, slot_of(store, own, NULL), &info), 0);
    check_int(info.size_bytes, SLAB + 1);
}

TAP_TEST(tags_do_not_share_a_slab)
{
    auto_store *store = open_slab_writer(SLAB);

    create(store, 100, "weights", 1);
    create(store, 100, "kv_cache", 1);
    create(store, 100, "weights", 1);
    check_int(count_allocations(store), 2);
}

/* Lists the sizes of all allocations with a tag. Returns their number. */
static size_t sizes_of(gmsfs_t *store, const char *tag, uint64_t *sizes, size_t room)
{
    struct gmsfs_handle_info *list = NULL;
    size_t count = 0;

    check_int(gmsfs_list_handles(store, tag, &list, &count), 0);
    require(count <= room);
    for (size_t i = 0; i < count; i++)
        sizes[i] = list[i].size_bytes;
    free(list);
    return count;
}

TAP_TEST(default_slabs_of_a_tag_begin_with_a_granule_and_grow_by_a_quarter)
{
    auto_store *store = open_slab_writer(GMSFS_SLAB_DEFAULT);
    uint64_t granularity = granularity_of(store), sizes[16];

    for (int i = 0; i < 13; i++)
        create(store, granularity, "t", 1);
    require(sizes_of(store, "t", sizes, 16) == 11);
    for (int i = 0; i < 8; i++)
        check_int(sizes[i], granularity);
    check_int(sizes[8], 2 * granularity);
    check_int(sizes[9], 2 * granularity);
    check_int(sizes[10], 3 * granularity);
}

TAP_TEST(default_slab_has_room_for_a_piece_that_is_larger)
{
    auto_store *store = open_slab_writer(GMSFS_SLAB_DEFAULT);
    uint64_t granularity = granularity_of(store), sizes[8];

    create(store, 3 * granularity - 1, "t", 1);
    create(store, granularity, "t", 1);
    require(sizes_of(store, "t", sizes, 8) == 2);
    check_int(sizes[0], 3 * granularity);
    check_int(sizes[1], granularity);
}

TAP_TEST(default_slab_is_an_eighth_of_a_small_device_at_most)
{
    auto_store *store = open_slab_writer(GMSFS_SLAB_DEFAULT);
    uint64_t granularity = granularity_of(store), limit, sizes[64], bytes = 0;
    struct statvfs device;
    size_t count;

    require(statvfs(store_path(), &device) == 0);
    limit = device.f_blocks * device.f_frsize / 8 / granularity * granularity;
    require(limit > 2 * granularity && limit < GMSFS_SLAB_DEFAULT_BYTES);
    while (bytes < 5 * limit) {
        create(store, granularity, "t", 1);
        bytes += granularity;
    }
    count = sizes_of(store, "t", sizes, 64);
    check_int(sizes[count - 1], limit);
}

TAP_TEST(small_pieces_of_many_tags_cost_a_granule_each)
{
    auto_store *store = open_slab_writer(GMSFS_SLAB_DEFAULT);
    struct gmsfs_info info = {0};
    char tag[] = "tag 0";

    for (int i = 0; i < 8; i++, tag[4]++)
        create(store, 1024, tag, 1);
    check_int(gmsfs_get_info(store, &info), 0);
    check_int(info.total_bytes, 8 * info.granularity_bytes);
}

/* Ten megabytes, in the sizes of a small model. */
static void build_small_model(struct gmsfs_info *info)
{
    gmsfs_t *store = open_slab_writer(GMSFS_SLAB_DEFAULT);
    unsigned char *scratch;

    for (int i = 0; i < 16; i++) {
        create(store, (uint64_t)600 << 10, "w", 1);
        create(store, 4096, "w", 1);
    }
    scratch = create(store, 100, "scratch", 1);
    check_int(gmsfs_destroy_mapping(store, scratch), 0);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(gmsfs_get_info(store, info), 0);
    gmsfs_close(store);
}

TAP_TEST(small_model_costs_little_more_than_it_has)
{
    struct gmsfs_info info = {0};

    build_small_model(&info);
    check_int(info.allocations, 6); /* without the destroyed ones */
    check(info.total_bytes <= (uint64_t)12 << 20);
}

TAP_TEST(same_calls_give_the_same_hash_with_growing_slabs)
{
    struct gmsfs_info first = {0}, second = {0};

    build_small_model(&first);
    build_small_model(&second);
    check_str(first.layout_hash, second.layout_hash);
    check_int(strlen(first.layout_hash), 32);
}

TAP_TEST(slab_is_as_large_as_what_was_announced_where_that_is_less)
{
    auto_store *store = open_store();
    struct gmsfs_handle_info info;
    uint64_t granularity, slot;

    check_int(gmsfs_set_slab_bytes(store, GMSFS_SLAB_DEFAULT), 0);
    granularity = granularity_of(store);
    require(gmsfs_connect_reserve(store, GMSFS_MODE_RW, WAIT_MS, granularity + 1) == 0);
    check_int(gmsfs_clear_all_handles(store), 0);
    slot = slot_of(store, create(store, 100, "t", 1), NULL);
    check_int(gmsfs_get_handle_info(store, slot, &info), 0);
    check_int(info.size_bytes, 2 * granularity);
}

TAP_TEST(reader_finds_a_piece_by_its_metadata)
{
    gmsfs_t *store = open_slab_writer(SLAB);
    struct gmsfs_metadata entry = {.key = "tensor"};
    uint64_t slot = 0, offset = 0;
    void *found = NULL, *ptr;

    create(store, 1000, "w", 1);
    ptr = create(store, 2000, "w", 77);
    check_int(gmsfs_resolve(store, ptr, &entry.slot, &entry.offset), 0);
    check_int(gmsfs_metadata_put(store, &entry), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    gmsfs_close(store);
    store = open_locked(GMSFS_MODE_RO);
    check_int(gmsfs_attach_all(store, GMSFS_ACCESS_READ, NULL, NULL), 0);
    check_int(gmsfs_metadata_get(store, "tensor", &slot, &offset, NULL, NULL), 0);
    check_int(gmsfs_locate(store, slot, offset, &found), 0);
    check_int(*(unsigned char *)found, 77);
    check_int(((unsigned char *)found)[1999], 77);
    check_int(gmsfs_locate(store, slot + 1, 0, &found), -ENOENT);
    check_int(gmsfs_locate(store, slot, SLAB, &found), -ENOENT);
    gmsfs_close(store);
}

TAP_TEST(destroyed_pieces_are_used_again_and_an_empty_slab_goes)
{
    auto_store *store = open_slab_writer(SLAB);
    unsigned char *a = create(store, 1024, "w", 1), *b = create(store, 1024, "w", 2);
    unsigned char *c = create(store, 1024, "w", 3);

    check_int(gmsfs_destroy_mapping(store, b + 1), -ENOENT);
    check_int(gmsfs_destroy_mapping(store, b), 0);
    check_int(gmsfs_destroy_mapping(store, b), -ENOENT);
    check_int(gmsfs_destroy_mapping(store, a), 0);
    check(create(store, 2048, "w", 4) == a);
    check_int(c[0], 3);
    check_int(gmsfs_destroy_mapping(store, a), 0);
    check_int(count_allocations(store), 1);
    check_int(gmsfs_unmap_va(store, a), -EBUSY);
    check_int(gmsfs_destroy_mapping(store, c), 0);
    check_int(count_allocations(store), 0);
    check_str(rights_at(a), "");
    check_int(gmsfs_total_bytes(store), 0);
    check_int(count_memory(), 0);
}

static int refuse(void *context)
{
    return *(int *)context ? -EIO : 0;
}

TAP_TEST(last_piece_stays_known_where_its_slab_cannot_be_unmapped)
{
    auto_store *store = open_slab_writer(SLAB);
    unsigned char *first = create(store, 100, "w", 1), *last = create(store, 100, "w", 2);
    struct gmsfs_memory_info info;
    int refused = 1;

    check_int(gmsfs_destroy_mapping(store, first), 0);
    check_int(gmsfs_set_synchronise(store, refuse, &refused), 0);
    check_int(gmsfs_destroy_mapping(store, last), -EIO);
    check_int(last[99], 2);
    check_int(gmsfs_destroy_mapping(store, first), -ENOENT);
    refused = 0;
    check_int(gmsfs_destroy_mapping(store, last), 0);
    check_int(gmsfs_memory_info(store, &info), 0);
    check_int(info.shared_bytes, 0);
    check_int(count_allocations(store), 0);
}

TAP_TEST(committed_slab_stays_in_the_layout)
{
    auto_store *store = open_slab_writer(SLAB);
    unsigned char *a = create(store, 100, "w", 1), *b = create(store, 100, "w", 2), *later;

    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS), 0);
    later = create(store, 100, "w", 3); /* published memory is not carved from */
    check(slot_of(store, later, NULL) != slot_of(store, a, NULL));
    check_int(gmsfs_destroy_mapping(store, a), 0);
    check_int(b[0], 2);
    check_int(gmsfs_destroy_mapping(store, b), 0);
    check_str(rights_at(b), "");
    check_int(count_allocations(store), 2);
}

TAP_TEST(what_is_destroyed_asleep_is_freed_too)
{
    auto_store *store = open_slab_writer(SLAB);
    unsigned char *own = create(store, SLAB + 1, "kv", 1), *piece = create(store, 100, "kv", 2);
    unsigned char *awake = create(store, 100, "w", 3);

    check_int(gmsfs_unmap_tag(store, "kv"), 0);
    check_int(gmsfs_destroy_mapping(store, own), 0);
    check_int(gmsfs_destroy_mapping(store, piece), 0);
    check_int(count_allocations(store), 1);
    check_int(gmsfs_unmap_all_vas(store, GMSFS_UNMAP_KEEP_LOCK), 0);
    check_int(gmsfs_destroy_mapping(store, awake), 0);
    check_int(count_allocations(store), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int(count_allocations(store), 0);
}

/* ---- memory that the mount does not free, or that the process has none of ------------------- */

static int free_errno, strdup_fails;

static int on_ioctl(unsigned long request)
{
    return request == GMSFS_IOC_FREE ? free_errno : 0;
}

char *strdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = strdup_fails ? NULL : malloc(bytes);

    return copy ? memcpy(copy, text, bytes) : NULL;
}

TAP_TEST(what_cannot_be_given_back_is_destroyed_later)
{
    auto_store *store = open_slab_writer(SLAB);
    unsigned char *own = create(store, SLAB + 1, "w", 1), *piece = create(store, 100, "w", 2);

    free_errno = ENOMEM;
    check_int(gmsfs_destroy_mapping(store, own), -ENOMEM);
    check_int(gmsfs_destroy_mapping(store, piece), -ENOMEM);
    check_int(own[SLAB], 1);
    check_int(piece[99], 2);
    free_errno = 0;
    check_int(gmsfs_destroy_mapping(store, own), 0);
    check_int(gmsfs_destroy_mapping(store, piece), 0);
    check_int(count_allocations(store), 0);
}

TAP_TEST(slab_that_nobody_was_told_of_is_not_published)
{
    auto_store *store = open_slab_writer(SLAB);
    auto_free struct gmsfs_mapping *list = NULL;
    size_t count = 0;
    void *ptr = NULL;

    create(store, 100, "w", 1);
    strdup_fails = 1;
    free_errno = ENOMEM;
    check_int(gmsfs_create_mapping(store, 100, "other", NULL, &ptr), -ENOMEM);
    strdup_fails = 0;
    check_int(count_allocations(store), 2);
    check_int(gmsfs_commit(store, GMSFS_COMMIT_STAY, NULL), -ENOMEM);
    free_errno = 0;
    check_int(gmsfs_commit(store, GMSFS_COMMIT_STAY, NULL), 0);
    check_int(count_allocations(store), 1);
    check_int(gmsfs_list_mappings(store, &list, &count), 0);
    check_int(count, 1);
}

TAP_TEST(nothing_is_carved_from_a_slab_that_was_freed)
{
    auto_store *store = open_slab_writer(SLAB);
    unsigned char *a = create(store, 100, "w", 1), *b;

    check_int(gmsfs_free_handle(store, slot_of(store, a, NULL)), 0);
    b = create(store, 100, "w", 2);
    check_int(count_allocations(store), 1);
    check_int(gmsfs_clear_all_handles(store), 0);
    create(store, 100, "w", 3);
    check_int(count_allocations(store), 1);
    check_int(gmsfs_destroy_mapping(store, a), 0);
    check_int(gmsfs_destroy_mapping(store, b), 0);
    check_int(count_allocations(store), 1);
}

TAP_TEST(pieces_are_listed_in_place_of_their_slab)
{
    auto_store *store = open_slab_writer(SLAB);
    unsigned char *a = create(store, 100, "w", 1), *b = create(store, 600, "w", 2);
    struct gmsfs_mapping *list = NULL;
    size_t count = 0;

    check_int(gmsfs_list_mappings(store, &list, &count), 0);
    require(count == 2);
    check(list[0].ptr == a && list[1].ptr == b);
    check_int(list[1].offset, 512);
    check_int(list[1].size_bytes, 600);
    check_int(list[1].aligned_bytes, 1024);
    check_int(list[1].slot, slot_of(store, b, NULL));
    free(list);
    check_int(gmsfs_total_bytes(store), SLAB);
}

/* Two slabs, a hole in the first that is filled again, and a large one between. */
static void build_structure(char hash[GMSFS_HASH_TEXT_BYTES])
{
    gmsfs_t *store = open_slab_writer(SLAB);
    unsigned char *hole;
    struct gmsfs_metadata entry = {.key = "last"};

    create(store, SLAB / 2, "w", 1);
    hole = create(store, 5000, "w", 1);
    create(store, SLAB + 1, "w", 1);
    create(store, SLAB / 2, "w", 1);
    check_int(gmsfs_destroy_mapping(store, hole), 0);
    check_int(gmsfs_resolve(store, create(store, 4000, "w", 1), &entry.slot, &entry.offset), 0);
    check_int(gmsfs_metadata_put(store, &entry), 0);
    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int(gmsfs_get_memory_layout_hash(store, hash), 0);
    gmsfs_close(store);
}

TAP_TEST(same_calls_give_the_same_layout_hash)
{
    char first[GMSFS_HASH_TEXT_BYTES] = "", second[GMSFS_HASH_TEXT_BYTES] = "";

    build_structure(first);
    build_structure(second);
    check_str(first, second);
    check_int(strlen(first), 32);
}

TAP_TEST(pieces_survive_sleep_and_other_bytes)
{
    gmsfs_t *store = open_slab_writer(SLAB), *other;
    unsigned char *a = create(store, 100, "w", 1), *b = create(store, 100, "w", 2);
    uint64_t offset = 0;

    check_int(gmsfs_commit(store, 0, NULL), 0);
    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    check_int(count_memory(), 0);
    other = open_slab_writer(SLAB);
    create(other, 100, "w", 11);
    create(other, 100, "w", 12);
    check_int(gmsfs_commit(other, 0, NULL), 0);
    gmsfs_close(other);
    check_int(gmsfs_remap_all_vas(store, WAIT_MS, 0), 0);
    check_int(a[0], 11);
    check_int(b[99], 12);
    slot_of(store, b, &offset);
    check_int(offset, 512);
    check_int(gmsfs_destroy_mapping(store, a), 0);
    check_int(gmsfs_destroy_mapping(store, b), 0);
    check_int(gmsfs_total_bytes(store), 0);
    gmsfs_close(store);
}

TAP_TEST(reallocated_slab_is_carved_from_again)
{
    auto_store *store = open_slab_writer(SLAB);
    unsigned char *a = create(store, 100, "w", 1), *b;

    check_int(gmsfs_unmap_all_vas(store, 0), 0);
    check_int(gmsfs_connect(store, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_clear_all_handles(store), 0);
    check_int(gmsfs_reallocate_all_handles(store), 0);
    check_int(a[0], 0);
    b = create(store, 100, "w", 2);
    check_int(b - a, 512);
    check_int(count_allocations(store), 1);
    check_int(gmsfs_destroy_mapping(store, a), 0);
    check_int(gmsfs_destroy_mapping(store, b), 0);
    check_int(count_allocations(store), 0);
}
