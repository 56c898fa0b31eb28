/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of clients on the ticket socket. */
#include "fs/fds_request.h"
#include "tap.h"

#include <errno.h>

static struct gmsfs_fds_request decoded;

static int decode(const struct gmsfs_fds_request *request)
{
    return fds_request_decode(request, sizeof *request, &decoded);
}

TAP_TEST(a_ticket_is_redeemed_in_batches_that_the_kernel_can_pass)
{
    struct gmsfs_fds_request request = {
        .version = GMSFS_ABI_VERSION, .op = GMSFS_FDS_REDEEM, .batch = 1, .ticket = {1, 2, 3}};
    check_int(decode(&request), 0);
    check_bytes(&decoded, sizeof decoded, &request, sizeof request);
    request.batch = GMSFS_BATCH_MAX;
    check_int(decode(&request), 0);
    request.batch = GMSFS_BATCH_MAX + 1;
    check_int(decode(&request), -EINVAL);
    request.batch = 0;
    check_int(decode(&request), -EINVAL);
    request.op = GMSFS_FDS_UNMOUNT; /* which has no batch */
    check_int(decode(&request), 0);
}

TAP_TEST(other_versions_operations_and_padding_are_refused)
{
    const struct gmsfs_fds_request good = {.version = GMSFS_ABI_VERSION, .op = GMSFS_FDS_UNMOUNT};
    struct gmsfs_fds_request request = good;
    request.version++;
    check_int(decode(&request), -EINVAL);
    request = good;
    request.op = 0;
    check_int(decode(&request), -EINVAL);
    request.op = GMSFS_FDS_CLEAR_SUSPECT;
    check_int(decode(&request), 0);
    request.op = GMSFS_FDS_GOVERN;
    check_int(decode(&request), 0);
    request.op = GMSFS_FDS_LOG;
    check_int(decode(&request), 0);
    request.batch = 4;
    check_int(decode(&request), 0);
    request.batch = 5;
    check_int(decode(&request), -EINVAL);
    request.op = GMSFS_FDS_LOG + 1;
    request.batch = 0;
    check_int(decode(&request), -EINVAL);
    request.op = GMSFS_FDS_STORE_DRAIN;
    request.batch = UINT32_MAX;
    check_int(decode(&request), 0);
    request.op = GMSFS_FDS_STORE_HOLDERS;
    request.batch = 2;
    check_int(decode(&request), -EINVAL);
    request.op = GMSFS_FDS_DRAIN;
    request.batch = 1;
    check_int(decode(&request), 0);
    request.batch = 2;
    check_int(decode(&request), -EINVAL);
    request = good;
    request.pad = 1;
    check_int(decode(&request), -EINVAL);
}

TAP_TEST(a_fence_is_asked_for_and_ended_by_its_token)
{
    for (uint32_t op = GMSFS_FDS_FENCE; op <= GMSFS_FDS_FENCE_STATUS; op++) {
        struct gmsfs_fds_request request = {
            .version = GMSFS_ABI_VERSION, .op = op, .ticket = {1, 2, 3}};
        check_int(decode(&request), 0);
        check_bytes(&decoded, sizeof decoded, &request, sizeof request);
    }
}

TAP_TEST(a_request_may_be_longer_by_zeros_and_never_shorter)
{
    const struct gmsfs_fds_request good = {.version = GMSFS_ABI_VERSION, .op = GMSFS_FDS_UNMOUNT};
    uint8_t bytes[FDS_REQUEST_MAX_BYTES + 1] = {0};
    memcpy(bytes, &good, sizeof good);
    for (size_t size = 0; size <= sizeof bytes; size++)
        check_int(fds_request_decode(bytes, size, &decoded),
                  size >= sizeof good && size <= FDS_REQUEST_MAX_BYTES ? 0 : -EINVAL);
    bytes[FDS_REQUEST_MAX_BYTES - 1] = 1;
    check_int(fds_request_decode(bytes, FDS_REQUEST_MAX_BYTES, &decoded), -EINVAL);
    check_int(fds_request_decode(bytes, FDS_REQUEST_MAX_BYTES - 1, &decoded), 0);
}

/* ---- regions ------------------------------------------------------------------------------- */

static struct gmsfs_fds_region_request region, decoded_region;

static int decode_region(void)
{
    int error = fds_request_decode(&region, sizeof region, &decoded);
    return error ? error : fds_region_decode(&region, sizeof region, &decoded_region);
}

