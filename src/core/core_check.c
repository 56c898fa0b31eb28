/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariants of a core between any two records. Every count and index is computed again and
 * compared. The cost is a few passes over all objects.
 */
#include "core/core_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Counts made while the objects are checked. */
struct check {
    const struct core *core;
    struct failure *failure;
    /* position in each store's lock */
    size_t next_session[CORE_MAX_STORES], next_waiter[CORE_MAX_STORES];
    uint64_t *session_files; /* by index of the session */
    bool *file_waits;
};

#define WRONG(check, ...) failure_set((check)->failure, -EINVAL, __VA_ARGS__)

/* Checks that ids rise and are below the counter. */
static int check_order(const struct check *check, const char *what, const struct idvec *vec,
                       uint64_t next)
{
    uint64_t before = 0;

    for (size_t i = 0; i < vec->count; i++) {
        uint64_t id = *(const uint64_t *)vec->items[i];

        if (id <= before || id >= next)
            return WRONG(check, "%s %" PRIu64 ": its number is out of order", what, id);
        before = id;
    }
    return 0;
}

/* ---- stores --------------------------------------------------------------------------------- */

static int check_layouts(const struct check *check, const struct core_store *store)
{
    const struct layout *fixed = store->fixed, *working = store->working;
    const struct core_session *writer = core_get_writer(check->core, store->id);
    char message[sizeof store->last_error];

    if ((fixed != NULL) != (store->encoding != NULL) ||
        (fixed != NULL) != (store->lock.committed || store->lock.sealed) ||
        (store->lock.committed && store->lock.sealed))
        return WRONG(check,
                     "store %" PRIu64 ": its lock and its layout disagree on what is committed",
                     store->id);
    if (!fixed && (!core_is_zero(store->hash, sizeof store->hash) ||
                   !core_is_zero(store->group, sizeof store->group)))
        return WRONG(check, "store %" PRIu64 ": it has a hash or a group without a commit",
                     store->id);
    if (fixed && !store->lock.bare && layout_check(fixed, false, message, sizeof message) < 0)
        return WRONG(check, "store %" PRIu64 ": its committed layout is invalid", store->id);
    if (working && (!writer || writer->mode != LOCK_MODE_RW))
        return WRONG(check, "store %" PRIu64 ": it has a working copy without a writer", store->id);
    if (store->lock.sealed && writer && writer->mode != LOCK_MODE_RW_DATA)
        return WRONG(check, "store %" PRIu64 ": a session has RW although a layout is sealed",
                     store->id);
    if (fixed && working && layout_next_slot(working) < layout_next_slot(fixed))
        return WRONG(check, "store %" PRIu64 ": its working copy would reuse slots", store->id);
    return 0;
}

static int check_lock(const struct check *check, const struct core_store *store)
{
    const struct lock *lock = &store->lock;
    size_t writers = 0;

    if (lock->patience_ms != check->core->options.patience_ms)
        return WRONG(check, "store %" PRIu64 ": its lock has another patience than the mount",
                     store->id);
    for (size_t i = 0; i < lock->session_count; i++)
        writers += lock->sessions[i].mode != LOCK_MODE_RO;
    if (writers > 0 && lock->session_count > 1)
        return WRONG(check, "store %" PRIu64 ": it has a writer and another session", store->id);
    if (lock->session_count > writers && !lock->committed)
        return WRONG(check, "store %" PRIu64 ": it has readers and no committed layout", store->id);
    if (check->core->lost && lock->session_count == 0 && store->fixed &&
        store->places.place == CORE_PLACE_DEVICE)
        return WRONG(check, "store %" PRIu64 ": it has a layout on a lost device and no session",
                     store->id);
    return 0;
}

/* Writers are visible and sorted; a sealed store has no invisible writer. */
static int check_writers(const struct check *check, const struct core_store *store)
{
    const struct core_process *before = NULL;

    for (size_t i = 0; i < store->writer_count; i++) {
        const struct core_process *writer = &store->writers[i];

        if (writer->pid == 0 ||
            (before && (before->pid > writer->pid ||
                        (before->pid == writer->pid && before->start >= writer->start))))
            return WRONG(check, "store %" PRIu64 ": its writers are not sorted", store->id);
        before = writer;
    }
    if (store->writer_count > CORE_MAX_WRITERS || (store->unseen_writer && store->lock.sealed))
        return WRONG(check,
                     "store %" PRIu64
                     ": it has too many writers, or a sealed layout and an invisible writer",
                     store->id);
    if (!store->fixed && !core_get_writer(check->core, store->id) &&
        (store->writer_count > 0 || store->unseen_writer))
        return WRONG(check, "store %" PRIu64 ": it has writers and no memory to write", store->id);
    return 0;
}

