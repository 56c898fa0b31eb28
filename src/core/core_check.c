/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The invariants of a core between any two records. Every count and index is computed again and
 * compared. The cost is a few passes over all objects.
 */
#include "core/core_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- stores --------------------------------------------------------------------------------- */

/* True if the immutable layout is committed, and a writer has none of its allocations. */
static bool is_left_alone(const struct core_store *store, const struct core_session *writer)
{
    const struct layout *working = store->working;

    if (!store->lock.committed || (writer && !working))
        return false;
    for (size_t i = 0; working && i < layout_count_allocations(working); i++)
        if (layout_find_serial(store->fixed, layout_at_rank(working, i)->serial))
            return false;
    return true;
}

static int check_layouts(const struct check *check, const struct core_store *store)
{
    const struct layout *fixed = store->fixed, *working = store->working;
    const struct core_session *writer = core_get_writer(check->core, store->id);
    char message[sizeof store->last_error];

    if ((fixed != NULL) != (store->encoding != NULL) ||
        (fixed != NULL) != (store->lock.committed || store->lock.sealed) ||
        (store->lock.committed && store->lock.sealed))
        return core_wrong(check, "its lock and its layout disagree on what is committed");
    if (!fixed && (!core_is_zero(store->hash, sizeof store->hash) ||
                   !core_is_zero(store->group, sizeof store->group)))
        return core_wrong(check, "it has a hash or a group without a commit");
    if (store->contents != 0 && (!store->lock.committed || store->lock.bare ||
                                 store->contents >= check->core->next_contents))
        return core_wrong(check,
                          "it has a contents id without committed bytes, or of another's number");
    if (fixed && !store->lock.bare && layout_check(fixed, false, message, sizeof message) < 0)
        return core_wrong(check, "its committed layout is invalid");
    if (working && (!writer || writer->mode != LOCK_MODE_RW))
        return core_wrong(check, "it has a working copy without a writer");
    if (fixed && layout_is_immutable(fixed) && !is_left_alone(store, writer))
        return core_wrong(check,
                          "its immutable layout is only sealed, or its writer could change it");
    if (working && layout_is_immutable(working))
        return core_wrong(check, "its working copy is immutable");
    if (store->lock.sealed && writer && writer->mode != LOCK_MODE_RW_DATA)
        return core_wrong(check, "a session has RW although a layout is sealed");
    if (fixed && working && layout_next_slot(working) < layout_next_slot(fixed))
        return core_wrong(check, "its working copy would reuse slots");
    return 0;
}

static int check_lock(const struct check *check, const struct core_store *store)
{
    const struct lock *lock = &store->lock;
    size_t writers = 0;

    if (lock->patience_ms != check->core->options.patience_ms)
        return core_wrong(check, "its lock has another patience than the mount");
    for (size_t i = 0; i < lock->session_count; i++)
        writers += lock->sessions[i].mode != LOCK_MODE_RO;
    if (writers > 0 && lock->session_count > 1)
        return core_wrong(check, "it has a writer and another session");
    if (lock->session_count > writers && !lock->committed)
        return core_wrong(check, "it has readers and no committed layout");
    if (check->core->lost && lock->session_count == 0 && store->fixed &&
        store->places.place == CORE_PLACE_DEVICE)
        return core_wrong(check, "it has a layout on a lost device and no session");
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
            return core_wrong(check, "its writers are not sorted");
        before = writer;
    }
    if (store->writer_count > CORE_MAX_WRITERS || (store->unseen_writer && store->lock.sealed))
        return core_wrong(check,
                          "it has too many writers, or a sealed layout and an invisible writer");
    if (!store->fixed && !core_get_writer(check->core, store->id) &&
        (store->writer_count > 0 || store->unseen_writer))
        return core_wrong(check, "it has writers and no memory to write");
    return 0;
}

