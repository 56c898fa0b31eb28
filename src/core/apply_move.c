/* SPDX-License-Identifier: Apache-2.0 */
/* Moves of committed bytes between tiers. See move.h */
#include "core/core_internal.h"

#include <errno.h>
#include <string.h>

/* True if the move in progress reads or writes the device. */
static bool uses_device(const struct core_store *store)
{
    return store->places.place == CORE_PLACE_DEVICE || store->places.move.to == CORE_PLACE_DEVICE;
}

static bool has_any_reader(const struct core *core, const struct core_store *store)
{
    for (size_t i = 0; i < store->lock.session_count; i++) {
        if (core_session(core, store->lock.sessions[i].id)->any)
            return true;
    }
    return false;
}

void apply_abandon_move(struct apply *apply, struct core_store *store, int error)
{
    struct core_places *places = &store->places;

    if (places->move.id == 0)
        return;
    core_add_move_event(apply, CORE_EVENT_MOVE_FAILED, store, places->move.to, error);
    core_end_move(apply->core, store);
}

/* A move that heals a store reads nothing from the device, and continues unless the device is
 * lost. */
void apply_abandon_device_moves(struct apply *apply, int error)
{
    for (size_t i = 0; i < apply->core->stores.count; i++) {
        struct core_store *store = apply->core->stores.items[i];
        bool heals = !apply->core->lost && store->suspect > 0;

        if (store->places.move.id != 0 && uses_device(store) && !heals)
            apply_abandon_move(apply, store, error);
    }
}

bool apply_fall_back(struct apply *apply, struct core_store *store, enum core_event_type type)
{
    enum core_place tier = core_get_fallback(store);

    if (store->places.place != CORE_PLACE_DEVICE || tier == CORE_PLACE_NONE)
        return false;
    core_switch_place(apply->core, store, tier, false, apply->record->wall_ms);
    core_add_move_event(apply, type, store, tier, 0);
    return true;
}

void apply_heal(struct apply *apply)
{
    for (size_t i = 0; i < apply->core->stores.count; i++) {
        struct core_store *store = apply->core->stores.items[i];

        if (store->suspect > 0 && store->lock.committed && store->lock.session_count == 0 &&
            store->places.spares[CORE_PLACE_HOST])
            apply_fall_back(apply, store, CORE_EVENT_HEALED);
    }
}

/* ---- beginning ------------------------------------------------------------------------------ */

/* Refuses any change of the store's copies while it is in use or moving. */
static int check_rest(const struct core *core, const struct core_store *store)
{
    if (!store)
        return -ENOENT;
    if (!store->lock.committed || layout_count_allocations(store->fixed) == 0)
        return core_get_writer(core, store->id) ? -EBUSY : -ENODATA;
    if (store->places.move.id != 0 || core_get_writer(core, store->id) ||
        core_is_fenced(core, store->name))
        return -EBUSY;
    return 0;
}

/* Checks that there is a source to copy from and a target to copy to. */
static int check_source(struct apply *apply, const struct core_store *store, enum core_place to)
{
    const struct core *core = apply->core;
    bool of_device = store->places.place == CORE_PLACE_DEVICE;

    if (store->places.place == CORE_PLACE_NONE)
        return -ENODATA;
    if (core->lost && (of_device || to == CORE_PLACE_DEVICE))
        return -ENODEV;
    if (of_device && store->suspect > 0)
        return -EIO;
    if (to != CORE_PLACE_DEVICE)
        return 0;
    if (core_check_promotion(core, store, apply->free_bytes) < 0) {
        apply->out->pool = store->use.pool;
        return -EDQUOT;
    }
    apply_find_claims(apply, store);
    return apply_is_claimed(apply, store, layout_total_bytes(store->fixed)) ? -EAGAIN : 0;
}