static int check_store(const struct check *check, const struct core_store *store)
{
    int error;

    if (!core_is_text(store->name, sizeof store->name) || core_check_store_name(store->name) < 0)
        return WRONG(check, "store %" PRIu64 ": its name is invalid", store->id);
    if (store->mode & ~07777u || !core_is_text(store->last_error, sizeof store->last_error))
        return WRONG(check, "store %" PRIu64 ": its mode or its last error is invalid", store->id);
    error = check_layouts(check, store);
    if (error == 0)
        error = check_writers(check, store);
    return error < 0 ? error : check_lock(check, store);
}

static int check_stores(const struct check *check)
{
    const struct core *core = check->core;
    int error = check_order(check, "store", &core->stores, core->next_id);

    if (error == 0 && core->stores.count > CORE_MAX_STORES)
        error = WRONG(check, "there are more than %u stores", CORE_MAX_STORES);
    for (size_t i = 0; i < core->stores.count && error == 0; i++)
        error = check_store(check, core->stores.items[i]);
    return error < 0 ? error : core_check_index(core, check->failure);
}

/* ---- sessions ------------------------------------------------------------------------------- */

static int check_opener(const struct check *check, const struct core_session *session)
{
    const struct core_file *opener = core_file(check->core, session->opener);

    if (session->exclusive && session->implicit)
        return WRONG(check, "session %" PRIu64 ": it is both exclusive and implicit", session->id);
    if ((session->opener != 0) != (session->exclusive || session->implicit) ||
        session->opener >= check->core->next_id)
        return WRONG(check, "session %" PRIu64 ": the file that took it is missing or unexpected",
                     session->id);
    if (session->exclusive && !session->ending && (!opener || opener->session != session->id))
        return WRONG(check, "session %" PRIu64 ": the file that took it has left it", session->id);
    if (session->files == 0 && !session->ending)
        return WRONG(check, "session %" PRIu64 ": it has no files and is not ending", session->id);
    return 0;
}

static int check_session(struct check *check, size_t index)
{
    const struct core_session *session = check->core->sessions.items[index];
    size_t at = core_find_index(&check->core->stores, session->store);
    const struct core_store *store;
    const struct lock_session *held;

    if (at == check->core->stores.count)
        return WRONG(check, "session %" PRIu64 ": its store is gone", session->id);
    store = check->core->stores.items[at];
    held = &store->lock.sessions[check->next_session[at]++];
    if (check->next_session[at] > store->lock.session_count || held->id != session->id ||
        held->mode != session->mode)
        return WRONG(check, "session %" PRIu64 ": its lock has another session in its place",
                     session->id);
    if (session->files != check->session_files[index])
        return WRONG(check, "session %" PRIu64 ": its count of files is wrong", session->id);
    if ((session->any && session->mode != LOCK_MODE_RO) ||
        (!session->holds && (!session->implicit || session->mode != LOCK_MODE_RO)))
        return WRONG(check, "session %" PRIu64 ": its `holds` or `any` does not fit its mode",
                     session->id);
    if (session->mode != LOCK_MODE_RW && (session->touched || session->reserved_bytes > 0 ||
                                          session->due_bytes > 0 || session->making_bytes > 0))
        return WRONG(check, "session %" PRIu64 ": a reader has a reservation or has touched bytes",
                     session->id);
    if (session->drawn_bytes > session->making_bytes)
        return WRONG(check, "session %" PRIu64 ": more bytes are drawn for it than are made",
                     session->id);
    if (!core_is_text(session->comm, sizeof session->comm))
        return WRONG(check, "session %" PRIu64 ": the name of its program is not terminated",
                     session->id);
    return check_opener(check, session);
}

static int check_sessions(struct check *check)
{
    const struct core *core = check->core;
    uint64_t reserved_bytes = 0;
    int error = check_order(check, "session", &core->sessions, core->next_session);

    for (size_t i = 0; i < core->sessions.count && error == 0; i++) {
        const struct core_session *session = core->sessions.items[i];

        error = check_session(check, i);
        if (session->reserved_bytes > UINT64_MAX - reserved_bytes)
            error = WRONG(check, "session %" PRIu64 ": the sum of all reservations overflows",
                          session->id);
        reserved_bytes += session->reserved_bytes;
    }
    for (size_t i = 0; i < core->stores.count && error == 0; i++) {
        const struct core_store *store = core->stores.items[i];

        if (check->next_session[i] != store->lock.session_count)
            error = WRONG(check, "store %" PRIu64 ": its lock has a session that does not exist",
                          store->id);
    }
    if (error == 0 && reserved_bytes != core->reserved_bytes)
        error = WRONG(check, "the sum of all reservations is wrong");
    return error;
}

