/* SPDX-License-Identifier: Apache-2.0 */
/*
 * room_share - each user's part of the daemon's own memory
 *
 * Room is never given back by requests, for one look at the machine stands for many of them
 * (vmm/room.h). So a user's part is counted from the state and the bounds when memory is short
 * enough for that to matter, and the rule is that of every bound (base/share.h): a user has at most
 * half of what other users have not taken.
 */
#include "service/bounds.h"
#include "service/cost.h"

#include <errno.h>

static uint64_t count_bounds(const struct service *s, uint32_t uid)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < SERVICE_BOUND_COUNT; i++)
        if (service_bounds[i].room_bytes > 0)
            bytes += service_bounds[i].room_bytes * share_get_taken(&s->bounds.shares[i], uid);
    return bytes;
}

static uint64_t count_all_bounds(const struct service *s)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < SERVICE_BOUND_COUNT; i++)
        bytes += service_bounds[i].room_bytes * s->bounds.shares[i].taken;
    return bytes;
}

/* Bytes in an encoded state, beside texts, keys and values. */
#define ALLOCATION_BYTES 53u
#define ENTRY_BYTES      32u

static uint64_t count_layout(const struct layout *layout)
{
    if (!layout)
        return 0;
    return ROOM_COPIES * (layout_entry_bytes(layout) + layout_text_bytes(layout) +
                          ENTRY_BYTES * layout_count_entries(layout) +
                          ALLOCATION_BYTES * layout_count_allocations(layout));
}

/* Counts a store for its owner, and the bytes that a writer has added to it for the writer. */
static uint64_t count_stores(const struct core *core, uint32_t uid)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < core->stores.count; i++) {
        const struct core_store *store = core->stores.items[i];
        const struct core_session *writer =
            store->working ? core_get_writer(core, store->id) : NULL;
        uint64_t fixed =
            store->uid == uid || (writer && writer->uid == uid) ? count_layout(store->fixed) : 0;
        uint64_t working = writer && writer->uid == uid ? count_layout(store->working) : 0;
        if (store->uid == uid)
            bytes += ROOM_STORE_BYTES + fixed;
        bytes += working > fixed ? working - fixed : 0;
    }
    return bytes;
}

static uint64_t count_user(const struct service *s, uint32_t uid)
{
    const struct core *core = s->core;
    return count_bounds(s, uid) + count_stores(core, uid) +
           ROOM_OPEN_BYTES * (share_get_taken(&core->shares[CORE_BOUND_FILES], uid) +
                              share_get_taken(&core->shares[CORE_BOUND_TICKETS], uid) +
                              share_get_taken(&core->shares[CORE_BOUND_REGIONS], uid)) +
           share_get_taken(&core->shares[CORE_BOUND_REGION_BYTES], uid) +
           share_get_taken(&core->shares[CORE_BOUND_GATHERED], uid);
}

/* Returns at least the bytes of all users: an encoded state is set aside three times. */
static uint64_t count_all(const struct service *s)
{
    const struct core *core = s->core;
    return count_all_bounds(s) + s->host.room->seen.aside_bytes + s->host.room->spent_bytes +
           ROOM_STORE_BYTES * core->stores.count +
           ROOM_OPEN_BYTES *
               (core->shares[CORE_BOUND_FILES].taken + core->shares[CORE_BOUND_TICKETS].taken +
                core->shares[CORE_BOUND_REGIONS].taken) +
           core->shares[CORE_BOUND_GATHERED].taken;
}

int service_check_room_share(const struct service *s, uint32_t uid, uint64_t bytes)
{
    uint64_t left_bytes = room_get_left(s->host.room);
    if (count_all(s) + bytes <= left_bytes)
        return 0;
    return count_user(s, uid) + bytes <= left_bytes ? 0 : -EDQUOT;
}