static int drop_all_copies(struct apply *apply, struct core_store *store)
{
    struct core *core = apply->core;
    struct layout *bare = core_make_copy(store->fixed, NULL), *before = store->fixed;

    if (!bare)
        return -ENOMEM;
    core_touch(core, store);
    core_mark_committed(core, before, 0);
    core_drop_spares(core, store);
    store->fixed = bare;
    core_forget_contents(store);
    core_set_place(core, store, CORE_PLACE_NONE);
    core_count_move(store, apply->record->wall_ms);
    core_forget_writers(core, store);
    core_memory_unref_layout(core, before, false);
    core_discard_layout(core, before);
    core_add_move_event(apply, CORE_EVENT_DEMOTED, store, CORE_PLACE_NONE, 0);
    apply_grant_waiters(apply, store);
    return 0;
}

static void note_begin(struct apply *apply, struct core_store *store, enum core_place to,
                       bool spare)
{
    core_touch(apply->core, store);
    store->places.move = (struct core_move){
        .id = apply->core->next_id++, .to = to, .spare = spare, .since_ms = apply->record->now_ms};
    core_count_coming(apply->core, store, 1);
    store->places.version++;
    apply->out->id = store->places.move.id;
}

/* Makes the spare in `to` the place and drops all faster copies. */
static void switch_down(struct apply *apply, struct core_store *store, enum core_place to)
{
    bool heals = store->suspect > 0;

    for (unsigned tier = store->places.place + 1; tier < to; tier++)
        core_drop_spare(apply->core, store, (enum core_place)tier);
    core_switch_place(apply->core, store, to, false, apply->record->wall_ms);
    core_add_move_event(apply, heals ? CORE_EVENT_HEALED : CORE_EVENT_DEMOTED, store, to, 0);
}

/* True if the spare has to be read and verified first: the record asks for it, and the place still
 * has bytes to keep meanwhile. Suspect bytes count, because they may be sound. */
static bool has_to_verify(const struct apply *apply, const struct core_store *store)
{
    bool is_lost = apply->core->lost && store->places.place == CORE_PLACE_DEVICE;

    return (apply->record->flags & CORE_MOVE_VERIFY) != 0 && !is_lost;
}

/* Moves the store to a slower tier, at once if that has a spare. */
static int demote(struct apply *apply, struct core_store *store, enum core_place to)
{
    if (core_is_held(store))
        return -EBUSY;
    if (to == CORE_PLACE_NONE)
        return drop_all_copies(apply, store);
    if (!store->places.spares[to] || has_to_verify(apply, store)) {
        note_begin(apply, store, to, false);
        return 0;
    }
    switch_down(apply, store, to);
    apply_grant_waiters(apply, store);
    return 0;
}

/* Returns the store that the eviction makes room for; sets an error if it may not. */
static const struct core_store *find_evictor(const struct apply *apply,
                                             const struct core_store *store, int *error)
{
    const struct core *core = apply->core;
    const struct core_store *evictor = core_store(core, apply->record->evictor);

    *error = evictor ? 0 : -ENOENT;
    if (evictor && (store == evictor || store->places.place != CORE_PLACE_DEVICE ||
                    apply->record->kind == CORE_PLACE_DEVICE))
        *error = -EINVAL;
    else if (evictor && (store->use.pinned ||
                         core_find_pool(core, store)->class > core_find_pool(core, evictor)->class))
        *error = -EBUSY;
    return evictor;
}

/* Tells that the store was evicted. The store that needed the room may be gone by now. */
static void note_eviction(struct apply *apply, struct core_store *store, enum core_place to,
                          uint64_t evictor)
{
    struct core_event *event = core_add_move_event(apply, CORE_EVENT_EVICTED, store, to, 0);
    const struct core_store *wanted = core_store(apply->core, evictor);

    if (wanted)
        memcpy(event->for_store, wanted->name, sizeof event->for_store);
    core_pool(apply->core, store->use.pool)->evictions++;
}