/* ---- files ---------------------------------------------------------------------------------- */

static int check_file(struct check *check, const struct core_file *file)
{
    const struct core *core = check->core;
    size_t at = core_find_index(&core->sessions, file->session);
    bool numbered = file->kind == CORE_KIND_ALLOCATION || file->kind == CORE_KIND_ENTRY ||
                    file->kind == CORE_KIND_REGION;

    if (file->kind <= CORE_KIND_NONE || file->kind >= CORE_KIND_COUNT ||
        file->flags & ~CORE_OPEN_FLAGS)
        return WRONG(check, "file %" PRIu64 ": its kind or its flags are invalid", file->id);
    if (file->store >= core->next_id || (numbered && file->serial >= core->next_id))
        return WRONG(check, "file %" PRIu64 ": its store or its serial was never used", file->id);
    if (file->holds && file->kind != CORE_KIND_REGION)
        return WRONG(check, "file %" PRIu64 ": it holds a region and is not a region's file",
                     file->id);
    if (file->session >= core->next_session || (file->store == 0 && file->session != 0))
        return WRONG(check, "file %" PRIu64 ": its session never existed", file->id);
    if (at == core->sessions.count)
        return 0;
    if (((const struct core_session *)core->sessions.items[at])->store != file->store)
        return WRONG(check, "file %" PRIu64 ": its session is of another store", file->id);
    check->session_files[at]++;
    return 0;
}

static int check_files(struct check *check)
{
    const struct core *core = check->core;
    int error = check_order(check, "file", &core->files, core->next_id);

    for (size_t i = 0; i < core->files.count && error == 0; i++)
        error = check_file(check, core->files.items[i]);
    return error;
}

/* ---- waiters -------------------------------------------------------------------------------- */

/* The ctl of an ACQUIRE: a file of that store without a live session and without another waiter. */
static int check_asker(struct check *check, const struct core_waiter *waiter)
{
    size_t at = core_find_index(&check->core->files, waiter->file);
    const struct core_file *file;

    if (waiter->file == 0)
        return 0;
    if (at == check->core->files.count || check->file_waits[at])
        return WRONG(check, "waiter %" PRIu64 ": its file is gone or has another waiter",
                     waiter->id);
    check->file_waits[at] = true;
    file = check->core->files.items[at];
    if (file->kind != CORE_KIND_CTL || file->store != waiter->store || file->uid != waiter->uid ||
        core_session(check->core, file->session))
        return WRONG(check, "waiter %" PRIu64 ": its file cannot wait for this store", waiter->id);
    return 0;
}

static int check_wish(const struct check *check, const struct core_waiter *waiter)
{
    if (waiter->file ? waiter->kind != CORE_KIND_CTL
                     : !core_can_wish(waiter->kind, (uint32_t)waiter->wish))
        return WRONG(check, "waiter %" PRIu64 ": its kind does not allow its wish", waiter->id);
    if (waiter->flags & ~CORE_OPEN_FLAGS ||
        (waiter->kind == CORE_KIND_ALLOCATION && waiter->serial >= check->core->next_id))
        return WRONG(check, "waiter %" PRIu64 ": its flags or its serial are invalid", waiter->id);
    if (waiter->file == 0 && waiter->flags & CORE_ACQUIRE_FLAGS)
        return WRONG(check, "waiter %" PRIu64 ": an open has flags of ACQUIRE", waiter->id);
    if (waiter->reserve_bytes > 0 && (waiter->file == 0 || waiter->wish == LOCK_WISH_RO))
        return WRONG(check, "waiter %" PRIu64 ": it cannot have a reservation", waiter->id);
    return 0;
}

