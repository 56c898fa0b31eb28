/* SPDX-License-Identifier: Apache-2.0 */
/* The argument of an ioctl: old and new clients, and commands that are not ours. */
#include "fs/payload.h"
#include "gmsfs_abi.h"
#include "tap.h"

#include <errno.h>
#include <string.h>

TAP_TEST(a_payload_of_the_known_size_is_taken_as_it_is)
{
    const uint8_t in[4] = {1, 2, 3, 4};
    uint8_t out[4] = {9, 9, 9, 9};
    check_int(payload_decode(in, sizeof in, out, sizeof out), 0);
    check_bytes(out, sizeof out, in, sizeof in);
}

TAP_TEST(a_shorter_payload_is_extended_by_zeros)
{
    const uint8_t in[2] = {1, 2}, expected[4] = {1, 2, 0, 0};
    uint8_t out[4] = {9, 9, 9, 9};
    check_int(payload_decode(in, sizeof in, out, sizeof out), 0);
    check_bytes(out, sizeof out, expected, sizeof expected);
}

TAP_TEST(no_payload_is_all_zeros)
{
    const uint8_t expected[4] = {0};
    uint8_t out[4] = {9, 9, 9, 9};
    check_int(payload_decode(NULL, 0, out, sizeof out), 0);
    check_bytes(out, sizeof out, expected, sizeof expected);
}

TAP_TEST(a_longer_payload_must_end_in_zeros)
{
    uint8_t in[6] = {1, 2, 3, 4, 0, 0}, out[4];
    check_int(payload_decode(in, sizeof in, out, sizeof out), 0);
    check_bytes(out, sizeof out, in, sizeof out);
    in[4] = 1;
    check_int(payload_decode(in, sizeof in, out, sizeof out), -E2BIG);
    in[4] = 0;
    in[5] = 0x80;
    check_int(payload_decode(in, sizeof in, out, sizeof out), -E2BIG);
    check_int(payload_decode(in, sizeof in, NULL, 0), -E2BIG);
}

TAP_TEST(a_command_is_known_by_its_number_whatever_its_size_and_direction)
{
    unsigned info = (unsigned)GMSFS_IOC_INFO;
    check_int(payload_get_number(info), 1);
    check_int(payload_get_number((unsigned)_IOC(_IOC_READ, 'G', 1, 8)), 1);
    check_int(payload_get_number((unsigned)_IOC(_IOC_NONE, 'G', 1, 0)), 1);
    check_int(payload_get_number((unsigned)GMSFS_IOC_APPLY), 14);
}

TAP_TEST(each_of_several_allocations_is_looked_at)
{
    static struct gmsfs_ioc_alloc_each alloc;
    check(sizeof alloc <= PAYLOAD_MAX_BYTES);
    check_int(payload_check_alloc_each(&alloc), -EINVAL); /* none */
    alloc.count = 2;
    alloc.items[0].size_bytes = alloc.items[1].size_bytes = 1;
    check_int(payload_check_alloc_each(&alloc), 0);
    alloc.flags = ~GMSFS_ALLOC_NOWAIT;
    check_int(payload_check_alloc_each(&alloc), -EINVAL);
    alloc.flags = GMSFS_ALLOC_NOWAIT;
    alloc.items[1].size_bytes = 0;
    check_int(payload_check_alloc_each(&alloc), -EINVAL);
    alloc.items[1].size_bytes = 1;
    memset(alloc.items[1].name, 'a', sizeof alloc.items[1].name);
    check_int(payload_check_alloc_each(&alloc), -EINVAL);
    alloc.count = 1; /* the rest is not looked at */
    check_int(payload_check_alloc_each(&alloc), 0);
    alloc.count = GMSFS_ALLOC_EACH_MAX + 1;
    check_int(payload_check_alloc_each(&alloc), -EINVAL);
}