static int begin_move(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_store *store = core_store(apply->core, record->store);
    enum core_place to = (enum core_place)record->kind;
    bool spare = (record->flags & CORE_MOVE_SPARE) != 0;
    int error = check_rest(apply->core, store);

    if (record->kind >= CORE_PLACE_COUNT ||
        record->flags & ~(CORE_MOVE_SPARE | CORE_MOVE_EVICT | CORE_MOVE_VERIFY) ||
        (spare && (to == CORE_PLACE_NONE || to == CORE_PLACE_DEVICE)))
        return -EINVAL;
    if (error < 0)
        return error;
    if (to == store->places.place || (spare && core_has_copy(store, to)))
        return 0;
    if (to > store->places.place && !spare && (to == CORE_PLACE_NONE || store->places.spares[to]))
        return demote(apply, store, to);
    error = check_source(apply, store, to);
    if (error < 0)
        return error;
    if (to > store->places.place && !spare)
        return demote(apply, store, to);
    if (spare && to < store->places.place) /* the spare would be faster than the place */
        return -EINVAL;
    note_begin(apply, store, to, spare);
    return 0;
}

int apply_move_begin(struct apply *apply)
{
    struct core_store *store = core_store(apply->core, apply->record->store);
    int error;

    if (!(apply->record->flags & CORE_MOVE_EVICT))
        return begin_move(apply);
    if (!store)
        return -ENOENT;
    if (apply->record->flags & CORE_MOVE_SPARE)
        return -EINVAL;
    const struct core_store *evictor = find_evictor(apply, store, &error);
    if (error < 0)
        return error;
    error = begin_move(apply);
    if (error == 0 && store->places.move.id != 0)
        store->places.move.evictor = evictor->id;
    else if (error == 0)
        note_eviction(apply, store, (enum core_place)apply->record->kind, evictor->id);
    return error;
}

/* ---- ending --------------------------------------------------------------------------------- */

static struct core_store *find_moving(const struct apply *apply)
{
    struct core_store *store = core_store(apply->core, apply->record->store);

    return store && apply->record->move != 0 && store->places.move.id == apply->record->move ? store
                                                                                             : NULL;
}

/* Adds the copy's memories. All or none. */
static int add_memories(struct apply *apply, struct core_store *store, enum core_place tier)
{
    const struct record *record = apply->record;
    struct core *core = apply->core;
    size_t added = 0;
    int error = 0;

    while (added < record->memory_count && error == 0) {
        error = core_memory_add(core, store, record->memories[added], tier,
                                layout_at_rank(store->fixed, added)->aligned_bytes);
        if (error == 0)
            added++;
    }
    for (size_t i = 0; i < added && error < 0; i++)
        core_memory_forget(core, record->memories[i]);
    return error;
}

static void end_move(struct apply *apply, struct core_store *store)
{
    core_count_coming(apply->core, store, -1);
    store->places.move = (struct core_move){0};
    store->places.version++;
    apply_grant_waiters(apply, store);
}

/* The spare was read and is sound. A session that holds the store by now keeps it in its place. */
static int end_verification(struct apply *apply, struct core_store *store)
{
    enum core_place to = store->places.move.to;
    uint64_t evictor = store->places.move.evictor;

    if (!store->places.spares[to] || apply->record->flags != 0)
        return -EINVAL;
    core_touch(apply->core, store);
    if (!core_is_held(store)) {
        switch_down(apply, store, to);
        if (evictor != 0)
            note_eviction(apply, store, to, evictor);
    }
    end_move(apply, store);
    return 0;
}

