/* SPDX-License-Identifier: Apache-2.0 */
/* The ticket socket: a message is one of two requests, or nothing. */
#include "fuzz.h"

#include "fs/fds_request.h"

#include <errno.h>

/* The rules of gmsfs_abi.h once more, field by field. */
static bool is_request(const uint8_t *data, size_t size)
{
    uint32_t numbers[4];

    if (size < sizeof(struct gmsfs_fds_request) || size > FDS_REQUEST_MAX_BYTES)
        return false;
    memcpy(numbers, data, sizeof numbers);
    for (size_t i = sizeof(struct gmsfs_fds_request); i < size; i++) {
        if (data[i])
            return false;
    }
    if (numbers[0] != GMSFS_ABI_VERSION || numbers[3] != 0)
        return false;
    if (numbers[1] == 1) /* REDEEM: its batch */
        return numbers[2] >= 1 && numbers[2] <= 253;
    if (numbers[1] == 3) /* DRAIN: revoke or not */
        return numbers[2] <= 1;
    return numbers[1] >= 2 && numbers[1] <= 10;
}

/* Zeros may follow, up to the maximum, and nothing else may. */
static void try_longer(const struct gmsfs_fds_request *request)
{
    uint8_t longer[FDS_REQUEST_MAX_BYTES + 1] = {0};
    struct gmsfs_fds_request again;

    memcpy(longer, request, sizeof *request);
    for (size_t size = sizeof *request; size < sizeof longer; size++) {
        must(fds_request_decode(longer, size, &again) == 0);
        must(memcmp(&again, request, sizeof again) == 0);
        if (size == sizeof *request)
            continue;
        longer[size - 1] = 1;
        must(fds_request_decode(longer, size, &again) == -EINVAL);
        longer[size - 1] = 0;
    }
    must(fds_request_decode(longer, sizeof longer, &again) == -EINVAL);
    for (size_t size = 0; size < sizeof *request; size++)
        must(fds_request_decode(longer, size, &again) == -EINVAL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gmsfs_fds_request request;
    int error = fds_request_decode(data, size, &request);

    must(error == (is_request(data, size) ? 0 : -EINVAL));
    if (error == 0) {
        must(memcmp(&request, data, sizeof request) == 0);
        try_longer(&request);
    }
    return 0;
}