static int check_store(struct check *check, const void *item)
{
    const struct core_store *store = item;
    int error;

    if (!core_is_text(store->name, sizeof store->name) || core_check_store_name(store->name) < 0)
        return core_wrong(check, "its name is invalid");
    if (store->mode & ~07777u || !core_is_text(store->last_error, sizeof store->last_error))
        return core_wrong(check, "its mode or its last error is invalid");
    error = check_layouts(check, store);
    if (error == 0)
        error = check_writers(check, store);
    return error < 0 ? error : check_lock(check, store);
}

/* ---- sessions ------------------------------------------------------------------------------- */

static int check_opener(const struct check *check, const struct core_session *session)
{
    const struct core_file *opener = core_file(check->core, session->opener);

    if (session->exclusive && session->implicit)
        return core_wrong(check, "it is both exclusive and implicit");
    if ((session->opener != 0) != (session->exclusive || session->implicit) ||
        session->opener >= check->core->next_id)
        return core_wrong(check, "the file that took it is missing or unexpected");
    if (session->exclusive && !session->ending && (!opener || opener->session != session->id))
        return core_wrong(check, "the file that took it has left it");
    if (session->files == 0 && !session->ending)
        return core_wrong(check, "it has no files and is not ending");
    return 0;
}

static int check_session(struct check *check, const void *item)
{
    const struct core_session *session = item;
    size_t at = core_find_index(&check->core->stores, session->store);
    const struct core_store *store;

    if (at == check->core->stores.count)
        return core_wrong(check, "its store is gone");
    store = check->core->stores.items[at];
    const struct lock_session *held = &store->lock.sessions[check->next_session[at]++];
    if (check->next_session[at] > store->lock.session_count || held->id != session->id ||
        held->mode != session->mode)
        return core_wrong(check, "its lock has another session in its place");
    if (session->files != check->session_files[check->index])
        return core_wrong(check, "its count of files is wrong");
    if ((session->any && session->mode != LOCK_MODE_RO) ||
        (!session->holds && (!session->implicit || session->mode != LOCK_MODE_RO)))
        return core_wrong(check, "its `holds` or `any` does not fit its mode");
    if (session->mode != LOCK_MODE_RW && (session->touched || session->reserved_bytes > 0 ||
                                          session->due_bytes > 0 || session->making_bytes > 0))
        return core_wrong(check, "a reader has a reservation or has touched bytes");
    if (session->drawn_bytes > session->making_bytes)
        return core_wrong(check, "more bytes are drawn for it than are made");
    if (!core_is_text(session->comm, sizeof session->comm))
        return core_wrong(check, "the name of its program is not terminated");
    return check_opener(check, session);
}

/* Checks the sum of all reservations. */
static int check_reserved(const struct check *check)
{
    const struct core *core = check->core;
    uint64_t reserved_bytes = 0;

    for (size_t i = 0; i < core->sessions.count; i++) {
        const struct core_session *session = core->sessions.items[i];

        if (session->reserved_bytes > UINT64_MAX - reserved_bytes)
            return core_wrong(check, "the sum of all reservations overflows");
        reserved_bytes += session->reserved_bytes;
    }
    if (reserved_bytes != core->reserved_bytes)
        return core_wrong(check, "the sum of all reservations is wrong");
    return 0;
}

/* ---- files ---------------------------------------------------------------------------------- */

