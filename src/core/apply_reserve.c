/* SPDX-License-Identifier: Apache-2.0 */
/* Reservations of memory for writers. See core.h, RESERVATIONS. */
#include "core/core_internal.h"

#include <errno.h>

/* Returns the committed bytes on the device that a writer of the store gives back. */
static uint64_t count_replaced(const struct core_store *store)
{
    bool is_there = store->fixed && store->places.place == CORE_PLACE_DEVICE;

    return is_there ? layout_total_bytes(store->fixed) : 0;
}

bool apply_has_memory(const struct apply *apply, const struct core_store *store, uint64_t bytes)
{
    uint64_t replaced_bytes = count_replaced(store);
    uint64_t room_bytes = core_get_room(apply->core, store, apply->free_bytes);

    return bytes <= room_bytes || bytes - room_bytes <= replaced_bytes;
}

int apply_why_no_memory(const struct apply *apply, const struct core_store *store, uint64_t bytes)
{
    const struct core_pool *pool = core_find_pool(apply->core, store);
    uint64_t replaced_bytes = count_replaced(store);
    uint64_t more_bytes = bytes > replaced_bytes ? bytes - replaced_bytes : 0;
    int error = core_check_room(apply->core, store, more_bytes, apply->free_bytes);

    if (error == -EDQUOT)
        apply->out->pool = pool->id;
    return error == 0 ? -ENOMEM : error;
}

/* Returns the bytes that this waiter needs with the lock; 0 for `auto` that becomes a reader. */
static uint64_t needed_bytes(const struct core_store *store, const struct core_waiter *waiter)
{
    return lock_get_wish_mode(&store->lock, waiter->wish) == LOCK_MODE_RW ? waiter->reserve_bytes
                                                                          : 0;
}

/* True if the waiter would take over memory that another process can still write. */
static bool waits_for_exits(const struct core_store *store, const struct core_waiter *waiter)
{
    return lock_get_wish_mode(&store->lock, waiter->wish) == LOCK_MODE_RW_DATA &&
           !core_is_left_to(store, waiter->owner);
}