static int check_waiter(struct check *check, const struct core_waiter *waiter)
{
    size_t at = core_find_index(&check->core->stores, waiter->store);
    const struct lock_waiter *queued;
    const struct core_store *store;
    int error;

    if (at == check->core->stores.count)
        return WRONG(check, "waiter %" PRIu64 ": its store is gone", waiter->id);
    store = check->core->stores.items[at];
    queued = &store->lock.waiters[check->next_waiter[at]++];
    if (check->next_waiter[at] > store->lock.waiter_count || queued->id != waiter->id ||
        queued->wish != waiter->wish || (queued->kept_until_ms != 0) != waiter->away ||
        queued->looking != (waiter->away && core_waiter_counts(waiter)))
        return WRONG(check, "waiter %" PRIu64 ": its lock has another waiter in its place",
                     waiter->id);
    if (!waiter->grant.session || (waiter->grant.file == NULL) != (waiter->file != 0))
        return WRONG(check, "waiter %" PRIu64 ": its grant has no memory", waiter->id);
    if (!core_is_text(waiter->comm, sizeof waiter->comm))
        return WRONG(check, "waiter %" PRIu64 ": the name of its program is not terminated",
                     waiter->id);
    error = check_asker(check, waiter);
    return error < 0 ? error : check_wish(check, waiter);
}

static int check_waiters(struct check *check)
{
    const struct core *core = check->core;
    size_t reserving = 0;
    int error = check_order(check, "waiter", &core->waiters, core->next_waiter);

    if (error == 0 && core->waiters.count > 0 && (core->draining || core->lost))
        error =
            WRONG(check, "there are waiters although the mount is drained or the device is lost");
    for (size_t i = 0; i < core->waiters.count && error == 0; i++) {
        const struct core_waiter *waiter = core->waiters.items[i];

        error = check_waiter(check, waiter);
        reserving += waiter->reserve_bytes > 0;
    }
    for (size_t i = 0; i < core->stores.count && error == 0; i++) {
        const struct core_store *store = core->stores.items[i];

        if (check->next_waiter[i] != store->lock.waiter_count)
            error = WRONG(check, "store %" PRIu64 ": its lock has a waiter that does not exist",
                          store->id);
    }
    if (error == 0 && reserving != core->reserving)
        error = WRONG(check, "the count of waiters for reservations is wrong");
    return error;
}

/* ---- tickets -------------------------------------------------------------------------------- */

static int check_ticket(const struct check *check, size_t index)
{
    const struct core_ticket *ticket = check->core->tickets.items[index];
    const struct core_session *session = core_session(check->core, ticket->session);

    if (ticket->region != 0 &&
        (!core_find_region(check->core, ticket->region) || ticket->session != 0 ||
         ticket->writable || ticket->serial != 0 || ticket->first != 0 || ticket->count != 1))
        return WRONG(check,
                     "ticket %" PRIu64
                     ": it is for a region that does not exist, or has members of other tickets",
                     ticket->id);
    if (ticket->region == 0 && !session)
        return WRONG(check, "ticket %" PRIu64 ": its session is gone", ticket->id);
    if (session && ticket->writable && session->mode == LOCK_MODE_RO)
        return WRONG(check, "ticket %" PRIu64 ": its session only reads", ticket->id);
    if (ticket->serial >= check->core->next_id || (ticket->serial != 0 && ticket->count != 1) ||
        ticket->first > LAYOUT_MAX_ALLOCATIONS ||
        ticket->count > LAYOUT_MAX_ALLOCATIONS - ticket->first)
        return WRONG(check, "ticket %" PRIu64 ": no layout has its range", ticket->id);
    for (size_t i = 0; i < index; i++) {
        const struct core_ticket *other = check->core->tickets.items[i];

        if (memcmp(other->secret, ticket->secret, sizeof ticket->secret) == 0)
            return WRONG(check, "ticket %" PRIu64 ": another ticket has its secret", ticket->id);
    }
    return 0;
}

static int check_tickets(const struct check *check)
{
    const struct core *core = check->core;
    int error = check_order(check, "ticket", &core->tickets, core->next_ticket);

    for (size_t i = 0; i < core->tickets.count && error == 0; i++)
        error = check_ticket(check, i);
    return error;
}

/* ---- shares --------------------------------------------------------------------------------- */

/* Shares counted again, by enum core_bound; `shares` is NULL for bounds that are not counted. */
struct recount {
    const struct check *check;
    const struct share *shares[CORE_BOUND_MEMORY];
    struct share anew[CORE_BOUND_MEMORY];
    int error; /* the first one; nothing is counted after it */
};

static void begin_bound(struct recount *recount, enum core_bound bound, const struct share *share)
{
    recount->shares[bound] = share;
    share_init(&recount->anew[bound], share->limit);
}

static void take_again(struct recount *recount, enum core_bound bound, uint32_t uid, uint64_t more)
{
    struct share *anew = &recount->anew[bound];

    if (recount->error < 0)
        return;
    if (more > anew->limit - anew->taken)
        recount->error = WRONG(recount->check, "user %" PRIu32 ": it has more than the bound", uid);
    else
        recount->error = share_take(anew, uid, more);
}

