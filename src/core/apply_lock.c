/* SPDX-License-Identifier: Apache-2.0 */
/* Requests for the lock: granted at once, by waiting, or by a kept place; and expiry by time. */
#include "core/core_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void give_shares(struct apply *apply, struct core_store *store, uint32_t uid, uint64_t file)
{
    share_give(&store->waiters, uid, 1);
    share_unpin(&store->sessions, uid);
    share_give(&apply->core->shares[CORE_BOUND_FILES], uid, file ? 0 : 1);
}

void apply_forget_waiter(struct apply *apply, struct core_waiter *waiter)
{
    struct core_store *store = core_store(apply->core, waiter->store);

    give_shares(apply, store, waiter->uid, waiter->file);
    apply->core->reserving -= waiter->reserve_bytes > 0;
    lock_remove_waiter(&store->lock, waiter->id);
    core_note_waiters(apply->core, store);
    apply->core->comm_bytes -= strlen(waiter->comm);
    core_waiter_free(idvec_remove(&apply->core->waiters, waiter->id));
}

static void refuse(struct apply *apply, const struct core_waiter *waiter, int error)
{
    core_push_effect(apply->core, (struct effect){.type = EFFECT_REFUSED,
                                                  .waiter = waiter->id,
                                                  .file = waiter->file,
                                                  .store = waiter->store,
                                                  .error = error});
}

void apply_refuse_waiter(struct apply *apply, struct core_waiter *waiter, int error)
{
    if (!waiter->away)
        refuse(apply, waiter, error);
    apply_forget_waiter(apply, waiter);
}

void apply_refuse_all(struct apply *apply, int error)
{
    while (apply->core->waiters.count > 0)
        apply_refuse_waiter(apply, apply->core->waiters.items[0], error);
}

void apply_refuse_store(struct apply *apply, const struct core_store *store, int error)
{
    while (store->lock.waiter_count > 0)
        apply_refuse_waiter(apply, core_waiter(apply->core, store->lock.waiters[0].id), error);
}

void apply_keep_place(struct apply *apply, struct core_waiter *waiter)
{
    struct core_store *store = core_store(apply->core, waiter->store);

    waiter->away = true;
    lock_keep_place(&store->lock, waiter->id, number_add(apply->record->now_ms, CORE_KEPT_PLACE_MS),
                    core_waiter_counts(waiter));
}

static void answer_grant(struct apply *apply, const struct core_waiter *waiter, uint64_t session,
                         uint64_t file, enum lock_mode mode)
{
    if (waiter->id == apply->own_waiter) {
        apply->own_waiter = 0;
        apply->out->waiter = 0;
        apply->out->session = session;
        apply->out->file = file;
        apply->out->mode = mode;
        return;
    }
    core_push_effect(apply->core, (struct effect){.type = EFFECT_GRANTED,
                                                  .waiter = waiter->id,
                                                  .session = session,
                                                  .file = file,
                                                  .store = waiter->store});
}

/* The allocation to open may have been removed or become immutable while the request waited. */
static int check_still_there(const struct core_store *store, const struct core_request *request,
                             enum lock_mode mode)
{
    if (request->kind != CORE_KIND_ALLOCATION || request->serial == 0)
        return 0;
    if (!store->fixed || !layout_find_serial(store->fixed, request->serial))
        return -ENOENT;
    return mode != LOCK_MODE_RO && layout_is_immutable(store->fixed) ? -EPERM : 0;
}

static int grant_waiter(struct apply *apply, const struct core_store *store,
                        struct core_waiter *waiter, enum lock_mode mode)
{
    struct core_request request = {.store = waiter->store,
                                   .file = waiter->file,
                                   .kind = waiter->kind,
                                   .serial = waiter->serial,
                                   .flags = waiter->flags,
                                   .owner = waiter->owner,
                                   .uid = waiter->uid,
                                   .comm = waiter->comm,
                                   .token = waiter->token,
                                   .reserve_bytes = waiter->reserve_bytes};
    uint64_t session, file;
    int error = check_still_there(store, &request, mode);

    if (error == 0)
        error = apply_grant(apply, &request, mode, &waiter->grant, &session, &file);
    if (error == 0)
        answer_grant(apply, waiter, session, file, mode);
    return error;
}

/* Puts waiters to sleep that are beyond their user's share of the sessions or need their store in
 * another tier. A waiter for RW_DATA that waits for other processes to exit sleeps in turn: a newer
 * waiter would drop the sealed layout. */
