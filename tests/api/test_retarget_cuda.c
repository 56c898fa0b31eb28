/* SPDX-License-Identifier: Apache-2.0 */
/* A slot of a GPU: one store's memory after the other at the same addresses. */
#include <poll.h>

#include "cuda_fixture.h"
#include "retarget_fixture.h"

static void publish_one(char which, int value, uint64_t size_bytes)
{
    gmsfs_t *writer = open_one(which);
    void *ptr = NULL;

    check_int(gmsfs_connect(writer, GMSFS_MODE_RW, WAIT_MS), 0);
    check_int(gmsfs_clear_all_handles(writer), 0);
    if (check_int(gmsfs_create_mapping(writer, size_bytes, "lora", NULL, &ptr), 0))
        check_int(fill(ptr, value, size_bytes), DRV_SUCCESS);
    check_int(gmsfs_commit(writer, 0, NULL), 0);
    gmsfs_close(writer);
}

static gmsfs_t *open_slot(char which, unsigned char **ptr)
{
    gmsfs_t *slot = open_one(which);
    struct gmsfs_mapping *list = NULL;
    size_t count = 0;

    check_int(gmsfs_connect(slot, GMSFS_MODE_RO, WAIT_MS), 0);
    check_int(gmsfs_attach_all(slot, GMSFS_ACCESS_READ, &list, &count), 0);
    require(count == 1);
    *ptr = list[0].ptr;
    free(list);
    return slot;
}

TAP_TEST(slot_shows_the_other_store_at_its_addresses_once_the_gpu_has_the_bytes)
{
    unsigned char *ptr;
    gmsfs_t *slot;

    publish_one('a', 5, 5000);
    publish_one('b', 6, 5000);
    slot = open_slot('a', &ptr);
    check_int(gmsfs_retarget(slot, path_of('b'), 0), 0);
    check_int(byte_at(ptr), 6);
    check_int(byte_at(ptr + 4999), 6);
    check_int(fill(ptr, 1, 1), DRV_INVALID_VALUE);
    check_int(count_mapped(), 1);
    demote('a');
    check_int(gmsfs_retarget(slot, path_of('a'), 0), -EAGAIN);
    check_int(byte_at(ptr), 6);
    check_int(gmsfs_retarget(slot, path_of('a'), WAIT_MS), 0);
    check_int(byte_at(ptr), 5);
    check_int(order_of('b', "host"), 0);
    gmsfs_close(slot);
    check_int(count_mapped(), 0);
}

TAP_TEST(store_of_another_gpu_is_refused)
{
    const char *elsewhere = getenv("GMSFS_TEST_ELSEWHERE");
    unsigned char *ptr;
    auto_store *slot = NULL;

    require(elsewhere != NULL);
    publish_one('a', 5, 5000);
    slot = open_slot('a', &ptr);
    check_int(gmsfs_retarget(slot, elsewhere, WAIT_MS), -EXDEV);
    check_int(byte_at(ptr), 5);
}

/* Two mounts of one GPU have the same memory, but events of their own. */
TAP_TEST(notices_follow_a_slot_to_another_mount_by_the_same_descriptor)
{
    struct pollfd poller = {.events = POLLIN};
    struct stat events, store;
    unsigned char *ptr;
    auto_store *slot = NULL;

    publish_one('a', 5, 5000);
    publish_one(BESIDE, 6, 5000);
    slot = open_slot('a', &ptr);
    poller.fd = gmsfs_notice_descriptor(slot);
    require(poller.fd >= 0);
    check_int(gmsfs_retarget(slot, path_of(BESIDE), WAIT_MS), 0);
    check_int(byte_at(ptr), 6);
    check_int(gmsfs_notice_descriptor(slot), poller.fd);
    require(fstat(poller.fd, &events) == 0 && stat(path_of(BESIDE), &store) == 0);
    check_int(events.st_dev, store.st_dev);
    check_int(gmsfs_notices(slot), 0);
    for (int i = 0; i < 100 && poll(&poller, 1, 0) == 1; i++) /* a new worker wakes it */
        check_int(gmsfs_notices(slot), 0);
    check_int(poll(&poller, 1, 0), 0);
    gmsfs_close(open_slot(BESIDE, &ptr));
    check_int(poll(&poller, 1, WAIT_MS), 1);
}

TAP_TEST(another_size_leaves_the_gpu_as_it_was)
{
    unsigned char *ptr;
    auto_store *slot = NULL;

    publish_one('a', 5, 5000);
    publish_one('b', 6, 6000);
    slot = open_slot('a', &ptr);
    check_int(gmsfs_retarget(slot, path_of('b'), WAIT_MS), -ESTALE);
    check_int(byte_at(ptr), 5);
    check_int(count_mapped(), 1);
}

/* The driver maps the old store again after it has refused the new one. */
TAP_TEST(mapping_that_the_driver_refuses_brings_the_old_store_back)
{
    unsigned char *ptr;
    auto_store *slot = NULL;

    publish_one('a', 5, 5000);
    publish_one('b', 6, 5000);
    slot = open_slot('a', &ptr);
    control("fail cuMemMap 2 1 1\n");
    check(gmsfs_retarget(slot, path_of('b'), WAIT_MS) < 0);
    control("");
    check_int(gmsfs_granted_lock(slot), GMSFS_MODE_RO);
    check_int(gmsfs_is_unmapped(slot), 0);
    check_int(byte_at(ptr), 5);
    check_int(look_at('b').readers, 0);
    check_int(gmsfs_retarget(slot, path_of('b'), WAIT_MS), 0);
    check_int(byte_at(ptr), 6);
}

TAP_TEST(slot_that_maps_host_memory_for_its_flag_is_refused)
{
    unsigned char *ptr;
    auto_store *slot = open_one('a');
    struct gmsfs_mapping *list = NULL;
    size_t count = 0;

    publish_one('a', 5, 5000);
    publish_one('b', 6, 5000);
    demote('a');
    check_int(gmsfs_set_connect_flags(slot, GMSFS_CONNECT_ANY), 0);
    check_int(gmsfs_connect(slot, GMSFS_MODE_RO, 0), 0);
    check_int(gmsfs_attach_all(slot, GMSFS_ACCESS_READ, &list, &count), 0);
    require(count == 1);
    ptr = list[0].ptr;
    free(list);
    check_int(gmsfs_retarget(slot, path_of('b'), 0), -EXDEV);
    check_int(ptr[4999], 5);
}