TAP_TEST(a_command_of_another_type_is_none)
{
    check_int(payload_get_number(0x5401), 0); /* TCGETS, from every stdio user */
    check_int(payload_get_number((unsigned)_IOC(_IOC_READ, 'g', 1, 8)), 0);
    check_int(payload_get_number((unsigned)_IOC(_IOC_NONE, 'G', 0, 0)), 0);
}

TAP_TEST(every_payload_fits_into_what_fuse_passes_on)
{
    check(sizeof(struct gmsfs_ioc_metadata) <= PAYLOAD_MAX_BYTES);
    check(sizeof(struct gmsfs_ioc_info) <= PAYLOAD_MAX_BYTES);
    check(sizeof(struct gmsfs_ioc_alloc) <= PAYLOAD_MAX_BYTES);
    check(sizeof(struct gmsfs_ioc_list) <= PAYLOAD_MAX_BYTES);
}

TAP_TEST(a_commit_has_flags_that_go_together)
{
    struct gmsfs_ioc_commit commit = {.flags = GMSFS_COMMIT_SEAL | GMSFS_COMMIT_GROUP};
    check_int(payload_check_commit(&commit), 0);
    commit.flags = GMSFS_COMMIT_SEAL | GMSFS_COMMIT_CHECK;
    check_int(payload_check_commit(&commit), 0);
    commit.flags = GMSFS_COMMIT_SEAL | GMSFS_COMMIT_STAY;
    check_int(payload_check_commit(&commit), -EINVAL);
    commit.flags = GMSFS_COMMIT_IMMUTABLE | GMSFS_COMMIT_STAY | GMSFS_COMMIT_GROUP;
    check_int(payload_check_commit(&commit), 0);
    commit.flags = GMSFS_COMMIT_IMMUTABLE | GMSFS_COMMIT_SEAL;
    check_int(payload_check_commit(&commit), -EINVAL);
    commit.flags = 32;
    check_int(payload_check_commit(&commit), -EINVAL);
}

TAP_TEST(an_acquire_has_a_mode_that_its_handle_is_open_for)
{
    struct gmsfs_ioc_acquire acquire = {.mode = GMSFS_MODE_RO, .flags = GMSFS_ACQUIRE_EXPORT};
    check_int(payload_check_acquire(&acquire, true, false), 0);
    check_int(payload_check_acquire(&acquire, false, true), -EBADF);
    acquire.mode = GMSFS_MODE_RW_OR_RO;
    check_int(payload_check_acquire(&acquire, false, true), 0);
    check_int(payload_check_acquire(&acquire, true, false), -EBADF);
    acquire.reserve_bytes = 1;
    check_int(payload_check_acquire(&acquire, true, true), 0);
    acquire.mode = GMSFS_MODE_RO;
    check_int(payload_check_acquire(&acquire, true, true), -EINVAL);
    acquire.mode = GMSFS_MODE_RW;
    acquire.flags = GMSFS_ACQUIRE_AGAIN;
    check_int(payload_check_acquire(&acquire, true, true), 0);
    acquire.flags = GMSFS_ACQUIRE_FRESH;
    check_int(payload_check_acquire(&acquire, true, true), 0);
    acquire.mode = GMSFS_MODE_RO;
    check_int(payload_check_acquire(&acquire, true, true), -EINVAL);
    acquire.mode = GMSFS_MODE_RW_DATA_OR_RW;
    check_int(payload_check_acquire(&acquire, false, true), 0);
    check_int(payload_check_acquire(&acquire, true, false), -EBADF);
    acquire.mode = GMSFS_MODE_RW_DATA; /* is granted, never asked for */
    check_int(payload_check_acquire(&acquire, true, true), -EINVAL);
    acquire.mode = GMSFS_MODE_RW;
    acquire.flags = GMSFS_ACQUIRE_ANY; /* only a reader can */
    check_int(payload_check_acquire(&acquire, true, true), -EINVAL);
    acquire.flags = GMSFS_ACQUIRE_REPLACE;
    check_int(payload_check_acquire(&acquire, true, true), 0);
    acquire.flags = GMSFS_ACQUIRE_GROUP;
    check_int(payload_check_acquire(&acquire, true, true), 0);
    acquire.flags = GMSFS_ACQUIRE_BY_PROCESS; /* only a reader can */
    check_int(payload_check_acquire(&acquire, true, true), -EINVAL);
    acquire.mode = GMSFS_MODE_RO;
    acquire.reserve_bytes = 0;
    check_int(payload_check_acquire(&acquire, true, true), 0);
    acquire.flags = 128;
    check_int(payload_check_acquire(&acquire, true, true), -EINVAL);
    acquire = (struct gmsfs_ioc_acquire){.mode = GMSFS_MODE_NONE};
    check_int(payload_check_acquire(&acquire, true, true), -EINVAL);
}