static void update_store_sleep(struct apply *apply, struct core_store *store)
{
    bool has_sleepers = false;

    if (share_is_ample(&store->sessions) && !store->has_sleepers &&
        !(store->lock.sealed && store->writer_count > 0) &&
        store->places.place == CORE_PLACE_DEVICE && store->suspect == 0)
        return;
    for (size_t i = 0; i < store->lock.waiter_count; i++) {
        const struct core_waiter *waiter = core_waiter(apply->core, store->lock.waiters[i].id);
        enum lock_sleep sleep = apply_get_sleep(apply->core, store, waiter);

        if (!core_waiter_counts(waiter))
            continue;
        if (sleep != LOCK_AWAKE || waiter->reserve_bytes == 0)
            lock_set_sleep(&store->lock, waiter->id, sleep);
        has_sleepers |= sleep != LOCK_AWAKE;
    }
    store->has_sleepers = has_sleepers;
}

/* Updates which of the store's waiters sleep. */
static void update_sleep(struct apply *apply, struct core_store *store)
{
    apply_update_sleep(apply);
    update_store_sleep(apply, store);
}

/* True if a waiter of the last worker has not come back yet: it may be next in turn. */
static bool waits_for_return(const struct core *core, const struct core_store *store)
{
    if (!core->is_resuming)
        return false;
    for (size_t i = 0; i < core->waiters.count; i++) {
        const struct core_waiter *waiter = core->waiters.items[i];

        if (waiter->store == store->id && waiter->away)
            return true;
    }
    return false;
}

void apply_grant_waiters(struct apply *apply, struct core_store *store)
{
    enum lock_mode mode;
    uint64_t id;

    if (waits_for_return(apply->core, store))
        return;
    while (update_sleep(apply, store),
           apply->grants < CORE_MAX_GRANTS &&
               lock_next_grant(&store->lock, apply->record->now_ms, &id, &mode)) {
        struct core_waiter *waiter = core_waiter(apply->core, id);
        int error = grant_waiter(apply, store, waiter, mode);

        /* The caller does not know yet that the record's own waiter waits, so no effect may refuse
         * it. */
        if (error < 0 && id == apply->own_waiter)
            return;
        if (error < 0)
            refuse(apply, waiter, error);
        apply_forget_waiter(apply, waiter);
        apply->grants++;
    }
}

static void set_comm(struct core *core, struct core_waiter *waiter, const char *comm)
{
    core->comm_bytes -= strlen(waiter->comm);
    memcpy(waiter->comm, comm, sizeof waiter->comm - 1); /* the last byte stays NUL */
    core->comm_bytes += strlen(waiter->comm);
}

/* Takes the waiter's share of the bounds: a waiter, for an open also a file, and room to note the
 * session. All or nothing. */
static int take_shares(struct apply *apply, struct core_store *store,
                       const struct core_request *request)
{
    int error = apply_take(apply, CORE_BOUND_WAITERS, store, request->uid, 1);

    if (error < 0)
        return error;
    if (!request->file)
        error = apply_take(apply, CORE_BOUND_FILES, store, request->uid, 1);
    if (error == 0) {
        error = share_pin(&store->sessions, request->uid);
        if (error < 0 && !request->file)
            share_give(&apply->core->shares[CORE_BOUND_FILES], request->uid, 1);
    }
    if (error < 0)
        share_give(&store->waiters, request->uid, 1);
    return error;
}

static int new_waiter(struct apply *apply, struct core_store *store,
                      const struct core_request *request, struct core_waiter **made)
{
    const struct record *record = apply->record;
    struct core_waiter *waiter = calloc(1, sizeof *waiter);
    int error = waiter ? apply_make_grant(request, &waiter->grant) : -ENOMEM;

    if (error == 0)
        error = take_shares(apply, store, request);
    if (error == 0) {
        error = lock_add_waiter(&store->lock, apply->core->next_waiter,
                                (enum lock_wish)record->wish, record->now_ms, record->deadline_ms);
        if (error < 0)
            give_shares(apply, store, request->uid, request->file);
    }
    if (error < 0)
        core_waiter_free(waiter);
    *made = waiter;
    return error;
}

