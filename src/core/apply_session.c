/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions: grant, commit and end. */
#include "core/core_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int apply_make_grant(const struct core_request *request, struct core_grant *grant)
{
    grant->session = malloc(sizeof *grant->session);
    grant->file = request->file ? NULL : malloc(sizeof *grant->file);
    grant->empty = layout_new();
    if (grant->session && (grant->file || request->file) && grant->empty)
        return 0;
    core_free_grant(grant);
    return -ENOMEM;
}

static void fill_session(const struct apply *apply, const struct core_request *request,
                         enum lock_mode mode, struct core_session *session)
{
    memset(session, 0, sizeof *session);
    session->id = apply->core->next_session;
    session->store = request->store;
    session->mode = mode;
    session->exclusive = request->file != 0 && !(request->flags & CORE_OPEN_BY_PROCESS);
    session->implicit = request->kind == CORE_KIND_ALLOCATION;
    session->owned = (request->flags & CORE_OPEN_OWNED) != 0;
    session->any = mode == LOCK_MODE_RO && (request->flags & CORE_OPEN_ANY) != 0;
    memcpy(session->token, request->token, sizeof session->token);
    session->owner = request->owner;
    session->uid = request->uid;
    memcpy(session->comm, request->comm, sizeof session->comm);
    session->comm[sizeof session->comm - 1] = '\0';
    session->since_ms = apply->record->wall_ms;
}

/* Takes the shares and adds the session to the lock. All or nothing. */
static int take_places(struct core *core, struct core_store *store,
                       const struct core_request *request, enum lock_mode mode)
{
    uint64_t files = request->file ? 0 : 1;
    int error = share_take(&store->sessions, request->uid, 1);

    if (error < 0)
        return error;
    core_touch(core, store);
    error = share_take(&core->shares[CORE_BOUND_FILES], request->uid, files);
    if (error == 0) {
        error = lock_add_session(&store->lock, core->next_session, mode);
        if (error < 0)
            share_give(&core->shares[CORE_BOUND_FILES], request->uid, files);
    }
    if (error < 0)
        share_give(&store->sessions, request->uid, 1);
    return error;
}

static const enum core_event_type connected_events[LOCK_MODES] = {
    [LOCK_MODE_RO] = CORE_EVENT_RO_CONNECTED,
    [LOCK_MODE_RW] = CORE_EVENT_RW_CONNECTED,
    [LOCK_MODE_RW_DATA] = CORE_EVENT_RW_DATA_CONNECTED,
};

/* The writer begins with the committed layout; with an empty one if that is sealed or immutable, or
 * the writer asked for it. An immutable one stays committed meanwhile. */
static void begin_writing(struct apply *apply, struct core_store *store,
                          const struct core_request *request, struct core_session *session,
                          struct core_grant *grant)
{
    apply_reserve_at_grant(apply, session, request->reserve_bytes);
    apply_abandon_move(apply, store, ECANCELED);
    if (!store->fixed)
        return;
    if (store->lock.sealed || request->flags & CORE_OPEN_FRESH) {
        if (store->lock.committed)
            core_add_event(apply, CORE_EVENT_CLEARED, store, session);
        core_drop_fixed(apply->core, store);
    } else if (layout_is_immutable(store->fixed)) {
        layout_succeed(grant->empty, store->fixed);
        store->working = grant->empty;
        grant->empty = NULL;
    }
}

int apply_grant(struct apply *apply, const struct core_request *request, enum lock_mode mode,
                struct core_grant *grant, uint64_t *session_id, uint64_t *file_id)
{
    struct core *core = apply->core;
    struct core_store *store = core_store(core, request->store);
    struct core_file *file = core_file(core, request->file);
    struct core_session *session = grant->session;

