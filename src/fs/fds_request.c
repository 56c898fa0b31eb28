/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/fds_request.h"

#include <errno.h>
#include <string.h>

static bool is_zero(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < size; i++) {
        if (at[i])
            return false;
    }
    return true;
}

bool fds_request_is_region(const struct gmsfs_fds_request *request)
{
    return request->op >= GMSFS_FDS_REGION_REGISTER && request->op <= GMSFS_FDS_REGION_LIST;
}

/* Checks the length of the request; a longer message has only zeros behind it. */
static int check_size(const struct gmsfs_fds_request *request, const void *bytes, size_t size)
{
    bool of_region = fds_request_is_region(request);
    size_t own = of_region ? sizeof(struct gmsfs_fds_region_request) : sizeof *request;
    size_t most = of_region ? FDS_REGION_MAX_BYTES : FDS_REQUEST_MAX_BYTES;
    if (size < own || size > most)
        return -EINVAL;
    return is_zero((const uint8_t *)bytes + own, size - own) ? 0 : -EINVAL;
}

int fds_request_decode(const void *bytes, size_t size, struct gmsfs_fds_request *request)
{
    if (size < sizeof *request || size > FDS_REGION_MAX_BYTES)
        return -EINVAL;
    memcpy(request, bytes, sizeof *request);
    if (check_size(request, bytes, size) || request->version != GMSFS_ABI_VERSION || request->pad)
        return -EINVAL;
    if (request->op == GMSFS_FDS_REDEEM)
        return request->batch >= 1 && request->batch <= GMSFS_BATCH_MAX ? 0 : -EINVAL;
    if (request->op == GMSFS_FDS_DRAIN || request->op == GMSFS_FDS_STORE_HOLDERS)
        return request->batch <= 1 ? 0 : -EINVAL;
    if (request->op == GMSFS_FDS_LOG)
        return request->batch <= 4 ? 0 : -EINVAL;
    return request->op >= GMSFS_FDS_REDEEM && request->op <= GMSFS_FDS_GOVERN ? 0 : -EINVAL;
}

/* Returns true if no field is set that only a registration uses. */
static bool describes_nothing(const struct gmsfs_fds_region_request *request)
{
    return request->gid == 0 && request->group_count == 0 && request->key_bytes == 0 &&
           request->handle_bytes == 0 && request->offset == 0 && request->byte_size == 0 &&
           request->device_id == 0;
}

static bool is_consistent(const struct gmsfs_fds_region_request *request)
{
    if (request->name_bytes > GMSFS_REGION_NAME_MAX || request->key_bytes > GMSFS_REGION_KEY_MAX ||
        request->handle_bytes > GMSFS_REGION_HANDLE_BYTES ||
        request->group_count > GMSFS_REGION_GROUPS_MAX || request->kind > GMSFS_REGION_CUDA)
        return false;
    return is_zero(request->name + request->name_bytes,
                   sizeof request->name - request->name_bytes) &&
           is_zero(request->key + request->key_bytes, sizeof request->key - request->key_bytes) &&
           is_zero(request->raw_handle + request->handle_bytes,
                   sizeof request->raw_handle - request->handle_bytes) &&
           is_zero(request->groups + request->group_count,
                   sizeof request->groups - request->group_count * sizeof request->groups[0]);
}

int fds_region_decode(const void *bytes, size_t size, struct gmsfs_fds_region_request *request)
{
    if (size < sizeof *request)
        return -EINVAL;
    memcpy(request, bytes, sizeof *request);
    uint32_t flags = request->request.op == GMSFS_FDS_REGION_LIST ? GMSFS_REGION_LIST_ONE : 0;
    if (!is_consistent(request) || request->flags & ~flags || request->request.batch ||
        !is_zero(request->request.ticket, sizeof request->request.ticket))
        return -EINVAL;
    if (request->request.op == GMSFS_FDS_REGION_REGISTER)
        return 0;
    if (request->request.op == GMSFS_FDS_REGION_UNREGISTER_ALL && request->name_bytes > 0)
        return -EINVAL;
    return describes_nothing(request) ? 0 : -EINVAL;
}