static int add_waiter(struct apply *apply, const struct core_request *request)
{
    const struct record *record = apply->record;
    struct core_store *store = core_store(apply->core, request->store);
    struct core_waiter *waiter;
    int error = new_waiter(apply, store, request, &waiter);

    if (error < 0)
        return error;
    waiter->id = apply->core->next_waiter++;
    waiter->store = request->store;
    waiter->file = request->file;
    waiter->kind = request->kind;
    waiter->serial = request->serial;
    waiter->flags = request->flags;
    waiter->wish = (enum lock_wish)record->wish;
    waiter->owner = request->owner;
    waiter->uid = request->uid;
    set_comm(apply->core, waiter, request->comm);
    memcpy(waiter->token, request->token, sizeof waiter->token);
    waiter->since_wall_ms = record->wall_ms;
    waiter->reserve_bytes = request->reserve_bytes;
    apply->core->reserving += waiter->reserve_bytes > 0;
    idvec_append(&apply->core->waiters, waiter);
    core_note_waiters(apply->core, store);
    apply->own_waiter = waiter->id;
    apply->out->waiter = waiter->id;
    update_sleep(apply, store);
    return 0;
}

/* Returns the deadline of a request; one that is repeated after a worker's death keeps its old
 * deadline. */
static uint64_t get_deadline(const struct apply *apply, const struct core_store *store,
                             uint64_t waiter)
{
    uint64_t deadline_ms = apply->record->deadline_ms;

    for (size_t i = 0; apply->core->is_resuming && i < store->lock.waiter_count; i++) {
        const struct lock_waiter *before = &store->lock.waiters[i];

        if (before->id == waiter && before->deadline_ms < deadline_ms)
            deadline_ms = before->deadline_ms;
    }
    return deadline_ms;
}

/* Resumes a kept place with a new deadline and the new request's values. */
static int resume_waiter(struct apply *apply, const struct core_request *request,
                         struct core_waiter *waiter)
{
    struct core_store *store = core_store(apply->core, waiter->store);
    uint64_t id = waiter->id;

    waiter->away = false;
    apply->core->reserving += request->reserve_bytes > 0;
    apply->core->reserving -= waiter->reserve_bytes > 0;
    waiter->reserve_bytes = request->reserve_bytes;
    waiter->flags = request->flags;
    waiter->owner = request->owner;
    set_comm(apply->core, waiter, request->comm);
    memcpy(waiter->token, request->token, sizeof waiter->token);
    lock_resume_place(&store->lock, id, get_deadline(apply, store, id));
    apply->own_waiter = id;
    apply->out->waiter = id;
    apply_grant_waiters(apply, store);
    return 0;
}

/* Returns the mode that lock and memory allow now; else sets -EAGAIN, or -ENOMEM or -EDQUOT if only
 * memory is missing. */
static enum lock_mode would_grant(struct apply *apply, struct core_store *store,
                                  const struct core_request *request, int *error)
{
    enum lock_wish wish = (enum lock_wish)apply->record->wish;

    update_sleep(apply, store);
    enum lock_mode mode = lock_would_grant(&store->lock, wish, apply->record->now_ms);
    *error = -EAGAIN;
    if ((mode == LOCK_MODE_RW_DATA && !core_is_left_to(store, request->owner)) ||
        core_lacks_place(store, mode, request->kind, request->flags))
        return LOCK_MODE_NONE;
    if (mode != LOCK_MODE_RW || request->reserve_bytes == 0)
        return mode;
    apply_find_claims(apply, NULL);
    if (!apply_has_memory(apply, store, request->reserve_bytes))
        *error = apply_why_no_memory(apply, store, request->reserve_bytes);
    else if (!apply_is_claimed(apply, store, request->reserve_bytes))
        return mode;
    return LOCK_MODE_NONE;
}

static int grant_now(struct apply *apply, const struct core_request *request, enum lock_mode mode)
{
    struct core_store *store = core_store(apply->core, request->store);
    struct core_grant grant = {0};
    int error = apply_check_bound(apply, CORE_BOUND_SESSIONS, store, request->uid, 1);

    if (error == 0 && !request->file)
        error = apply_check_bound(apply, CORE_BOUND_FILES, store, request->uid, 1);
    if (error == 0)
        error = apply_make_grant(request, &grant);
    if (error == 0)
        error = lock_reserve_session(&store->lock);
    if (error == 0)
        error = apply_grant(apply, request, mode, &grant, &apply->out->session, &apply->out->file);
    core_free_grant(&grant);
    return error;
}

/* Grants at once if possible, else adds a waiter. `kept` is a kept place of the same request, or
 * NULL; it is used only if the request may wait. */
static int request_lock(struct apply *apply, const struct core_request *request,
                        struct core_waiter *kept, bool may_wait)
{
    const struct record *record = apply->record;
    struct core_store *store = core_store(apply->core, request->store);
    enum lock_wish wish = (enum lock_wish)record->wish;
    int error = -EAGAIN;

