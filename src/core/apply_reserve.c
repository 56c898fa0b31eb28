/* SPDX-License-Identifier: Apache-2.0 */
/* Memory set aside for writers: who may have it, and what becomes of it. See core.h, RESERVATIONS.
 */
#include "core/core_internal.h"

#include <errno.h>

bool apply_has_memory(const struct apply *apply, const struct core_store *store, uint64_t bytes)
{
    bool is_there = store->fixed && store->places.place == CORE_PLACE_DEVICE;
    uint64_t replaced_bytes = is_there ? layout_total_bytes(store->fixed) : 0;

    return bytes <= apply->free_bytes || bytes - apply->free_bytes <= replaced_bytes;
}

/* What this waiter needs besides the lock; `auto` that becomes a reader needs nothing. */
static uint64_t needed_bytes(const struct core_store *store, const struct core_waiter *waiter)
{
    return lock_get_wish_mode(&store->lock, waiter->wish) == LOCK_MODE_RW ? waiter->reserve_bytes
                                                                          : 0;
}

/* It would adopt what another process may still write. */
static bool waits_for_exits(const struct core_store *store, const struct core_waiter *waiter)
{
    return lock_get_wish_mode(&store->lock, waiter->wish) == LOCK_MODE_RW_DATA &&
           !core_is_left_to(store, waiter->owner);
}

static bool lacks_place(const struct core_store *store, const struct core_waiter *waiter)
{
    return apply_lacks_place(store, lock_get_wish_mode(&store->lock, waiter->wish), waiter->kind,
                             waiter->flags);
}

enum lock_sleep apply_get_sleep(const struct core *core, const struct core_store *store,
                                const struct core_waiter *waiter)
{
    enum share_rank rank = core_get_rank(core, store, waiter->uid);

    if (share_check(&store->sessions, waiter->uid, rank, 1) < 0 || lacks_place(store, waiter))
        return LOCK_ASLEEP;
    return waits_for_exits(store, waiter) ? LOCK_ASLEEP_IN_TURN : LOCK_AWAKE;
}

bool apply_rouse(struct apply *apply)
{
    const struct core *core = apply->core;
    size_t left = core->reserving;
    bool spoken_for = false;

    /* Ids rise as they came, over all stores. */
    for (size_t i = 0; left > 0 && i < core->waiters.count; i++) {
        const struct core_waiter *waiter = core->waiters.items[i];
        struct core_store *store = core_store(core, waiter->store);
        uint64_t bytes;
        bool lacks;

        if (waiter->reserve_bytes == 0)
            continue;
        left--;
        if (!core_waiter_counts(waiter))
            continue;
        bytes = needed_bytes(store, waiter);
        lacks = bytes > 0 && (spoken_for || !apply_has_memory(apply, store, bytes));
        lock_set_sleep(&store->lock, waiter->id,
                       lacks ? LOCK_ASLEEP : apply_get_sleep(core, store, waiter));
        /* Memory alone would not help who waits for the store's place besides. */
        spoken_for |=
            lacks && lock_is_free_for(&store->lock, waiter->id) && !lacks_place(store, waiter);
    }
    return spoken_for;
}

static void set_reserved(struct core *core, struct core_session *session, uint64_t reserved_bytes,
                         uint64_t due_bytes)
{
    core->reserved_bytes -= session->reserved_bytes;
    core->reserved_bytes += reserved_bytes;
    session->reserved_bytes = reserved_bytes;
    session->due_bytes = due_bytes;
}

void apply_set_aside(struct apply *apply, struct core_session *session, uint64_t bytes)
{
    uint64_t now_bytes = bytes < apply->free_bytes ? bytes : apply->free_bytes;

    set_reserved(apply->core, session, now_bytes, bytes - now_bytes);
    apply->free_bytes -= now_bytes;
}

void apply_drop_reservation(struct core *core, struct core_session *session)
{
    set_reserved(core, session, 0, 0);
}

/* More for a session that has its lock, by the rules of one that asks for both. */
static int reserve_as_acquire(struct apply *apply, struct core_session *session)
{
    uint64_t more_bytes = apply->record->size_bytes - session->reserved_bytes, now_bytes;
    bool spoken_for = apply_rouse(apply);

    if (!apply_has_memory(apply, core_store(apply->core, session->store), more_bytes))
        return -ENOMEM;
    if (spoken_for)
        return -EAGAIN;
    now_bytes = more_bytes < apply->free_bytes ? more_bytes : apply->free_bytes;
    set_reserved(apply->core, session, session->reserved_bytes + now_bytes, more_bytes - now_bytes);
    apply->free_bytes -= now_bytes;
    return 0;
}

int apply_reserve(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_session *session = core_session(apply->core, record->session);

    if (!session)
        return -ESTALE;
    if (session->mode != LOCK_MODE_RW)
        return -ENOLCK;
    if (record->flags & ~(uint32_t)CORE_RESERVE_AS_ACQUIRE)
        return -EINVAL;
    if (record->flags && record->size_bytes > session->reserved_bytes)
        return reserve_as_acquire(apply, session);
    if (record->size_bytes > session->reserved_bytes &&
        record->size_bytes - session->reserved_bytes > apply->free_bytes)
        return -ENOMEM;
    if (record->size_bytes > session->reserved_bytes)
        apply->free_bytes -= record->size_bytes - session->reserved_bytes;
    set_reserved(apply->core, session, record->size_bytes, record->flags ? 0 : record->count);
    return 0;
}
