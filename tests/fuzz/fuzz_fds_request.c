/* SPDX-License-Identifier: Apache-2.0 */
/* The ticket socket: a message is one of its requests, with a region or without, or nothing. */
#include "fuzz.h"

#include "fs/fds_request.h"

#include <errno.h>

#define REGION_BYTES 1176u

static bool is_zero(const void *bytes, size_t from, size_t size)
{
    const uint8_t *at = bytes;

    for (size_t i = from; i < size; i++) {
        if (at[i])
            return false;
    }
    return true;
}

/* Repeats the rules of gmsfs_abi.h, field by field. */
static bool is_request(const uint8_t *data, size_t size)
{
    uint32_t numbers[4];
    size_t own, most;

    if (size < sizeof(struct gmsfs_fds_request) || size > 2 * REGION_BYTES)
        return false;
    memcpy(numbers, data, sizeof numbers);
    own = numbers[1] >= 11 && numbers[1] <= 14 ? REGION_BYTES : sizeof(struct gmsfs_fds_request);
    most = 2 * own;
    if (size < own || size > most || !is_zero(data, own, size))
        return false;
    if (numbers[0] != GMSFS_ABI_VERSION || numbers[3] != 0)
        return false;
    if (numbers[1] == 1) /* REDEEM: its batch */
        return numbers[2] >= 1 && numbers[2] <= 253;
    if (numbers[1] == 3 || numbers[1] == 16) /* DRAIN, STORE_HOLDERS: revoke or not */
        return numbers[2] <= 1;
    if (numbers[1] == 22) /* LOG: the level */
        return numbers[2] <= 4;
    return numbers[1] >= 2 && numbers[1] <= 21;
}

/* Zeros may follow, up to the maximum; other bytes may not. */
static void try_longer(const void *bytes, size_t own, size_t most)
{
    uint8_t longer[FDS_REGION_MAX_BYTES + 1] = {0};
    struct gmsfs_fds_request again;

    memcpy(longer, bytes, own);
    for (size_t size = own; size <= most; size++) {
        must(fds_request_decode(longer, size, &again) == 0);
        must(memcmp(&again, bytes, sizeof again) == 0);
        if (size == own)
            continue;
        longer[size - 1] = 1;
        must(fds_request_decode(longer, size, &again) == -EINVAL);
        longer[size - 1] = 0;
    }
    must(fds_request_decode(longer, most + 1, &again) == -EINVAL);
    for (size_t size = 0; size < own; size++)
        must(fds_request_decode(longer, size, &again) == -EINVAL);
}

static void try_region(const uint8_t *data, size_t size)
{
    struct gmsfs_fds_region_request region;
    int error = fds_region_decode(data, size, &region);

    must(error == 0 || error == -EINVAL);
    if (error)
        return;
    must(memcmp(&region, data, sizeof region) == 0);
    must(region.kind <= 2 && region.group_count <= 64 && region.handle_bytes <= 64);
    must(region.name_bytes < sizeof region.name && region.key_bytes < sizeof region.key);
    must(is_zero(region.name, region.name_bytes, sizeof region.name));
    must(is_zero(region.key, region.key_bytes, sizeof region.key));
    must(region.request.op == GMSFS_FDS_REGION_REGISTER ||
         (region.key_bytes == 0 && region.byte_size == 0 && region.group_count == 0));
    must(region.request.op == GMSFS_FDS_REGION_LIST || region.flags == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gmsfs_fds_request request;
    int error = fds_request_decode(data, size, &request);

    must(error == (is_request(data, size) ? 0 : -EINVAL));
    if (error)
        return 0;
    must(memcmp(&request, data, sizeof request) == 0);
    if (fds_request_is_region(&request)) {
        try_region(data, size);
        try_longer(data, REGION_BYTES, FDS_REGION_MAX_BYTES);
    } else {
        try_longer(data, sizeof request, FDS_REQUEST_MAX_BYTES);
    }
    return 0;
}