static int check_file(struct check *check, const void *item)
{
    const struct core_file *file = item;
    const struct core *core = check->core;
    size_t at = core_find_index(&core->sessions, file->session);
    bool numbered = file->kind == CORE_KIND_ALLOCATION || file->kind == CORE_KIND_ENTRY ||
                    file->kind == CORE_KIND_REGION;

    if (file->kind <= CORE_KIND_NONE || file->kind >= CORE_KIND_COUNT ||
        file->flags & ~CORE_OPEN_FLAGS)
        return core_wrong(check, "its kind or its flags are invalid");
    if (file->store >= core->next_id || (numbered && file->serial >= core->next_id))
        return core_wrong(check, "its store or its serial was never used");
    if (file->holds && file->kind != CORE_KIND_REGION)
        return core_wrong(check, "it holds a region and is not a region's file");
    if (file->session >= core->next_session || (file->store == 0 && file->session != 0))
        return core_wrong(check, "its session never existed");
    if (at == core->sessions.count)
        return 0;
    if (((const struct core_session *)core->sessions.items[at])->store != file->store)
        return core_wrong(check, "its session is of another store");
    check->session_files[at]++;
    return 0;
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
        return core_wrong(check, "its file is gone or has another waiter");
    check->file_waits[at] = true;
    file = check->core->files.items[at];
    if (file->kind != CORE_KIND_CTL || file->store != waiter->store || file->uid != waiter->uid ||
        core_session(check->core, file->session))
        return core_wrong(check, "its file cannot wait for this store");
    return 0;
}

static int check_wish(const struct check *check, const struct core_waiter *waiter)
{
    if (waiter->file ? waiter->kind != CORE_KIND_CTL
                     : !core_can_wish(waiter->kind, (uint32_t)waiter->wish))
        return core_wrong(check, "its kind does not allow its wish");
    if (waiter->flags & ~CORE_OPEN_FLAGS ||
        (waiter->kind == CORE_KIND_ALLOCATION && waiter->serial >= check->core->next_id))
        return core_wrong(check, "its flags or its serial are invalid");
    if (waiter->file == 0 && waiter->flags & CORE_ACQUIRE_FLAGS)
        return core_wrong(check, "an open has flags of ACQUIRE");
    if (waiter->reserve_bytes > 0 && (waiter->file == 0 || waiter->wish == LOCK_WISH_RO))
        return core_wrong(check, "it cannot have a reservation");
    return 0;
}

static int check_waiter(struct check *check, const void *item)
{
    const struct core_waiter *waiter = item;
    size_t at = core_find_index(&check->core->stores, waiter->store);
    const struct core_store *store;

    if (at == check->core->stores.count)
        return core_wrong(check, "its store is gone");
    store = check->core->stores.items[at];
    const struct lock_waiter *queued = &store->lock.waiters[check->next_waiter[at]++];
    if (check->next_waiter[at] > store->lock.waiter_count || queued->id != waiter->id ||
        queued->wish != waiter->wish || (queued->kept_until_ms != 0) != waiter->away ||
        queued->looking != (waiter->away && core_waiter_counts(waiter)))
        return core_wrong(check, "its lock has another waiter in its place");
    if (!waiter->grant.session || (waiter->grant.file == NULL) != (waiter->file != 0))
        return core_wrong(check, "its grant has no memory");
    if (!core_is_text(waiter->comm, sizeof waiter->comm))
        return core_wrong(check, "the name of its program is not terminated");
    int error = check_asker(check, waiter);
    return error < 0 ? error : check_wish(check, waiter);
}

static int check_waiting(const struct check *check)
{
    const struct core *core = check->core;
    size_t reserving = 0;

    if (core->waiters.count > 0 && (core->draining || core->lost))
        return core_wrong(check,
                          "there are waiters although the mount is drained or the device is lost");
    for (size_t i = 0; i < core->waiters.count; i++)
        reserving += ((const struct core_waiter *)core->waiters.items[i])->reserve_bytes > 0;
    return reserving == core->reserving
               ? 0
               : core_wrong(check, "the count of waiters for reservations is wrong");
}

/* Checks that the store's lock has no more than its sessions and waiters, which are counted. */
static int check_places_taken(struct check *check, const void *item)
{
    const struct core_store *store = item;

    if (check->next_session[check->index] != store->lock.session_count)
        return core_wrong(check, "its lock has a session that does not exist");
    if (check->next_waiter[check->index] != store->lock.waiter_count)
        return core_wrong(check, "its lock has a waiter that does not exist");
    return 0;
}

/* ---- tickets -------------------------------------------------------------------------------- */

