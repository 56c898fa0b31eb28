/* SPDX-License-Identifier: Apache-2.0 */
#include "core/core_fields.h"

#include "core/core_internal.h"

#include <stddef.h>

/* A member of OF that has `bytes` bytes; any other size is a division by 0 at compile time. */
/* clang-format off */
#define MEMBER(name, bytes) \
    (uint32_t)offsetof(OF, name), (uint32_t)((bytes) / (sizeof(((OF *)0)->name) == (bytes)))
#define WITHIN(name, least, most) {CORE_FIELD_U64, MEMBER(name, 8), least, most}
#define CHOICE(name, least, most) {CORE_FIELD_CHOICE, MEMBER(name, 4), least, most}
#define U64(name)     WITHIN(name, 0, UINT64_MAX)
#define U32(name)     {CORE_FIELD_U32, MEMBER(name, 4), 0, 0}
#define BOOL(name)    {CORE_FIELD_BOOL, MEMBER(name, 1), 0, 0}
#define TEXT(name)    {CORE_FIELD_TEXT, MEMBER(name, sizeof(((OF *)0)->name)), 0, 0}
#define RAW(name)     {CORE_FIELD_RAW, MEMBER(name, sizeof(((OF *)0)->name)), 0, 0}
/* NOLINTBEGIN(bugprone-macro-parentheses): the arguments are names of members */
#define PROCESS(name) U64(name.pid), U64(name.start)
#define DRAINER(name) RAW(name.token), PROCESS(name.process), U32(name.uid)
/* NOLINTEND(bugprone-macro-parentheses) */
#define END           {CORE_FIELD_END, 0, 0, 0, 0}

/* core_new takes each field that is WITHIN 1 and a most for a limit, and bounds it. */
#define OF struct core_options
const struct core_field core_options_fields[] = {
    U64(patience_ms), U64(granularity_bytes), WITHIN(limits.files, 1, CORE_MAX_FILES),
    WITHIN(limits.tickets, 1, CORE_MAX_TICKETS),
    WITHIN(limits.gathered_bytes, 1, CORE_MAX_GATHERED_BYTES),
    WITHIN(limits.sessions, 1, LOCK_MAX_SESSIONS), WITHIN(limits.waiters, 1, LOCK_MAX_WAITERS),
    WITHIN(limits.events, 1, CORE_MAX_EVENTS), WITHIN(limits.regions, 1, CORE_MAX_REGIONS),
    WITHIN(limits.region_bytes, 1, CORE_MAX_REGION_BYTES), U32(admin_uid), END
};

#undef OF
#define OF struct core
const struct core_field core_head_fields[] = {
    WITHIN(next_id, 1, CORE_MOST_IDS), WITHIN(next_session, 1, CORE_MOST_IDS),
    WITHIN(next_waiter, 1, CORE_MOST_IDS), WITHIN(next_ticket, 1, CORE_MOST_IDS),
    WITHIN(next_event, 1, CORE_MOST_IDS), U64(event_bytes), BOOL(draining), DRAINER(drainer),
    BOOL(lost), U64(resumes), BOOL(is_resuming), TEXT(health_reason), BOOL(fence.is_up),
    TEXT(fence.names[0]), TEXT(fence.names[1]), RAW(fence.token), U32(fence.resolved_by),
    WITHIN(pools.next_id, CORE_DEFAULT_POOL + 1, CORE_MOST_IDS), END
};

#undef OF
#define OF struct core_pool
const struct core_field core_pool_fields[] = {
    TEXT(name), CHOICE(class, 0, POOL_CLASS_COUNT - 1), U32(sm_percent), U64(evictions),
    WITHIN(min_bytes, 0, INT64_MAX), U64(max_bytes), U64(slots), END
};

#undef OF
#define OF struct core_store
const struct core_field core_store_fields[] = {
    RAW(uuid), TEXT(name), U32(uid), U32(gid), U32(mode), U64(created_ms), U64(changed_ms),
    U64(generation), U64(version), END
};

const struct core_field core_commit_fields[] = {
    RAW(group), TEXT(last_error), U64(grants_rw), U64(grants_ro), U64(commits), U64(aborts),
    U64(exports), BOOL(unseen_writer), END
};

#undef OF
#define OF struct core_drain
const struct core_field core_drain_fields[] = {
    U64(id), U64(since_ms), U64(deadline_ms), DRAINER(by), END
};

#undef OF
#define OF struct core_use
const struct core_field core_use_fields[] = {
    U64(pool), BOOL(pinned), U64(last_used_ms), END
};

#undef OF
#define OF struct core_places
const struct core_field core_places_fields[] = {
    U64(move.id), CHOICE(move.to, CORE_PLACE_DEVICE, CORE_PLACE_DISK), BOOL(move.spare),
    U64(move.since_ms), U64(move.evictor), U64(moves), U64(moved_ms), U64(promote_ms),
    U64(promoted_ms), U64(version), END
};

#undef OF
#define OF struct core_session
const struct core_field core_session_fields[] = {
    U64(store), CHOICE(mode, 0, UINT8_MAX), BOOL(exclusive), BOOL(implicit), BOOL(touched),
    BOOL(owned), BOOL(ending), BOOL(holds), BOOL(any), U64(opener), RAW(token), PROCESS(owner),
    U32(uid), TEXT(comm), U64(since_ms), U64(reserved_bytes), U64(due_bytes), U64(making_bytes),
    U64(drawn_bytes), END
};

#undef OF
#define OF struct core_file
const struct core_field core_file_fields[] = {
    CHOICE(kind, CORE_KIND_PSEUDO, CORE_KIND_COUNT - 1), U64(store), U64(serial), U64(session),
    U32(flags), U32(uid), PROCESS(opener), U64(gathered_bytes), BOOL(holds), END
};

#undef OF
#define OF struct region
const struct core_field core_region_fields[] = {
    U32(uid), CHOICE(kind, REGION_SYSTEM, REGION_CUDA), U64(offset), U64(byte_size),
    U64(device_id), RAW(raw_handle), U64(memory), BOOL(writable), U64(store), U64(serial),
    U64(file), U64(registered_ms), BOOL(draining), END
};

#undef OF
#define OF struct core_waiter
const struct core_field core_waiter_fields[] = {
    U64(store), U64(file), CHOICE(kind, 0, UINT8_MAX), U64(serial), U32(flags),
    CHOICE(wish, 0, UINT8_MAX), PROCESS(owner), U32(uid), TEXT(comm), RAW(token),
    U64(since_wall_ms), U64(reserve_bytes), END
};

#undef OF
#define OF struct lock_waiter
const struct core_field core_queued_fields[] = {
    U64(since_ms), U64(hold_since_ms), U64(deadline_ms), U64(kept_until_ms), END
};

#undef OF
#define OF struct core_ticket
const struct core_field core_ticket_fields[] = {
    RAW(secret), U64(session), U32(uid), U32(holder), U64(first), U64(count), U64(serial),
    U64(region), BOOL(writable), U64(expires_ms), END
};

#undef OF
#define OF struct core_event
const struct core_field core_event_fields[] = {
    U64(at), CHOICE(type, 0, CORE_EVENT_TYPE_COUNT - 1), U64(wall_ms), TEXT(store), U64(session),
    U64(waiter), PROCESS(process), U32(uid), TEXT(comm), U64(allocations), U64(bytes),
    U64(generation), PROCESS(by), U32(by_uid), TEXT(bound), BOOL(is_share), TEXT(pool),
    TEXT(for_store), U32(resolved_by), U64(deadline_ms), U32(tier), U32(error), U64(took_ms),
    TEXT(region), U64(resumes), END
};
