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
static int check_order(const struct check *check, const char *kind, const struct idvec *vec,
                       uint64_t next)
{
    uint64_t before = 0;

    for (size_t i = 0; i < vec->count; i++) {
        uint64_t id = *(const uint64_t *)vec->items[i];

        if (id <= before || id >= next)
            return core_wrong(check->failure, kind, id, "its number is out of order");
        before = id;
    }
    return 0;
}

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
        return core_wrong(check->failure, "store", store->id,
                          "its lock and its layout disagree on what is committed");
    if (!fixed && (!core_is_zero(store->hash, sizeof store->hash) ||
                   !core_is_zero(store->group, sizeof store->group)))
        return core_wrong(check->failure, "store", store->id,
                          "it has a hash or a group without a commit");
    if (store->contents != 0 && (!store->lock.committed || store->lock.bare ||
                                 store->contents >= check->core->next_contents))
        return core_wrong(check->failure, "store", store->id,
                          "it has a contents id without committed bytes, or of another's number");
    if (fixed && !store->lock.bare && layout_check(fixed, false, message, sizeof message) < 0)
        return core_wrong(check->failure, "store", store->id, "its committed layout is invalid");
    if (working && (!writer || writer->mode != LOCK_MODE_RW))
        return core_wrong(check->failure, "store", store->id,
                          "it has a working copy without a writer");
    if (fixed && layout_is_immutable(fixed) && !is_left_alone(store, writer))
        return core_wrong(check->failure, "store", store->id,
                          "its immutable layout is only sealed, or its writer could change it");
    if (working && layout_is_immutable(working))
        return core_wrong(check->failure, "store", store->id, "its working copy is immutable");
    if (store->lock.sealed && writer && writer->mode != LOCK_MODE_RW_DATA)
        return core_wrong(check->failure, "store", store->id,
                          "a session has RW although a layout is sealed");
    if (fixed && working && layout_next_slot(working) < layout_next_slot(fixed))
        return core_wrong(check->failure, "store", store->id, "its working copy would reuse slots");
    return 0;
}

static int check_lock(const struct check *check, const struct core_store *store)
{
    const struct lock *lock = &store->lock;
    size_t writers = 0;

    if (lock->patience_ms != check->core->options.patience_ms)
        return core_wrong(check->failure, "store", store->id,
                          "its lock has another patience than the mount");
    for (size_t i = 0; i < lock->session_count; i++)
        writers += lock->sessions[i].mode != LOCK_MODE_RO;
    if (writers > 0 && lock->session_count > 1)
        return core_wrong(check->failure, "store", store->id,
                          "it has a writer and another session");
    if (lock->session_count > writers && !lock->committed)
        return core_wrong(check->failure, "store", store->id,
                          "it has readers and no committed layout");
    if (check->core->lost && lock->session_count == 0 && store->fixed &&
        store->places.place == CORE_PLACE_DEVICE)
        return core_wrong(check->failure, "store", store->id,
                          "it has a layout on a lost device and no session");
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
            return core_wrong(check->failure, "store", store->id, "its writers are not sorted");
        before = writer;
    }
    if (store->writer_count > CORE_MAX_WRITERS || (store->unseen_writer && store->lock.sealed))
        return core_wrong(check->failure, "store", store->id,
                          "it has too many writers, or a sealed layout and an invisible writer");
    if (!store->fixed && !core_get_writer(check->core, store->id) &&
        (store->writer_count > 0 || store->unseen_writer))
        return core_wrong(check->failure, "store", store->id,
                          "it has writers and no memory to write");
    return 0;
}

static int check_store(const struct check *check, const struct core_store *store)
{
    int error;

    if (!core_is_text(store->name, sizeof store->name) || core_check_store_name(store->name) < 0)
        return core_wrong(check->failure, "store", store->id, "its name is invalid");
    if (store->mode & ~07777u || !core_is_text(store->last_error, sizeof store->last_error))
        return core_wrong(check->failure, "store", store->id,
                          "its mode or its last error is invalid");
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
        return core_wrong(check->failure, "session", session->id,
                          "it is both exclusive and implicit");
    if ((session->opener != 0) != (session->exclusive || session->implicit) ||
        session->opener >= check->core->next_id)
        return core_wrong(check->failure, "session", session->id,
                          "the file that took it is missing or unexpected");
    if (session->exclusive && !session->ending && (!opener || opener->session != session->id))
        return core_wrong(check->failure, "session", session->id,
                          "the file that took it has left it");
    if (session->files == 0 && !session->ending)
        return core_wrong(check->failure, "session", session->id,
                          "it has no files and is not ending");
    return 0;
}

