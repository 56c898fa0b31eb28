/* SPDX-License-Identifier: Apache-2.0 */
#include "service/rights.h"

#include "service/service_internal.h"

#include <errno.h>

#define TOP_MODE 0755u

unsigned service_get_directions(enum core_kind kind)
{
    switch (kind) {
    case CORE_KIND_PSEUDO:
    case CORE_KIND_REGION:
        return SERVICE_READ;
    case CORE_KIND_COMMIT:
    case CORE_KIND_ABORT:
    case CORE_KIND_SEAL:
        return SERVICE_WRITE;
    case CORE_KIND_LOCK:
    case CORE_KIND_AUTO:
    case CORE_KIND_DATA:
    case CORE_KIND_CTL:
    case CORE_KIND_POOLS:
    case CORE_KIND_ALLOCATION:
    case CORE_KIND_ENTRY:
    case CORE_KIND_RESIDENCY:
        return SERVICE_READ | SERVICE_WRITE;
    case CORE_KIND_NONE:
        break;
    }
    return 0;
}

bool service_is_admin(const struct service *s, uint32_t uid)
{
    return core_get_rank(s->core, NULL, uid) == SHARE_ADMIN;
}

bool service_is_owner(const struct service *s, uint64_t store, uint32_t uid)
{
    return core_get_rank(s->core, core_find_store(s->core, store), uid) != SHARE_USER;
}

int service_is_in_group(const struct service_caller *caller, uint32_t gid)
{
    if (caller->gid == gid)
        return 1;
    return caller->has_group ? caller->has_group(caller, gid) : 0;
}

/* Returns the bits of the mode that count for this caller. */
static unsigned get_bits(const struct service_caller *caller, uint32_t uid, uint32_t gid,
                         uint32_t mode, unsigned wanted)
{
    unsigned group = mode >> 3 & 7u, others = mode & 7u;

    if (caller->uid == uid)
        return mode >> 6 & 7u;
    /* Further groups are looked up only if they matter. */
    if ((group & wanted) == (others & wanted))
        return others;
    int member = service_is_in_group(caller, gid);
    if (member < 0) /* the kernel knows its groups, and has allowed it as one or the other */
        return group | others;
    return member ? group : others;
}

int service_check_right(const struct service *s, uint64_t store,
                        const struct service_caller *caller, unsigned rights)
{
    const struct core_store *found = core_find_store(s->core, store);

    if (store != 0 && !found)
        return -ENOENT;
    if (caller->uid == 0)
        return 0;
    unsigned bits = found ? get_bits(caller, found->uid, found->gid, found->mode, rights)
                          : get_bits(caller, s->options.admin_uid, UINT32_MAX, TOP_MODE, rights);
    return rights & ~bits ? -EACCES : 0;
}