static int check_ticket(struct check *check, const void *item)
{
    const struct core_ticket *ticket = item;
    const struct core_session *session = core_session(check->core, ticket->session);

    if (ticket->region != 0 &&
        (!core_find_region(check->core, ticket->region) || ticket->session != 0 ||
         ticket->writable || ticket->serial != 0 || ticket->first != 0 || ticket->count != 1))
        return core_wrong(
            check, "it is for a region that does not exist, or has members of other tickets");
    if (ticket->region == 0 && !session)
        return core_wrong(check, "its session is gone");
    if (session && ticket->writable && session->mode == LOCK_MODE_RO)
        return core_wrong(check, "its session only reads");
    if (ticket->serial >= check->core->next_id || (ticket->serial != 0 && ticket->count != 1) ||
        ticket->first > LAYOUT_MAX_ALLOCATIONS ||
        ticket->count > LAYOUT_MAX_ALLOCATIONS - ticket->first)
        return core_wrong(check, "no layout has its range");
    for (size_t i = 0; i < check->index; i++) {
        const struct core_ticket *other = check->core->tickets.items[i];

        if (memcmp(other->secret, ticket->secret, sizeof ticket->secret) == 0)
            return core_wrong(check, "another ticket has its secret");
    }
    return 0;
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
        recount->error = failure_set(recount->check->failure, -EINVAL,
                                     "user %" PRIu32 ": it has more than the bound", uid);
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
                failure_set(recount->check->failure, -EINVAL, "the users' shares of %s are wrong",
                            core_bound_name(bound));
        share_free(&recount->anew[bound]);
    }
    return recount->error == -ENOMEM ? failure_no_memory(recount->check->failure) : recount->error;
}

static int check_mount_shares(struct check *check)
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
static int check_store_shares(struct check *check, const void *item)
{
    const struct core_store *store = item;
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

/* ---- all of it ------------------------------------------------------------------------------ */

static int check_stores(struct check *check)
{
    const struct core *core = check->core;
    int error = core_check_each(check, "store", &core->stores, core->next_id, check_store);

    if (error == 0 && core->stores.count > CORE_MAX_STORES)
        return failure_set(check->failure, -EINVAL, "there are more than %u stores",
                           CORE_MAX_STORES);
    return error < 0 ? error : core_check_index(check);
}

static int check_files(struct check *check)
{
    const struct core *core = check->core;

    return core_check_each(check, "file", &core->files, core->next_id, check_file);
}

static int check_sessions(struct check *check)
{
    const struct core *core = check->core;
    int error =
        core_check_each(check, "session", &core->sessions, core->next_session, check_session);

    return error < 0 ? error : check_reserved(check);
}

/* The sessions are counted. */
static int check_waiters(struct check *check)
{
    const struct core *core = check->core;
    int error = core_check_each(check, "waiter", &core->waiters, core->next_waiter, check_waiter);

    if (error == 0)
        error = core_check_each(check, "store", &core->stores, core->next_id, check_places_taken);
    return error < 0 ? error : check_waiting(check);
}

static int check_tickets(struct check *check)
{
    const struct core *core = check->core;

    return core_check_each(check, "ticket", &core->tickets, core->next_ticket, check_ticket);
}

static int check_shares(struct check *check)
{
    int error = check_mount_shares(check);

    return error < 0 ? error
                     : core_check_each(check, "store", &check->core->stores, check->core->next_id,
                                       check_store_shares);
}

static int check_all(struct check *check)
{
    static int (*const parts[])(struct check * check) = {
        check_stores,        check_files,         check_sessions,    check_waiters,
        check_tickets,       core_check_regions,  core_check_places, core_check_events,
        core_check_mount,    core_check_memories, core_check_pools,  core_check_ids,
        core_check_wire_ids, check_shares,
    };
    int error = 0;

    for (size_t i = 0; i < sizeof parts / sizeof parts[0] && error == 0; i++)
        error = parts[i](check);
    return error;
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