    /* Decided at the grant, not at the request: a writer may have loaded the store again by
     * then. */
    if (mode != LOCK_MODE_RW && store->suspect > 0)
        return -EIO;
    if (mode == LOCK_MODE_RO && store->lock.bare && request->kind != CORE_KIND_ALLOCATION)
        return -ENODATA;
    int error = take_places(core, store, request, mode);
    if (error < 0)
        return error;
    fill_session(apply, request, mode, session);
    grant->session = NULL;
    if (!file) {
        file = grant->file;
        grant->file = NULL;
        core_enter_file(core, request, file);
    }
    if (session->exclusive || session->implicit)
        session->opener = file->id;
    core_enter_session(session, file);
    core->next_session++;
    idvec_append(&core->sessions, session);
    core->comm_bytes += strlen(session->comm);
    if (!session->implicit || mode != LOCK_MODE_RO)
        core_hold(core, session);
    if (mode == LOCK_MODE_RW)
        begin_writing(apply, store, request, session, grant);
    *(mode == LOCK_MODE_RO ? &store->grants_ro : &store->grants_rw) += 1;
    core_add_event(apply, connected_events[mode], store, session);
    *session_id = session->id;
    *file_id = file->id;
    return 0;
}

static void forget_session(struct apply *apply, struct core_session *session)
{
    const struct core_file *taker =
        session->exclusive ? core_file(apply->core, session->opener) : NULL;

    if (taker)
        apply_end_region_of(apply, taker);
    apply_drop_reservation(apply->core, session);
    apply_drop_tickets(apply->core, session->id, false);
    core_unhold(apply->core, session, apply->record->wall_ms);
    core_push_effect(
        apply->core,
        (struct effect){.type = EFFECT_SESSION_OVER,
                        .session = session->id,
                        .owner = session->owned ? session->owner : (struct core_process){0},
                        .store = session->store});
    share_give(&core_store(apply->core, session->store)->sessions, session->uid, 1);
    core_detach_files(session);
    apply->core->comm_bytes -= strlen(session->comm);
    free(idvec_remove(&apply->core->sessions, session->id));
}

/* True if the committed layout is intact. A writer cannot reach bytes in other tiers. */
static bool can_roll_back(const struct core_store *store, const struct core_session *session)
{
    return store->fixed && (!session->touched || store->places.place != CORE_PLACE_DEVICE ||
                            core_get_fallback(store) != CORE_PLACE_NONE);
}

/* Drops the working copy; also the committed layout if its bytes may have changed and there is no
 * other copy. */
static bool abort_writer(struct apply *apply, struct core_store *store,
                         const struct core_session *session)
{
    bool keeps = can_roll_back(store, session);

    if (!keeps)
        core_add_event(apply, CORE_EVENT_ABORTED, store, session);
    core_drop_working(apply->core, store);
    if (session->touched && keeps)
        apply_fall_back(apply, store, CORE_EVENT_DEMOTED);
    else if (session->touched)
        core_drop_fixed(apply->core, store);
    store->aborts++;
    store->changed_ms = apply->record->wall_ms;
    if (keeps)
        core_add_event(apply, CORE_EVENT_ROLLED_BACK, store, session);
    else
        core_forget_writers(apply->core, store);
    return keeps;
}

bool apply_end_session(struct apply *apply, struct core_session *session, bool revoked)
{
    struct core_store *store = core_store(apply->core, session->store);
    bool kept = false;

    if (revoked)
        core_add_event(apply, CORE_EVENT_REVOKED, store, session);
    if (session->mode == LOCK_MODE_RW)
        kept = abort_writer(apply, store, session);
    else if (session->mode == LOCK_MODE_RW_DATA)
        core_add_event(apply, CORE_EVENT_RW_DATA_DISCONNECTED, store, session);
    else
        core_add_event(apply, CORE_EVENT_RO_DISCONNECTED, store, session);
    core_touch(apply->core, store);
    lock_remove_session(&store->lock, session->id, apply->record->now_ms);
    forget_session(apply, session);
    return kept;
}

/* Keeps the session until its transfers have ended. */
static int linger(struct apply *apply, struct core_session *session, bool revoked)
{
    if (revoked && !session->ending)
        core_add_event(apply, CORE_EVENT_REVOKED, core_store(apply->core, session->store), session);
    session->ending = true;
    return 0;
}

int apply_session_end(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_session *session = core_session(apply->core, record->session);
    bool revoked = (record->flags & CORE_END_REVOKED) != 0;
    struct core_store *store;

    if (record->flags & ~(uint32_t)(CORE_END_REVOKED | CORE_END_LINGER))
        return -EINVAL;
    if (!session)
        return -ESTALE;
    store = core_store(apply->core, session->store);
    apply->out->session = session->id;
    apply->out->mode = session->mode;
    if (record->flags & CORE_END_LINGER)
        return linger(apply, session, revoked);
    apply->out->rolled_back = apply_end_session(apply, session, revoked);
    apply_grant_waiters(apply, store);
    return 0;
}