TAP_TEST(an_alloc_has_a_size_a_count_and_terminated_texts)
{
    struct gmsfs_ioc_alloc alloc = {.size_bytes = 1, .count = 1, .flags = GMSFS_ALLOC_NOWAIT};
    check_int(payload_check_alloc(&alloc), 0);
    memset(alloc.tag, 'x', sizeof alloc.tag - 1);
    check_int(payload_check_alloc(&alloc), 0);
    alloc.tag[sizeof alloc.tag - 1] = 'x';
    check_int(payload_check_alloc(&alloc), -EINVAL);
    alloc.tag[0] = '\0';
    memset(alloc.name, 'x', sizeof alloc.name);
    check_int(payload_check_alloc(&alloc), -EINVAL);
    alloc.name[0] = '\0';
    alloc.mem_class = 1;
    check_int(payload_check_alloc(&alloc), -EOPNOTSUPP);
    alloc.count = 0;
    check_int(payload_check_alloc(&alloc), -EINVAL);
}

TAP_TEST(key_and_value_lie_within_the_data)
{
    struct gmsfs_ioc_metadata metadata = {.key_bytes = GMSFS_KEY_MAX};
    metadata.value_bytes = GMSFS_PUT_DATA_MAX - GMSFS_KEY_MAX;
    check_int(payload_check_metadata(&metadata, true), 0);
    metadata.value_bytes++;
    check_int(payload_check_metadata(&metadata, true), -EINVAL);
    check_int(payload_check_metadata(&metadata, false), 0);
    metadata.value_bytes = UINT32_MAX;
    check_int(payload_check_metadata(&metadata, true), -EINVAL);
    metadata.key_bytes = GMSFS_KEY_MAX + 1;
    check_int(payload_check_metadata(&metadata, false), -ENAMETOOLONG);
    metadata.key_bytes = UINT32_MAX;
    check_int(payload_check_metadata(&metadata, false), -EINVAL);
    metadata.key_bytes = 0;
    check_int(payload_check_metadata(&metadata, false), -EINVAL);
}

TAP_TEST(a_region_is_looked_at_or_held)
{
    struct gmsfs_ioc_region region = {.flags = GMSFS_REGION_HOLD};
    check_int(payload_check_region(&region), 0);
    region.flags = 0;
    check_int(payload_check_region(&region), 0);
    region.flags = GMSFS_REGION_HOLD << 1;
    check_int(payload_check_region(&region), -EINVAL);
    region.flags = 0;
    region.pad = 1;
    check_int(payload_check_region(&region), -EINVAL);
}

TAP_TEST(a_list_has_no_unknown_flags)
{
    struct gmsfs_ioc_list list = {.first = UINT64_MAX, .count = UINT32_MAX};
    check_int(payload_check_list(&list), 0);
    list.flags = GMSFS_LIST_BY_SLOT;
    check_int(payload_check_list(&list), 0);
    list.flags = GMSFS_LIST_BY_SLOT << 1;
    check_int(payload_check_list(&list), -EINVAL);
    list.flags = UINT32_MAX;
    check_int(payload_check_list(&list), -EINVAL);
}