    /* Sleep is not part of the encoded state: it is derived before each use. */
    update_sleep(apply, store);
    /* Without a wait, only the return value can refuse the request. */
    enum lock_mode mode = lock_would_grant(&store->lock, wish, record->now_ms);
    if (store->suspect > 0 && mode != LOCK_MODE_NONE && mode != LOCK_MODE_RW &&
        !core_lacks_place(store, mode, request->kind, request->flags))
        return -EIO;
    if (mode == LOCK_MODE_RO && store->lock.bare && request->kind != CORE_KIND_ALLOCATION)
        return -ENODATA;
    if (kept && may_wait && kept->wish == wish)
        return resume_waiter(apply, request, kept);
    mode = would_grant(apply, store, request, &error);
    if (mode == LOCK_MODE_NONE && !may_wait)
        return error;
    if (mode == LOCK_MODE_NONE)
        error = add_waiter(apply, request);
    else
        error = grant_now(apply, request, mode);
    if (error < 0)
        return error;
    apply->out->mode = mode;
    if (kept)
        apply_forget_waiter(apply, kept);
    return 0;
}

bool core_can_wish(enum core_kind kind, uint32_t wish)
{
    switch (kind) {
    case CORE_KIND_LOCK:
        return wish == LOCK_WISH_RO || wish == LOCK_WISH_RW;
    case CORE_KIND_AUTO:
        return wish == LOCK_WISH_RO || wish == LOCK_WISH_RW || wish == LOCK_WISH_AUTO;
    case CORE_KIND_DATA:
        return wish == LOCK_WISH_DATA;
    case CORE_KIND_ALLOCATION:
        return wish == LOCK_WISH_RO || wish == LOCK_WISH_RW || wish == LOCK_WISH_DATA;
    default:
        return false;
    }
}

static bool wish_is_known(uint32_t wish)
{
    return wish >= LOCK_WISH_RO && wish <= LOCK_WISH_DATA;
}

static int check_lock_open(const struct record *record, const struct core_store *store)
{
    if (!core_can_wish((enum core_kind)record->kind, record->wish) ||
        record->flags & ~(CORE_OPEN_FLAGS & ~CORE_ACQUIRE_FLAGS))
        return -EINVAL;
    if (!store)
        return -ENOENT;
    if (record->kind != CORE_KIND_ALLOCATION || record->serial == 0)
        return 0;
    const struct layout *visible = store->working ? store->working : store->fixed;
    if (!visible || !layout_find_serial(visible, record->serial))
        return -ENOENT;
    return record->wish != LOCK_WISH_RO && layout_is_immutable(visible) ? -EPERM : 0;
}

static struct core_waiter *find_kept_place(const struct core *core, const struct core_store *store,
                                           const struct record *record)
{
    for (size_t i = 0; i < store->lock.waiter_count; i++) {
        if (store->lock.waiters[i].kept_until_ms == 0)
            continue;
        struct core_waiter *waiter = core_waiter(core, store->lock.waiters[i].id);
        if (waiter->away && waiter->file == 0 && waiter->kind == record->kind &&
            waiter->serial == record->serial && waiter->wish == record->wish &&
            waiter->uid == record->uid && core_same_process(waiter->owner, record->process))
            return waiter;
    }
    return NULL;
}

/* True if the process would wait for itself. Not with GRACE or LEAVING: the session that it waits
 * for is then being released. */
static bool waits_for_itself(struct apply *apply, struct core_store *store)
{
    const struct record *record = apply->record;

    if (record->flags & (CORE_OPEN_GRACE | CORE_OPEN_LEAVING) ||
        !core_find_membership(apply->core, store->id, &record->process, 1))
        return false;
    update_sleep(apply, store);
    return lock_would_grant(&store->lock, (enum lock_wish)record->wish, record->now_ms) ==
           LOCK_MODE_NONE;
}

/* True if the mount or the store grants no session to this request. Reading bytes in another tier
 * does not need the device. */
static bool is_refused(const struct apply *apply, const struct core_store *store,
                       const struct core_request *request)
{
    enum core_place place = store->places.place;
    bool needs_device =
        place == CORE_PLACE_DEVICE || place == CORE_PLACE_NONE ||
        apply->record->wish != LOCK_WISH_RO ||
        (request->kind != CORE_KIND_ALLOCATION && !(request->flags & CORE_OPEN_ANY));

    return apply->core->draining || core_is_fenced(apply->core, store->name) ||
           (apply->core->lost && needs_device);
}