static bool lacks_place(const struct core_store *store, const struct core_waiter *waiter)
{
    return core_lacks_place(store, lock_get_wish_mode(&store->lock, waiter->wish), waiter->kind,
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

static void forget_claims(struct apply *apply)
{
    const struct idvec *pools = &apply->core->pools.items;

    apply->is_claimed = false;
    for (size_t i = 0; i < pools->count; i++)
        ((struct core_pool *)pools->items[i])->is_claimed = false;
}

/* Claims memory for this waiter while it is patient. */
static void claim(struct apply *apply, const struct core_store *store,
                  const struct core_waiter *waiter, uint64_t bytes)
{
    struct core_pool *pool = core_pool(apply->core, store->use.pool);
    uint64_t replaced_bytes = count_replaced(store);
    uint64_t room_bytes = core_get_pool_room(pool, store);

    if (!core_is_patient(apply->core, waiter, apply->record->now_ms))
        return;
    if (bytes > room_bytes && bytes - room_bytes > replaced_bytes)
        pool->is_claimed = true;
    else
        apply->is_claimed = true;
}

bool apply_is_claimed(const struct apply *apply, const struct core_store *store, uint64_t bytes)
{
    const struct core_pool *pool = core_find_pool(apply->core, store);

    return pool->is_claimed || (apply->is_claimed && bytes > core_get_unfilled(pool));
}

/* True if the waiter needs a promotion of its store and no move has begun. */
static bool needs_promotion(const struct core *core, const struct core_store *store,
                            const struct core_waiter *waiter)
{
    return store->places.place != CORE_PLACE_DEVICE && store->places.move.id == 0 &&
           lacks_place(store, waiter) && !store->lock.closed && !core_get_writer(core, store->id) &&
           !core_is_fenced(core, store->name);
}

/* A promotion that the pool's budget can never allow claims nothing. */
static void claim_promotion(struct apply *apply, const struct core_store *store,
                            const struct core_waiter *waiter)
{
    uint64_t bytes = layout_total_bytes(store->fixed);

    if (bytes <= core_find_pool(apply->core, store)->max_bytes)
        claim(apply, store, waiter, bytes);
}

/* True if the waiter lacks memory for its reservation; claims that if it lacks nothing else. */
static bool lacks_memory(struct apply *apply, const struct core_store *store,
                         const struct core_waiter *waiter)
{
    uint64_t bytes = needed_bytes(store, waiter);
    bool lacks = bytes > 0 &&
                 (apply_is_claimed(apply, store, bytes) || !apply_has_memory(apply, store, bytes));

    /* Memory alone does not help a waiter that also needs a promotion. */
    if (lacks && lock_is_free_for(&store->lock, waiter->id) && !lacks_place(store, waiter))
        claim(apply, store, waiter, bytes);
    return lacks;
}

void apply_find_claims(struct apply *apply, const struct core_store *until)
{
    const struct core *core = apply->core;

    forget_claims(apply);
    for (size_t i = 0; i < core->waiters.count; i++) {
        const struct core_waiter *waiter = core->waiters.items[i];
        const struct core_store *store = core_store(core, waiter->store);

        if (!core_waiter_counts(waiter))
            continue;
        if (needs_promotion(core, store, waiter)) {
            if (store == until)
                return;
            claim_promotion(apply, store, waiter);
        }
        if (waiter->reserve_bytes > 0)
            lacks_memory(apply, store, waiter);
    }
}

void apply_update_sleep(struct apply *apply)
{
    const struct core *core = apply->core;
    size_t left = core->reserving;

    if (left > 0)
        forget_claims(apply);

    /* Ids rise in order of arrival over all stores. */
    for (size_t i = 0; left > 0 && i < core->waiters.count; i++) {
        const struct core_waiter *waiter = core->waiters.items[i];
        struct core_store *store = core_store(core, waiter->store);

        left -= waiter->reserve_bytes > 0;
        if (!core_waiter_counts(waiter))
            continue;
        if (needs_promotion(core, store, waiter))
            claim_promotion(apply, store, waiter);
        if (waiter->reserve_bytes > 0)
            lock_set_sleep(&store->lock, waiter->id,
                           lacks_memory(apply, store, waiter)
                               ? LOCK_ASLEEP
                               : apply_get_sleep(core, store, waiter));
    }
}

static void set_making(struct core *core, struct core_session *session, uint64_t making_bytes,
                       uint64_t drawn_bytes)
{
    struct core_store *store = core_store(core, session->store);

    core_use_less(core, store, session->making_bytes);
    session->making_bytes = making_bytes;
    session->drawn_bytes = drawn_bytes;
    core_use_more(core, store, making_bytes);
}

static void set_reserved(struct core *core, struct core_session *session, uint64_t reserved_bytes,
                         uint64_t due_bytes)
{
    struct core_store *store = core_store(core, session->store);

    core_use_less(core, store, session->reserved_bytes);
    core_use_more(core, store, reserved_bytes);
    core->reserved_bytes -= session->reserved_bytes;
    core->reserved_bytes += reserved_bytes;
    session->reserved_bytes = reserved_bytes;
    session->due_bytes = due_bytes;
}

int apply_check_made(const struct apply *apply, const struct core_session *session)
{
    const struct record *record = apply->record;

    return record->making_bytes > session->making_bytes ||
                   record->drawn_bytes > session->drawn_bytes ||
                   session->drawn_bytes - record->drawn_bytes >
                       session->making_bytes - record->making_bytes
               ? -EINVAL
               : 0;
}

void apply_made(struct apply *apply, struct core_session *session)
{
    set_making(apply->core, session, session->making_bytes - apply->record->making_bytes,
               session->drawn_bytes - apply->record->drawn_bytes);
}

void apply_reserve_at_grant(struct apply *apply, struct core_session *session, uint64_t bytes)
{
    const struct core_store *store = core_store(apply->core, session->store);
    uint64_t room_bytes = core_get_room(apply->core, store, apply->free_bytes);
    uint64_t now_bytes = number_smaller(bytes, room_bytes);

    set_reserved(apply->core, session, now_bytes, bytes - now_bytes);
    apply->free_bytes -= now_bytes;
}

void apply_drop_reservation(struct core *core, struct core_session *session)
{
    set_reserved(core, session, 0, 0);
    set_making(core, session, 0, 0);
}

/* The pool allowed these bytes before. */
void apply_undo_making(struct apply *apply, struct core_session *session)
{
    uint64_t room_bytes =
        number_smaller(apply->free_bytes, UINT64_MAX - apply->core->reserved_bytes);
    uint64_t now_bytes = number_smaller(session->drawn_bytes, room_bytes);
    uint64_t later_bytes =
        number_smaller(session->drawn_bytes - now_bytes, UINT64_MAX - session->due_bytes);

    set_making(apply->core, session, 0, 0);
    set_reserved(apply->core, session, session->reserved_bytes + now_bytes,
                 session->due_bytes + later_bytes);
    apply->free_bytes -= now_bytes;
}

/* Reserves more for a session by the rules of a request for lock and memory. */
static int reserve_as_acquire(struct apply *apply, struct core_session *session)
{
    const struct core_store *store = core_store(apply->core, session->store);
    uint64_t more_bytes = apply->record->reserved_bytes - session->reserved_bytes, now_bytes;

    apply_find_claims(apply, NULL);
    if (!apply_has_memory(apply, store, more_bytes))
        return apply_why_no_memory(apply, store, more_bytes);
    if (apply_is_claimed(apply, store, more_bytes))
        return -EAGAIN;
    if (apply->record->flags & CORE_RESERVE_REPLACING)
        now_bytes = more_bytes - number_smaller(more_bytes, count_replaced(store));
    else
        now_bytes =
            number_smaller(more_bytes, core_get_room(apply->core, store, apply->free_bytes));
    set_reserved(apply->core, session, session->reserved_bytes + now_bytes, more_bytes - now_bytes);
    apply->free_bytes -= now_bytes;
    return 0;
}

/* Checks that the pool allows the session more than it had in all. The device already has room for
 * memory being made: that was charged before. */
static int check_more(struct apply *apply, const struct core_session *session)
{
    const struct record *record = apply->record;
    const struct core_store *store = core_store(apply->core, session->store);
    const struct core_pool *pool = core_find_pool(apply->core, store);
    uint64_t had_bytes = session->reserved_bytes + session->making_bytes, wanted_bytes;
    uint64_t aside_bytes = number_subtract(record->reserved_bytes, session->reserved_bytes);

    if (__builtin_add_overflow(record->reserved_bytes, record->making_bytes, &wanted_bytes) ||
        record->drawn_bytes > record->making_bytes)
        return -EINVAL;
    if (aside_bytes > apply->free_bytes)
        return -ENOMEM;
    if (wanted_bytes <= had_bytes ||
        (wanted_bytes - had_bytes <= core_get_pool_room(pool, store) &&
         core_get_others_bytes(apply->core, pool) <= apply->free_bytes - aside_bytes))
        return 0;
    apply->out->pool = pool->id;
    return -EDQUOT;
}

int apply_reserve(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_session *session;
    int error = apply_find_writer(apply, &session);

    if (error < 0)
        return error;
    if (record->flags & ~(uint32_t)(CORE_RESERVE_AS_ACQUIRE | CORE_RESERVE_REPLACING) ||
        record->flags == CORE_RESERVE_REPLACING)
        return -EINVAL;
    if (record->flags && record->reserved_bytes > session->reserved_bytes)
        return reserve_as_acquire(apply, session);
    error = record->flags ? 0 : check_more(apply, session);
    if (error < 0)
        return error;
    apply->free_bytes -= number_subtract(record->reserved_bytes, session->reserved_bytes);
    if (!record->flags)
        set_making(apply->core, session, record->making_bytes, record->drawn_bytes);
    set_reserved(apply->core, session, record->reserved_bytes,
                 record->flags ? 0 : record->due_bytes);
    return 0;
}