/* Makes the copy the place as ordered; only a spare if a session holds the store by now. */
static void place_copy(struct apply *apply, struct core_store *store)
{
    struct core *core = apply->core;
    enum core_place to = store->places.move.to;
    bool slower = to > store->places.place;
    bool keep = (apply->record->flags & CORE_MOVE_KEEP) != 0;

    if (store->places.move.spare || (slower && core_is_held(store))) {
        core_add_move_event(apply, CORE_EVENT_COPIED, store, to, 0);
        return;
    }
    if (slower) {
        switch_down(apply, store, to);
    } else {
        store->places.promote_ms = apply->record->now_ms - store->places.move.since_ms;
        store->places.promoted_ms = apply->record->now_ms;
        core_switch_place(core, store, to, keep || has_any_reader(core, store),
                          apply->record->wall_ms);
        core_add_move_event(apply, CORE_EVENT_PROMOTED, store, to, 0);
    }
    if (store->places.move.evictor != 0)
        note_eviction(apply, store, to, store->places.move.evictor);
}

int apply_move_end(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_store *store = find_moving(apply);
    enum core_place to;

    if (!store)
        return -ESTALE;
    to = store->places.move.to;
    if (record->memory_count == 0)
        return end_verification(apply, store);
    if (record->flags & ~CORE_MOVE_KEEP || store->places.spares[to] ||
        record->memory_count != layout_count_allocations(store->fixed))
        return -EINVAL;
    struct layout *copy = core_make_copy(store->fixed, record->memories);
    if (!copy)
        return -ENOMEM;
    int error = add_memories(apply, store, to);
    if (error < 0) {
        layout_free(copy);
        return error;
    }
    core_touch(apply->core, store);
    core_memory_ref_layout(apply->core, copy);
    store->places.spares[to] = copy;
    place_copy(apply, store);
    end_move(apply, store);
    return 0;
}

static void refuse_awaiting(struct apply *apply, struct core_store *store, int error)
{
    for (size_t i = store->lock.waiter_count; i > 0; i--) {
        struct core_waiter *waiter = core_waiter(apply->core, store->lock.waiters[i - 1].id);
        enum lock_mode mode = lock_get_wish_mode(&store->lock, waiter->wish);

        if (core_lacks_place(store, mode, waiter->kind, waiter->flags))
            apply_refuse_waiter(apply, waiter, -error);
    }
}

int apply_move_fail(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_store *store = core_store(apply->core, record->store);
    int error = (int)record->failure;

    if (record->flags & ~(CORE_MOVE_REFUSE | CORE_MOVE_QUIET) || record->failure == 0 ||
        record->failure > 4095)
        return -EINVAL;
    if (!store || store->places.move.id != record->move)
        return -ESTALE;
    if (record->flags & CORE_MOVE_QUIET)
        core_end_move(apply->core, store);
    else
        apply_abandon_move(apply, store, error);
    if (record->flags & CORE_MOVE_REFUSE)
        refuse_awaiting(apply, store, error);
    apply_grant_waiters(apply, store);
    return 0;
}

int apply_move_cancel(struct apply *apply)
{
    struct core_store *store = core_store(apply->core, apply->record->store);

    if (!store)
        return -ENOENT;
    if (store->places.move.id == 0)
        return -ENODATA;
    if (store->places.move.to == CORE_PLACE_DEVICE && core_is_awaited(apply->core, store))
        return -EBUSY;
    if (core_is_healing(store)) /* it would begin again at once */
        return -EBUSY;
    apply_abandon_move(apply, store, ECANCELED);
    return 0;
}

int apply_copy_drop(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_store *store = core_store(apply->core, record->store);
    enum core_place tier = (enum core_place)record->kind;
    int error = check_rest(apply->core, store);

    if (record->kind >= CORE_TIER_COUNT || record->failure > 4095)
        return -EINVAL;
    if (error < 0)
        return error;
    if (tier == store->places.place || has_any_reader(apply->core, store))
        return -EBUSY;
    if (!store->places.spares[tier])
        return -ENODATA;
    core_drop_spare(apply->core, store, tier);
    core_add_move_event(apply, CORE_EVENT_COPY_DROPPED, store, tier, (int)record->failure);
    apply_grant_waiters(apply, store); /* the spare may have been due to heal it */
    return 0;
}