static bool are_equal(const struct share *share, const struct share *anew)
{
    bool same = share->taken == anew->taken;

    for (size_t i = 0; i < anew->users.count && same; i++) {
        const struct share_user *user = anew->users.items[i];

        same = share_get_taken(share, (uint32_t)user->uid) == user->taken;
    }
    return same;
}

static int end_recount(struct recount *recount)
{
    for (enum core_bound bound = 0; bound < CORE_BOUND_MEMORY; bound++) {
        const struct share *share = recount->shares[bound];

        if (share && recount->error == 0 && !are_equal(share, &recount->anew[bound]))
            recount->error =
                WRONG(recount->check, "the users' shares of %s are wrong", core_bound_name(bound));
        share_free(&recount->anew[bound]);
    }
    return recount->error == -ENOMEM ? failure_no_memory(recount->check->failure) : recount->error;
}

static int check_mount_shares(const struct check *check)
{
    const struct core *core = check->core;
    const struct idvec *regions = &core->regions.items;
    struct recount recount = {.check = check};

    for (enum core_bound bound = 1; bound < CORE_MOUNT_BOUNDS; bound++)
        begin_bound(&recount, bound, &core->shares[bound]);
    for (size_t i = 0; i < core->files.count; i++) {
        const struct core_file *file = core->files.items[i];

        take_again(&recount, CORE_BOUND_FILES, file->uid, 1);
        take_again(&recount, CORE_BOUND_GATHERED, file->uid, file->gathered_bytes);
    }
    for (size_t i = 0; i < core->waiters.count; i++) {
        const struct core_waiter *waiter = core->waiters.items[i];

        take_again(&recount, CORE_BOUND_FILES, waiter->uid, waiter->file == 0);
    }
    for (size_t i = 0; i < core->tickets.count; i++)
        take_again(&recount, CORE_BOUND_TICKETS,
                   ((const struct core_ticket *)core->tickets.items[i])->holder, 1);
    for (size_t i = 0; i < regions->count; i++) {
        const struct region *region = regions->items[i];

        take_again(&recount, CORE_BOUND_REGIONS, region->uid, 1);
        take_again(&recount, CORE_BOUND_REGION_BYTES, region->uid,
                   region->name_bytes + region->key_bytes);
    }
    return end_recount(&recount);
}

/* The lock's sessions and waiters exist: check_sessions and check_waiters came before. */
static int check_store_shares(const struct check *check, const struct core_store *store)
{
    const struct core *core = check->core;
    const struct lock *lock = &store->lock;
    struct recount recount = {.check = check};

    begin_bound(&recount, CORE_BOUND_SESSIONS, &store->sessions);
    begin_bound(&recount, CORE_BOUND_WAITERS, &store->waiters);
    for (size_t i = 0; i < lock->session_count; i++)
        take_again(&recount, CORE_BOUND_SESSIONS, core_session(core, lock->sessions[i].id)->uid, 1);
    for (size_t i = 0; i < lock->waiter_count; i++)
        take_again(&recount, CORE_BOUND_WAITERS, core_waiter(core, lock->waiters[i].id)->uid, 1);
    return end_recount(&recount);
}

static int check_shares(const struct check *check)
{
    int error = check_mount_shares(check);

    for (size_t i = 0; i < check->core->stores.count && error == 0; i++)
        error = check_store_shares(check, check->core->stores.items[i]);
    return error;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int check_all(struct check *check)
{
    static int (*const parts[])(const struct core *core, struct failure *failure) = {
        core_check_regions,  core_check_places, core_check_events, core_check_mount,
        core_check_memories, core_check_pools,  core_check_ids,    core_check_wire_ids,
    };
    int error = check_stores(check);

    if (error == 0)
        error = check_files(check);
    if (error == 0)
        error = check_sessions(check);
    if (error == 0)
        error = check_waiters(check);
    if (error == 0)
        error = check_tickets(check);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && error == 0; i++)
        error = parts[i](check->core, check->failure);
    return error < 0 ? error : check_shares(check);
}

int core_check(const struct core *core, struct failure *failure)
{
    struct check check = {.core = core, .failure = failure};
    int error;

    check.session_files = calloc(core->sessions.count + 1, sizeof *check.session_files);
    check.file_waits = calloc(core->files.count + 1, sizeof *check.file_waits);
    if (check.session_files && check.file_waits)
        error = check_all(&check);
    else
        error = failure_no_memory(failure);
    free(check.session_files);
    free(check.file_waits);
    return error;
}
