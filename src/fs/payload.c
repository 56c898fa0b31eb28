/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/payload.h"

#include "base/test_hooks.h"

#include <errno.h>
#include <string.h>

int payload_decode(const void *in, size_t in_bytes, void *out, size_t known)
{
    const uint8_t *bytes = in;
    for (size_t i = known; i < in_bytes; i++) {
        if (bytes[i])
            return -E2BIG;
    }
    size_t given = in_bytes < known ? in_bytes : known;
    if (given)
        memcpy(out, bytes, given);
    if (given < known)
        memset((uint8_t *)out + given, 0, known - given);
    return 0;
}

unsigned payload_get_number(unsigned command)
{
    return _IOC_TYPE(command) == _IOC_TYPE(GMSFS_IOC_INFO) ? _IOC_NR(command) : 0;
}

int payload_check_acquire(const struct gmsfs_ioc_acquire *acquire, bool readable, bool writable)
{
    const uint32_t writes = GMSFS_ACQUIRE_FRESH | GMSFS_ACQUIRE_REPLACE;

    if (acquire->flags & ~(GMSFS_ACQUIRE_EXPORT | GMSFS_ACQUIRE_AGAIN | GMSFS_ACQUIRE_ANY |
                           GMSFS_ACQUIRE_GROUP | GMSFS_ACQUIRE_BY_PROCESS | writes))
        return -EINVAL;
    if (acquire->mode == GMSFS_MODE_RO && (acquire->reserve_bytes || acquire->flags & writes))
        return -EINVAL;
    if (acquire->flags & GMSFS_ACQUIRE_ANY && acquire->mode != GMSFS_MODE_RO &&
        acquire->mode != GMSFS_MODE_RW_OR_RO)
        return -EINVAL;
    if (acquire->flags & GMSFS_ACQUIRE_BY_PROCESS && acquire->mode != GMSFS_MODE_RO)
        return -EINVAL;
    switch (acquire->mode) {
    case GMSFS_MODE_RO:
        return readable ? 0 : -EBADF;
    case GMSFS_MODE_RW:
    case GMSFS_MODE_RW_OR_RO:
    case GMSFS_MODE_RW_DATA_OR_RW:
        return writable ? 0 : -EBADF;
    default:
        return -EINVAL;
    }
}

static bool knows_alloc_flags(uint32_t flags)
{
    uint32_t known = GMSFS_ALLOC_NOWAIT | (hook_is_set("GMSFS_NO_EXACT") ? 0 : GMSFS_ALLOC_EXACT);

    return (flags & ~known) == 0;
}

int payload_check_alloc(const struct gmsfs_ioc_alloc *alloc)
{
    if (alloc->size_bytes == 0 || alloc->count == 0 || !knows_alloc_flags(alloc->flags))
        return -EINVAL;
    if (alloc->mem_class || alloc->handle_types)
        return -EOPNOTSUPP;
    if (!memchr(alloc->tag, '\0', sizeof alloc->tag) ||
        !memchr(alloc->name, '\0', sizeof alloc->name))
        return -EINVAL;
    return 0;
}

int payload_check_alloc_each(const struct gmsfs_ioc_alloc_each *alloc)
{
    if (alloc->count == 0 || alloc->count > GMSFS_ALLOC_EACH_MAX ||
        !knows_alloc_flags(alloc->flags))
        return -EINVAL;
    for (uint32_t i = 0; i < alloc->count; i++) {
        const struct gmsfs_alloc_item *item = &alloc->items[i];
        if (item->size_bytes == 0 || !memchr(item->tag, '\0', sizeof item->tag) ||
            !memchr(item->name, '\0', sizeof item->name))
            return -EINVAL;
    }
    return 0;
}

int payload_check_commit(const struct gmsfs_ioc_commit *commit)
{
    uint32_t known = GMSFS_COMMIT_STAY | GMSFS_COMMIT_GROUP | GMSFS_COMMIT_CHECK |
                     GMSFS_COMMIT_SEAL | GMSFS_COMMIT_IMMUTABLE;
    bool both = commit->flags & GMSFS_COMMIT_SEAL &&
                commit->flags & (GMSFS_COMMIT_STAY | GMSFS_COMMIT_IMMUTABLE);
    return commit->flags & ~known || both ? -EINVAL : 0;
}

int payload_check_metadata(const struct gmsfs_ioc_metadata *metadata, bool has_value)
{
    if (metadata->key_bytes == 0 || metadata->key_bytes > sizeof metadata->data)
        return -EINVAL;
    if (metadata->key_bytes > GMSFS_KEY_MAX)
        return -ENAMETOOLONG;
    if (has_value && metadata->value_bytes > sizeof metadata->data - metadata->key_bytes)
        return -EINVAL;
    return 0;
}

int payload_check_region(const struct gmsfs_ioc_region *region)
{
    return region->flags & ~GMSFS_REGION_HOLD || region->pad ? -EINVAL : 0;
}

int payload_check_list(const struct gmsfs_ioc_list *list)
{
    return list->flags & ~GMSFS_LIST_BY_SLOT ? -EINVAL : 0;
}
