/* SPDX-License-Identifier: Apache-2.0 */
/* A store of a GPU whose bytes are on the host: the parts that can be mapped. */
#include "cuda_fixture.h"
#include "places_fixture.h"

static void publish_one(int value)
{
    gmsfs_t *writer = open_fresh_writer();
    void *ptr = NULL;

    if (check_int(gmsfs_create_mapping(writer, 5000, "t", NULL, &ptr), 0))
        check_int(fill(ptr, value, 5000), DRV_SUCCESS);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
    gmsfs_close(writer);
}

static unsigned char *attach(gmsfs_t *reader)
{
    struct gmsfs_mapping *list = NULL;
    unsigned char *ptr;
    size_t count = 0;

    check_int(gmsfs_attach_all(reader, GMSFS_ACCESS_READ, &list, &count), 0);
    require(count == 1);
    ptr = list[0].ptr;
    free(list);
    return ptr;
}

TAP_TEST(sleeper_wakes_at_its_addresses_once_the_gpu_has_the_bytes_again)
{
    unsigned char *ptr;
    auto_store *reader = NULL;

    publish_one(5);
    reader = open_locked(GMSFS_MODE_RO);
    ptr = attach(reader);
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    move_to("host", GMSFS_RESIDENCY_HOST);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), 0);
    check_int(byte_at(ptr), 5);
    check_int(byte_at(ptr + 4999), 5);
    check_int(fill(ptr, 1, 1), DRV_INVALID_VALUE);
}

TAP_TEST(who_reads_anywhere_maps_host_memory_without_the_gpu)
{
    gmsfs_t *reader = open_store();
    struct gmsfs_info info = {0};
    unsigned char *ptr;

    publish_one(6);
    move_to("host", GMSFS_RESIDENCY_HOST);
    check_int(gmsfs_set_connect_flags(reader, GMSFS_CONNECT_ANY), 0);
    check_int(gmsfs_connect(reader, GMSFS_MODE_RO, 0), 0);
    check_int(gmsfs_get_info(reader, &info), 0);
    check_int(info.memory, GMSFS_MEMORY_HOST);
    ptr = attach(reader);
    check_int(count_mapped(), 0);
    check_int(ptr[4999], 6);
    gmsfs_close(reader);
    check_int(look().residency, GMSFS_RESIDENCY_HOST);
}

TAP_TEST(who_reads_anywhere_maps_what_moved_since_it_took_the_lock)
{
    auto_store *reader = open_store();
    struct gmsfs_info info = {0};

    publish_one(6);
    move_to("host", GMSFS_RESIDENCY_HOST);
    check_int(gmsfs_set_connect_flags(reader, GMSFS_CONNECT_ANY), 0);
    check_int(gmsfs_connect(reader, GMSFS_MODE_RO, 0), 0);
    move_to("device", GMSFS_RESIDENCY_DEVICE | GMSFS_RESIDENCY_HOST);
    check_int(byte_at(attach(reader)), 6);
    check_int(count_mapped(), 1);
    check_int(gmsfs_get_info(reader, &info), 0);
    check_int(info.memory, GMSFS_MEMORY_CUDA);
}

TAP_TEST(handle_maps_the_gpu_again_when_it_connects_without_the_flag)
{
    auto_store *reader = open_store();
    struct gmsfs_info info = {0};

    publish_one(7);
    move_to("host", GMSFS_RESIDENCY_HOST);
    check_int(gmsfs_set_connect_flags(reader, GMSFS_CONNECT_ANY), 0);
    check_int(gmsfs_connect(reader, GMSFS_MODE_RO, 0), 0);
    check_int(gmsfs_disconnect(reader), 0);
    check_int(gmsfs_set_connect_flags(reader, 0), 0);
    check_int(gmsfs_connect(reader, GMSFS_MODE_RO, WAIT_MS), 0);
    check_int(gmsfs_get_info(reader, &info), 0);
    check_int(info.memory, GMSFS_MEMORY_CUDA);
    check_int(byte_at(attach(reader)), 7);
    check_int(count_mapped(), 1);
}

TAP_TEST(reserved_addresses_of_the_gpu_take_no_host_memory)
{
    unsigned char *ptr;
    auto_store *reader = NULL;

    publish_one(8);
    reader = open_locked(GMSFS_MODE_RO);
    ptr = attach(reader);
    check_int(gmsfs_unmap_all_vas(reader, 0), 0);
    move_to("host", GMSFS_RESIDENCY_HOST);
    check_int(gmsfs_set_connect_flags(reader, GMSFS_CONNECT_ANY), 0);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), -EXDEV);
    check_int(gmsfs_is_unmapped(reader), 1);
    check_int(gmsfs_is_connected(reader), 0);
    check_int(look().residency, GMSFS_RESIDENCY_HOST);
    check_int(gmsfs_set_connect_flags(reader, 0), 0);
    check_int(gmsfs_remap_all_vas(reader, WAIT_MS, 1), 0);
    check_int(byte_at(ptr), 8);
}
