/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/fds_request.h"

#include <errno.h>
#include <string.h>

int fds_request_decode(const void *bytes, size_t size, struct gmsfs_fds_request *request)
{
    const uint8_t *at = bytes;
    if (size < sizeof *request || size > FDS_REQUEST_MAX_BYTES)
        return -EINVAL;
    for (size_t i = sizeof *request; i < size; i++) {
        if (at[i])
            return -EINVAL;
    }
    memcpy(request, bytes, sizeof *request);
    if (request->version != GMSFS_ABI_VERSION || request->pad)
        return -EINVAL;
    if (request->op == GMSFS_FDS_REDEEM)
        return request->batch >= 1 && request->batch <= GMSFS_BATCH_MAX ? 0 : -EINVAL;
    if (request->op == GMSFS_FDS_DRAIN)
        return request->batch <= 1 ? 0 : -EINVAL;
    return request->op >= GMSFS_FDS_REDEEM && request->op <= GMSFS_FDS_FENCE_STATUS ? 0 : -EINVAL;
}