static void publish(struct apply *apply, struct core_store *store, const struct core_commit *commit)
{
    const struct record *record = apply->record;

    core_touch(apply->core, store);
    core_set_fixed(apply->core, store, commit->layout);
    if (record->flags & CORE_COMMIT_IMMUTABLE)
        layout_set_immutable(store->fixed);
    core_drop_spares(apply->core, store); /* they are of the old generation */
    core_discard_blob(apply->core, store->encoding);
    store->encoding = blob_ref(commit->encoding);
    store->made = commit->made;
    store->pieces_bytes = commit->pieces_bytes;
    memcpy(store->hash, commit->hash, sizeof store->hash);
    memset(store->group, 0, sizeof store->group);
    if (record->flags & CORE_COMMIT_GROUP)
        memcpy(store->group, record->bytes16, sizeof store->group);
    memset(store->last_error, 0, sizeof store->last_error);
    core_forget_contents(store);
    store->generation++;
    store->places.version++;
    store->commits++;
    store->changed_ms = record->wall_ms;
}

/* The writer continues and may change the bytes only. */
static void end_seal(struct apply *apply, struct core_store *store, struct core_session *session)
{
    core_add_event(apply, CORE_EVENT_SEALED, store, session);
    lock_seal(&store->lock, session->id);
    session->mode = LOCK_MODE_RW_DATA;
    session->touched = false;
    apply_drop_reservation(apply->core, session);
    apply->out->mode = LOCK_MODE_RW_DATA;
}

/* The writer's session ends, or continues as a reader: with its files, without its reservation and
 * writable tickets. */
static void end_commit(struct apply *apply, struct core_store *store, struct core_session *session)
{
    bool stay = (apply->record->flags & CORE_COMMIT_STAY) != 0;

    core_add_event(apply, CORE_EVENT_COMMITTED, store, session);
    lock_commit(&store->lock, session->id, stay ? LOCK_MODE_RO : LOCK_MODE_NONE,
                apply->record->now_ms);
    if (stay) {
        session->mode = LOCK_MODE_RO;
        session->touched = false;
        apply_drop_reservation(apply->core, session);
        apply_drop_tickets(apply->core, session->id, true);
        apply->out->mode = LOCK_MODE_RO;
    } else {
        forget_session(apply, session);
    }
}

/* Computes the commit of the writer's layout, or takes a precomputed result for the same layout. */
static int prepare(const struct apply *apply, const struct core_store *store, bool check,
                   struct core_commit *commit)
{
    const struct core_commit *before = apply->record->commit;
    struct layout *layout = store->working ? store->working : store->fixed;

    if (before && before->layout == layout && before->check == check) {
        *commit = *before;
        if (commit->encoding)
            blob_ref(commit->encoding);
        return commit->error;
    }
    *commit = (struct core_commit){.layout = layout, .check = check};
    if (!layout)
        commit->layout = layout_new(); /* the writer made nothing: an empty layout */
    if (commit->layout)
        core_commit_prepare(commit);
    else
        commit->error = -ENOMEM;
    return commit->error;
}

static int finish_refused(struct apply *apply, struct core_store *store, struct core_commit *commit)
{
    int error = commit->error;

    if (commit->refused)
        memcpy(store->last_error, commit->message, sizeof store->last_error);
    apply->out->noted = commit->refused;
    if (commit->layout != store->working && commit->layout != store->fixed)
        layout_free(commit->layout);
    return error;
}

static int check_commit(const struct apply *apply, const struct core_store *store)
{
    uint32_t flags = apply->record->flags;

    if (flags & ~(uint32_t)(CORE_COMMIT_STAY | CORE_COMMIT_GROUP | CORE_COMMIT_CHECK |
                            CORE_COMMIT_SEAL | CORE_COMMIT_IMMUTABLE) ||
        (flags & CORE_COMMIT_SEAL && flags & (CORE_COMMIT_STAY | CORE_COMMIT_IMMUTABLE)))
        return -EINVAL;
    if (apply->core->lost)
        return -ENODEV;
    /* With an invisible writer, no later session could ever be known to write alone. */
    return flags & CORE_COMMIT_SEAL && store->unseen_writer ? -EOPNOTSUPP : 0;
}