static int check_session(struct check *check, size_t index)
{
    const struct core_session *session = check->core->sessions.items[index];
    size_t at = core_find_index(&check->core->stores, session->store);
    const struct core_store *store;
    const struct lock_session *held;

    if (at == check->core->stores.count)
        return core_wrong(check->failure, "session", session->id, "its store is gone");
    store = check->core->stores.items[at];
    held = &store->lock.sessions[check->next_session[at]++];
    if (check->next_session[at] > store->lock.session_count || held->id != session->id ||
        held->mode != session->mode)
        return core_wrong(check->failure, "session", session->id,
                          "its lock has another session in its place");
    if (session->files != check->session_files[index])
        return core_wrong(check->failure, "session", session->id, "its count of files is wrong");
    if ((session->any && session->mode != LOCK_MODE_RO) ||
        (!session->holds && (!session->implicit || session->mode != LOCK_MODE_RO)))
        return core_wrong(check->failure, "session", session->id,
                          "its `holds` or `any` does not fit its mode");
    if (session->mode != LOCK_MODE_RW && (session->touched || session->reserved_bytes > 0 ||
                                          session->due_bytes > 0 || session->making_bytes > 0))
        return core_wrong(check->failure, "session", session->id,
                          "a reader has a reservation or has touched bytes");
    if (session->drawn_bytes > session->making_bytes)
        return core_wrong(check->failure, "session", session->id,
                          "more bytes are drawn for it than are made");
    if (!core_is_text(session->comm, sizeof session->comm))
        return core_wrong(check->failure, "session", session->id,
                          "the name of its program is not terminated");
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
            error = core_wrong(check->failure, "session", session->id,
                               "the sum of all reservations overflows");
        reserved_bytes += session->reserved_bytes;
    }
    for (size_t i = 0; i < core->stores.count && error == 0; i++) {
        const struct core_store *store = core->stores.items[i];

        if (check->next_session[i] != store->lock.session_count)
            error = core_wrong(check->failure, "store", store->id,
                               "its lock has a session that does not exist");
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
        return core_wrong(check->failure, "file", file->id, "its kind or its flags are invalid");
    if (file->store >= core->next_id || (numbered && file->serial >= core->next_id))
        return core_wrong(check->failure, "file", file->id,
                          "its store or its serial was never used");
    if (file->holds && file->kind != CORE_KIND_REGION)
        return core_wrong(check->failure, "file", file->id,
                          "it holds a region and is not a region's file");
    if (file->session >= core->next_session || (file->store == 0 && file->session != 0))
        return core_wrong(check->failure, "file", file->id, "its session never existed");
    if (at == core->sessions.count)
        return 0;
    if (((const struct core_session *)core->sessions.items[at])->store != file->store)
        return core_wrong(check->failure, "file", file->id, "its session is of another store");
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
        return core_wrong(check->failure, "waiter", waiter->id,
                          "its file is gone or has another waiter");
    check->file_waits[at] = true;
    file = check->core->files.items[at];
    if (file->kind != CORE_KIND_CTL || file->store != waiter->store || file->uid != waiter->uid ||
        core_session(check->core, file->session))
        return core_wrong(check->failure, "waiter", waiter->id,
                          "its file cannot wait for this store");
    return 0;
}

static int check_wish(const struct check *check, const struct core_waiter *waiter)
{
    if (waiter->file ? waiter->kind != CORE_KIND_CTL
                     : !core_can_wish(waiter->kind, (uint32_t)waiter->wish))
        return core_wrong(check->failure, "waiter", waiter->id, "its kind does not allow its wish");
    if (waiter->flags & ~CORE_OPEN_FLAGS ||
        (waiter->kind == CORE_KIND_ALLOCATION && waiter->serial >= check->core->next_id))
        return core_wrong(check->failure, "waiter", waiter->id,
                          "its flags or its serial are invalid");
    if (waiter->file == 0 && waiter->flags & CORE_ACQUIRE_FLAGS)
        return core_wrong(check->failure, "waiter", waiter->id, "an open has flags of ACQUIRE");
    if (waiter->reserve_bytes > 0 && (waiter->file == 0 || waiter->wish == LOCK_WISH_RO))
        return core_wrong(check->failure, "waiter", waiter->id, "it cannot have a reservation");
    return 0;
}

static int check_waiter(struct check *check, const struct core_waiter *waiter)
{
    size_t at = core_find_index(&check->core->stores, waiter->store);
    const struct lock_waiter *queued;
    const struct core_store *store;
    int error;

    if (at == check->core->stores.count)
        return core_wrong(check->failure, "waiter", waiter->id, "its store is gone");
    store = check->core->stores.items[at];
    queued = &store->lock.waiters[check->next_waiter[at]++];
    if (check->next_waiter[at] > store->lock.waiter_count || queued->id != waiter->id ||
        queued->wish != waiter->wish || (queued->kept_until_ms != 0) != waiter->away ||
        queued->looking != (waiter->away && core_waiter_counts(waiter)))
        return core_wrong(check->failure, "waiter", waiter->id,
                          "its lock has another waiter in its place");
    if (!waiter->grant.session || (waiter->grant.file == NULL) != (waiter->file != 0))
        return core_wrong(check->failure, "waiter", waiter->id, "its grant has no memory");
    if (!core_is_text(waiter->comm, sizeof waiter->comm))
        return core_wrong(check->failure, "waiter", waiter->id,
                          "the name of its program is not terminated");
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
            error = core_wrong(check->failure, "store", store->id,
                               "its lock has a waiter that does not exist");
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
        return core_wrong(
            check->failure, "ticket", ticket->id,
            "it is for a region that does not exist, or has members of other tickets");
    if (ticket->region == 0 && !session)
        return core_wrong(check->failure, "ticket", ticket->id, "its session is gone");
    if (session && ticket->writable && session->mode == LOCK_MODE_RO)
        return core_wrong(check->failure, "ticket", ticket->id, "its session only reads");
    if (ticket->serial >= check->core->next_id || (ticket->serial != 0 && ticket->count != 1) ||
        ticket->first > LAYOUT_MAX_ALLOCATIONS ||
        ticket->count > LAYOUT_MAX_ALLOCATIONS - ticket->first)
        return core_wrong(check->failure, "ticket", ticket->id, "no layout has its range");
    for (size_t i = 0; i < index; i++) {
        const struct core_ticket *other = check->core->tickets.items[i];

        if (memcmp(other->secret, ticket->secret, sizeof ticket->secret) == 0)
            return core_wrong(check->failure, "ticket", ticket->id,
                              "another ticket has its secret");
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
