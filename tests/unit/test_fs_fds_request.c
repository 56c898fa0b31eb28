/* SPDX-License-Identifier: Apache-2.0 */
/* What a client may say on the ticket socket. */
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
    request.op = GMSFS_FDS_FENCE_STATUS + 1;
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