static void describe_region(uint32_t op)
{
    region = (struct gmsfs_fds_region_request){.request = {.version = GMSFS_ABI_VERSION, .op = op},
                                               .kind = GMSFS_REGION_SYSTEM,
                                               .uid = GMSFS_REGION_SELF,
                                               .name_bytes = 3,
                                               .name = "abc"};
    if (op != GMSFS_FDS_REGION_REGISTER)
        return;
    region.key_bytes = 4;
    memcpy(region.key, "/key", 4);
    region.group_count = 2;
    region.groups[1] = 7;
    region.offset = UINT64_MAX;
    region.byte_size = UINT64_MAX;
}

TAP_TEST(a_region_is_registered_with_all_that_it_has)
{
    describe_region(GMSFS_FDS_REGION_REGISTER);
    check_int(decode_region(), 0);
    check(fds_request_is_region(&decoded));
    check_bytes(&decoded_region, sizeof region, &region, sizeof region);
    region.kind = GMSFS_REGION_CUDA;
    region.handle_bytes = GMSFS_REGION_HANDLE_BYTES;
    memset(region.raw_handle, 7, sizeof region.raw_handle);
    check_int(decode_region(), 0);
}

/* Each of these makes a good request one that is none. */
#define NONE(lvalue, value)                  \
    do {                                     \
        describe_region(op);                 \
        lvalue = (value);                    \
        check_int(decode_region(), -EINVAL); \
    } while (0)

TAP_TEST(lengths_end_within_their_rooms_and_zeros_follow)
{
    const uint32_t op = GMSFS_FDS_REGION_REGISTER;
    NONE(region.name_bytes, GMSFS_REGION_NAME_MAX + 1);
    NONE(region.name_bytes, UINT32_MAX);
    NONE(region.name_bytes, 2);
    NONE(region.key_bytes, GMSFS_REGION_KEY_MAX + 1);
    NONE(region.key_bytes, 3);
    NONE(region.handle_bytes, GMSFS_REGION_HANDLE_BYTES + 1);
    NONE(region.raw_handle[0], 1);
    NONE(region.group_count, GMSFS_REGION_GROUPS_MAX + 1);
    NONE(region.group_count, 1);
    NONE(region.kind, GMSFS_REGION_CUDA + 1);
    NONE(region.flags, GMSFS_REGION_LIST_ONE);
    NONE(region.request.batch, 1);
    NONE(region.request.ticket[15], 1);
    NONE(region.request.pad, 1);
}

TAP_TEST(only_a_registration_says_what_a_region_is)
{
    for (uint32_t op = GMSFS_FDS_REGION_UNREGISTER; op <= GMSFS_FDS_REGION_LIST; op++) {
        describe_region(op);
        if (op == GMSFS_FDS_REGION_UNREGISTER_ALL) {
            check_int(decode_region(), -EINVAL); /* all of them have no name */
            memset(region.name, 0, sizeof region.name);
            region.name_bytes = 0;
        }
        check_int(decode_region(), 0);
        NONE(region.key_bytes, 1);
        NONE(region.group_count, 1);
        NONE(region.gid, 1);
        NONE(region.offset, 1);
        NONE(region.byte_size, 1);
        NONE(region.device_id, -1);
        NONE(region.handle_bytes, 1);
        NONE(region.flags, GMSFS_REGION_LIST_ONE << 1);
    }
    describe_region(GMSFS_FDS_REGION_LIST);
    region.flags = GMSFS_REGION_LIST_ONE;
    check_int(decode_region(), 0);
}

TAP_TEST(a_request_about_regions_may_be_longer_by_zeros_and_never_shorter)
{
    uint8_t bytes[FDS_REGION_MAX_BYTES + 1] = {0};
    describe_region(GMSFS_FDS_REGION_REGISTER);
    memcpy(bytes, &region, sizeof region);
    for (size_t size = 0; size <= sizeof bytes; size++)
        check_int(fds_request_decode(bytes, size, &decoded),
                  size >= sizeof region && size <= FDS_REGION_MAX_BYTES ? 0 : -EINVAL);
    bytes[FDS_REGION_MAX_BYTES - 1] = 1;
    check_int(fds_request_decode(bytes, FDS_REGION_MAX_BYTES, &decoded), -EINVAL);
}