/* A writer that was admitted while the store was in another tier has to replace every
 * allocation. */
static int check_tiers(const struct apply *apply, struct core_store *store)
{
    const struct layout *layout = store->working ? store->working : store->fixed;
    bool is_there = store->places.place == CORE_PLACE_DEVICE || store->lock.bare;

    for (size_t i = 0; !is_there && i < layout_count_allocations(layout); i++) {
        const struct layout_allocation *allocation = layout_at_rank(layout, i);
        char message[sizeof store->last_error] = "";

        if (allocation->memory == LAYOUT_NO_MEMORY ||
            core_memory(apply->core, allocation->memory)->tier == CORE_PLACE_DEVICE)
            continue;
        snprintf(message, sizeof message,
                 "allocation %.150s is not on the device: a writer that replaces a store in "
                 "another tier has to remove it",
                 allocation->name);
        memset(store->last_error, 0, sizeof store->last_error);
        memcpy(store->last_error, message, strlen(message));
        apply->out->noted = true;
        return -EINVAL;
    }
    return 0;
}

/* The memory of the layout cannot be committed; the record says why. */
static int refuse_commit(struct apply *apply, struct core_store *store)
{
    const struct record *record = apply->record;
    char reason[sizeof store->last_error];
    int error = apply_copy_name(record, reason);

    if (error < 0)
        return error;
    if (record->refusal == 0 || record->refusal > 4095)
        return -EINVAL;
    memcpy(store->last_error, reason, sizeof store->last_error);
    apply->out->noted = true;
    return -(int)record->refusal;
}

int apply_commit(struct apply *apply)
{
    const struct record *record = apply->record;
    bool check = (record->flags & CORE_COMMIT_CHECK) != 0;
    struct core_session *session;
    struct core_store *store;
    struct core_commit commit;
    int error = apply_find_writer(apply, &session);

    if (error < 0)
        return error;
    store = core_store(apply->core, session->store);
    if (record->name_bytes > 0)
        return refuse_commit(apply, store);
    error = check_commit(apply, store);
    if (error == 0)
        error = check_tiers(apply, store);
    if (error < 0)
        return error;
    error = prepare(apply, store, check, &commit);
    if (error < 0 || check)
        return finish_refused(apply, store, &commit);
    apply->out->session = session->id;
    publish(apply, store, &commit);
    blob_unref(commit.encoding);
    if (record->flags & CORE_COMMIT_SEAL)
        end_seal(apply, store, session);
    else
        end_commit(apply, store, session);
    apply->out->generation = store->generation;
    apply_grant_waiters(apply, store);
    return 0;
}

int apply_touch(struct apply *apply)
{
    struct core_session *session;
    int error = apply_find_writer(apply, &session);

    if (error == 0)
        core_touch_bytes(apply->core, session);
    return error;
}

int apply_give_up(struct apply *apply)
{
    struct change change;
    int error = apply_change_begin(apply, &change);

    if (error < 0)
        return error;
    error = apply_change_end(apply, &change, 0);
    if (error < 0)
        return error;
    core_touch_bytes(apply->core, change.session);
    /* A copy in another tier takes no memory of the device. */
    if (change.store->places.place == CORE_PLACE_DEVICE &&
        !apply_fall_back(apply, change.store, CORE_EVENT_DEMOTED))
        core_drop_fixed(apply->core, change.store);
    /* Waiters for `auto` now wait as writers; none can be granted while this writer is here. */
    return 0;
}

int apply_over_quota(struct apply *apply)
{
    const struct record *record = apply->record;
    const struct core_store *store = core_store(apply->core, record->store);
    char name[256];
    int error = apply_copy_name(record, name);

    if (error < 0)
        return error;
    if (!core_is_pool_name(name))
        return -EINVAL;
    if (!store)
        return -ENOENT;
    core_add_event(apply, CORE_EVENT_OVER_QUOTA, store, NULL);
    return 0;
}

int apply_out_of_memory(struct apply *apply)
{
    const struct core_session *session = core_session(apply->core, apply->record->session);

    if (!session)
        return -ESTALE;
    core_add_event(apply, CORE_EVENT_OUT_OF_MEMORY, core_store(apply->core, session->store),
                   session);
    return 0;
}