int apply_lock_open(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_store *store = core_store(apply->core, record->store);
    struct core_request request = {.store = record->store,
                                   .kind = (enum core_kind)record->kind,
                                   .serial = record->serial,
                                   .flags = record->flags,
                                   .owner = record->process,
                                   .uid = record->uid,
                                   .comm = record->comm,
                                   .token = record->bytes16};
    bool may_wait = record->flags & CORE_OPEN_GRACE ||
                    (!(record->flags & CORE_OPEN_NONBLOCK) && record->kind != CORE_KIND_ALLOCATION);
    int error = check_lock_open(record, store);

    if (error < 0)
        return error;
    if (is_refused(apply, store, &request))
        return -ENODEV;
    if (waits_for_itself(apply, store))
        return -EDEADLK;
    return request_lock(apply, &request, find_kept_place(apply->core, store, record),
                        may_wait && !apply->core->lost && record->deadline_ms > record->now_ms);
}

/* Refuses a reservation that the pool's budget can never allow. */
static int check_budget(struct apply *apply, const struct core_store *store)
{
    const struct core_pool *pool = core_find_pool(apply->core, store);

    if (apply->record->size_bytes <= pool->max_bytes)
        return 0;
    apply->out->pool = pool->id;
    return -EDQUOT;
}

int apply_acquire(struct apply *apply)
{
    const struct record *record = apply->record;
    const struct core_file *file = core_file(apply->core, record->file);
    const struct core_store *store;
    struct core_request request = {.file = record->file,
                                   .kind = CORE_KIND_CTL,
                                   .flags = record->flags,
                                   .reserve_bytes = record->size_bytes,
                                   .owner = record->process,
                                   .comm = record->comm,
                                   .token = record->bytes16};
    uint32_t needed = record->wish == LOCK_WISH_RO ? CORE_OPEN_READ : CORE_OPEN_WRITE;
    int error = apply_check_idle_ctl(apply, file);

    if (error < 0)
        return error;
    if (!wish_is_known(record->wish) || (record->wish == LOCK_WISH_RO && record->size_bytes > 0) ||
        record->flags & ~CORE_OPEN_FLAGS)
        return -EINVAL;
    if (!(file->flags & needed))
        return -EBADF;
    request.store = file->store;
    store = core_store(apply->core, file->store);
    if (is_refused(apply, store, &request))
        return -ENODEV;
    error = check_budget(apply, core_store(apply->core, file->store));
    if (error < 0)
        return error;
    request.uid = file->uid;
    return request_lock(apply, &request, core_find_file_waiter(apply->core, file->id),
                        !apply->core->lost && record->deadline_ms > record->now_ms);
}

int apply_wait_end(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core_waiter *waiter = core_waiter(apply->core, record->waiter);
    struct core_store *store;

    if (!waiter)
        return -ENOENT;
    if (record->refusal == 0 || record->refusal > 4095)
        return -EINVAL;
    store = core_store(apply->core, waiter->store);
    if (!waiter->away)
        refuse(apply, waiter, -(int)record->refusal);
    if (record->flags & CORE_WAIT_REVOKED)
        core_add_waiter_event(apply, CORE_EVENT_REVOKED, waiter);
    if (!(record->flags & CORE_WAIT_KEEP))
        apply_forget_waiter(apply, waiter);
    else if (!waiter->away)
        apply_keep_place(apply, waiter);
    apply_grant_waiters(apply, store);
    return 0;
}

static void expire_waiter(struct apply *apply, struct core_waiter *waiter)
{
    bool grace = (waiter->flags & CORE_OPEN_GRACE) != 0;
    bool keep = waiter->file == 0 ? !grace : (waiter->flags & CORE_OPEN_AGAIN) != 0;

    if (!waiter->away)
        refuse(apply, waiter, grace ? -EAGAIN : -ETIMEDOUT);
    else /* the client may still return to the new worker, or wait to be served */
        keep = apply->core->is_resuming || (apply->record->flags & CORE_TIME_UNREAD) != 0;
    /* A place kept at the end of time would never expire. */
    if (!keep || apply->record->now_ms == UINT64_MAX)
        apply_forget_waiter(apply, waiter);
    else
        apply_keep_place(apply, waiter);
}

int apply_time(struct apply *apply)
{
    uint64_t now_ms = apply->record->now_ms;
    struct core_store *store;

    for (uint64_t at = 0; (store = idvec_find_after(&apply->core->index.waited, at));
         at = store->id) {
        uint64_t id;
        bool kept;

        while (lock_next_expired(&store->lock, now_ms, &id, &kept))
            expire_waiter(apply, core_waiter(apply->core, id));
        apply_grant_waiters(apply, store);
    }
    apply_expire_tickets(apply->core, now_ms);
    return 0;
}
