/* SPDX-License-Identifier: Apache-2.0 */
/* open - opening, creating and acquiring: joining, waiting, being granted, being
 * interrupted */
#include "service/service_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How long after a FLUSH a RELEASE may still be on its way for a grace period to make sense. */
#define FLUSH_RECENT_MS 50u

static struct core_process caller_process(const struct service_caller *caller)
{
    return caller->process_count ? caller->processes[0] : (struct core_process){0};
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint32_t open_flags(const struct service_open *open)
{
    return (open->read ? CORE_OPEN_READ : 0) | (open->write ? CORE_OPEN_WRITE : 0) |
           (open->nonblock ? CORE_OPEN_NONBLOCK : 0);
}

static bool is_closing(const struct service *s, uint64_t session)
{
    const struct run *run = idvec_find(&s->runs, session);
    return run && run->closing;
}

/* The session of `store` that this caller belongs to and that does not end just now. */
static const struct core_session *find_membership(const struct service *s, uint64_t store,
                                                  const struct service_caller *caller)
{
    const struct core_session *session =
        core_find_membership(s->core, store, caller->processes, caller->process_count);
    return session && !is_closing(s, session->id) ? session : NULL;
}

bool service_has_joinable(const struct service *s, uint64_t store)
{
    return core_has_joinable(s->core, store);
}

int service_find_writer(struct service *s, uint64_t store, const struct service_caller *caller,
                        uint64_t *session)
{
    const struct core_session *found = find_membership(s, store, caller);
    if (!found || found->mode != LOCK_MODE_RW)
        return -ENOLCK;
    *session = found->id;
    return 0;
}

int service_file_writer(struct service *s, uint64_t file, uint64_t *session)
{
    const struct core_file *found = core_find_file(s->core, file);
    if (!found || !(found->flags & CORE_OPEN_WRITE))
        return -EBADF;
    if (found->session == 0)
        return -ENOLCK;
    const struct core_session *held = core_find_session(s->core, found->session);
    if (!held || is_closing(s, held->id))
        return -ESTALE;
    if (held->mode != LOCK_MODE_RW)
        return -ENOLCK;
    *session = held->id;
    return 0;
}

/* ---- parking ----------------------------------------------------------------------------- */

static void parked_free(struct parked *parked)
{
    if (!parked)
        return;
    free((char *)parked->create);
    free(parked);
}

/* What happens at the grant is in `how`: acquire, truncate, create (copied). NULL: no memory. */
static struct parked *parked_new(struct service_request *request, const struct parked *how)
{
    struct parked *parked = malloc(sizeof *parked);
    if (!parked)
        return NULL;
    *parked = *how;
    parked->request = request;
    parked->create = how->create ? strdup(how->create) : NULL;
    if (!how->create || parked->create)
        return parked;
    parked_free(parked);
    return NULL;
}

int service_park(struct service *s, struct parked *parked, uint64_t waiter)
{
    parked->id = waiter;
    parked->park_until_ms = add_saturated(service_now(s), s->options.parking_max_ms);
    int error = idvec_insert(&s->parked, parked);
    if (!error)
        parked->request->parked = parked;
    return error;
}

/* Ends a wait from our side; the core's effect then answers the request. */
static void end_wait(struct service *s, uint64_t waiter, int error, uint32_t flags)
{
    struct record record = {
        .type = RECORD_WAIT_END, .waiter = waiter, .count = (uint64_t)-error, .flags = flags};
    service_apply_record(s, &record, NULL);
    struct effect refused = {.type = EFFECT_REFUSED, .waiter = waiter, .error = error};
    service_on_refused(s, &refused); /* if the core did not say it */
}

/* Applies a record that asks for the lock. Where it must wait, the request is parked before
 * anything else happens: what else the record has caused may end other sessions at once, and so
 * grant this waiter, which is then answered already. True: granted at once, or an error. */
static bool ask(struct service *s, struct record *record, const struct parked *how,
                struct service_request *request, struct outcome *outcome, int *error)
{
    struct parked *parked = parked_new(request, how);
    uint64_t waiter = 0;
    *error = parked ? s->host.get_random(s->host.context, record->bytes16, sizeof record->bytes16)
                    : -ENOMEM;
    if (!*error)
        *error = service_apply_asking(s, record, outcome, parked, &waiter);
    if (waiter == 0) {
        parked_free(parked);
        return true;
    }
    if (!*error)
        return false;
    end_wait(s, waiter, *error, 0);
    parked_free(parked);
    return true;
}

void service_on_refused(struct service *s, const struct effect *effect)
{
    struct parked *parked = idvec_remove(&s->parked, effect->waiter);
    if (!parked)
        return;
    struct service_request *request = parked->request;
    parked_free(parked);
    service_answer(request, effect->error, NULL);
}

static void truncate_opened(struct service *s, const struct core_file *file)
{
    const struct layout_allocation *allocation = core_find_allocation(s->core, file->serial, NULL);
    if (!allocation || allocation->memory == LAYOUT_NO_MEMORY)
        return;
    struct record record = {
        .type = RECORD_ALLOC_MEMORY, .session = file->session, .serial = file->serial};
    service_apply_record(s, &record, NULL);
}

static void fill_granted(const struct service *s, uint64_t file, uint64_t session,
                         struct service_answer *answer)
{
    const struct core_session *held = core_find_session(s->core, session);
    answer->file = file;
    answer->session = session;
    answer->mode = held ? held->mode : LOCK_MODE_NONE;
}

static int add_allocation(struct service *s, uint64_t session, const char *name,
                          struct outcome *outcome)
{
    struct record record = {.type = RECORD_ALLOC_ADD,
                            .session = session,
                            .name = name,
                            .name_bytes = strlen(name),
                            .count = 1};
    return service_apply_record(s, &record, outcome);
}

/* The second half of a creation outside a session: the lock is granted and answer->file is open
 * without a serial. On failure the grant is undone. */
static int create_granted(struct service *s, const char *name, struct service_answer *answer)
{
    struct outcome added;
    int error = add_allocation(s, answer->session, name, &added);
    if (!error) {
        struct record record = {
            .type = RECORD_FILE_BIND, .file = answer->file, .serial = added.serial};
        answer->slot = added.slot;
        answer->rank = added.rank;
        error = service_apply_record(s, &record, NULL);
    }
    if (error)
        service_undo_open(s, answer->file);
    return error;
}

static void watch_owner(struct service *s, uint64_t session)
{
    const struct core_session *held = core_find_session(s->core, session);
    if (!held || held->owner.pid == 0)
        return; /* invisible: its files alone tell */
    struct run *run = service_get_run(s, session);
    /* Who cannot be watched: its files alone tell, too. */
    int error = run ? s->host.watch_process(s->host.context, held->owner, session) : -ENOMEM;
    if (error == -ESRCH)
        service_on_exit(s, session);
    else if (!error)
        run->watched = true;
}

void service_on_granted(struct service *s, const struct effect *effect)
{
    struct parked *parked = idvec_remove(&s->parked, effect->waiter);
    if (!parked) { /* nobody is there: the core grants no place that is only kept, so this is a bug
                    */
        service_undo_open(s, effect->file);
        return;
    }
    struct service_request *request = parked->request;
    struct service_answer answer = {0};
    int error = 0;
    fill_granted(s, effect->file, effect->session, &answer);
    if (parked->acquire)
        watch_owner(s, effect->session);
    const struct core_file *file = core_find_file(s->core, effect->file);
    if (parked->truncate && file)
        truncate_opened(s, file);
    if (parked->create)
        error = create_granted(s, parked->create, &answer);
    parked_free(parked);
    service_answer(request, error, &answer);
}

void service_drop_parked(struct service *s)
{
    while (s->parked.count > 0) {
        struct parked *parked = s->parked.items[s->parked.count - 1];
        struct service_request *request = parked->request;
        idvec_remove(&s->parked, parked->id);
        parked_free(parked);
        service_answer(request, -ENOTCONN, NULL);
    }
}

void service_expire_parked(struct service *s, uint64_t now_ms)
{
    for (size_t i = 0; i < s->parked.count;) {
        struct parked *parked = s->parked.items[i];
        if (parked->park_until_ms > now_ms) {
            i++;
            continue;
        }
        /* The kernel would kill the mount for a request that waits longer. The library asks again.
         */
        end_wait(s, parked->id, parked->acquire ? -EINTR : -ETIMEDOUT, CORE_WAIT_KEEP);
        i = 0; /* answering may have changed the table */
    }
}

uint64_t service_parked_moment(const struct service *s)
{
    uint64_t at = UINT64_MAX;
    if (s->options.parking_max_ms == UINT64_MAX)
        return at;
    for (size_t i = 0; i < s->parked.count; i++) {
        const struct parked *parked = s->parked.items[i];
        if (parked->park_until_ms < at)
            at = parked->park_until_ms;
    }
    return at;
}

void service_interrupt(struct service *s, struct service_request *request)
{
    if (request->alloc) {
        service_cancel_alloc(s, request->alloc, -EINTR);
        return;
    }
    const struct parked *parked = request->parked;
    if (!parked)
        return;
    const struct core_waiter *waiter = core_find_waiter(s->core, parked->id);
    /* A grace period is too short to be worth a place. */
    uint32_t keep = waiter && (waiter->flags & CORE_OPEN_GRACE) ? 0 : CORE_WAIT_KEEP;
    end_wait(s, parked->id, -EINTR, keep);
}

/* ---- opening ----------------------------------------------------------------------------- */

/* close() is answered before its RELEASE arrives, so a process that closes and asks again without
 * waiting may meet its own stale lock. */
static bool release_may_be_under_way(const struct service *s, uint64_t store)
{
    uint64_t now_ms = service_now(s);
    for (size_t i = 0; i < s->runs.count; i++) {
        const struct run *run = s->runs.items[i];
        const struct core_session *session = core_find_session(s->core, run->id);
        if (session && session->store == store &&
            (run->closing || (run->flushed && now_ms - run->flushed_ms <= FLUSH_RECENT_MS)))
            return true;
    }
    return false;
}

/* Its own session was closed, and ends when the last transfer has: that is nothing to wait for in
 * vain. */
static bool is_leaving(const struct service *s, uint64_t store, const struct service_caller *caller)
{
    const struct core_session *session =
        core_find_membership(s->core, store, caller->processes, caller->process_count);
    return session && is_closing(s, session->id);
}

static int open_plain(struct service *s, const struct service_open *open, uint64_t session,
                      const struct service_caller *caller, struct service_answer *answer)
{
    struct record record = {
        .type = RECORD_FILE_OPEN,
        .store = open->store,
        .kind = open->kind,
        .serial = open->serial,
        .flags = open_flags(open),
        .process = caller_process(caller),
        .uid = caller->uid,
        .session = session,
    };
    struct outcome outcome;
    int error = service_apply_record(s, &record, &outcome);
    if (error)
        return error;
    fill_granted(s, outcome.file, session, answer);
    const struct core_file *file = core_find_file(s->core, outcome.file);
    if (open->truncate && open->kind == CORE_KIND_ALLOCATION && file)
        truncate_opened(s, file);
    return 0;
}

/* Asks the lock, for the file or (create) for the allocation that it is to create. Sets
 * answer->file when granted at once, else parks the request. */
static int open_locking(struct service *s, const struct service_open *open, enum lock_wish wish,
                        const char *create, const struct service_caller *caller,
                        struct service_request *request, struct service_answer *answer)
{
    uint32_t flags = open_flags(open);
    uint64_t deadline_ms = LOCK_FOREVER;
    bool may_wait = !open->nonblock && open->kind != CORE_KIND_ALLOCATION;
    if (!may_wait && release_may_be_under_way(s, open->store)) {
        flags |= CORE_OPEN_GRACE;
        deadline_ms = service_now(s) + SERVICE_GRACE_MS;
    }
    if (is_leaving(s, open->store, caller))
        flags |= CORE_OPEN_LEAVING;
    struct record record = {
        .type = RECORD_LOCK_OPEN,
        .store = open->store,
        .kind = open->kind,
        .serial = open->serial,
        .flags = flags,
        .wish = wish,
        .process = caller_process(caller),
        .uid = caller->uid,
        .deadline_ms = deadline_ms,
    };
    memcpy(record.comm, caller->comm, sizeof record.comm);
    struct parked how = {.truncate = open->truncate, .create = create};
    struct outcome outcome;
    int error;
    if (!ask(s, &record, &how, request, &outcome, &error))
        return 0;
    if (error)
        return error;
    fill_granted(s, outcome.file, outcome.session, answer);
    const struct core_file *file = core_find_file(s->core, outcome.file);
    if (open->truncate && open->kind == CORE_KIND_ALLOCATION && file)
        truncate_opened(s, file);
    return 0;
}

static enum lock_wish wish_of(const struct service_open *open)
{
    if (!open->write)
        return LOCK_WISH_RO;
    return open->kind == CORE_KIND_AUTO ? LOCK_WISH_AUTO : LOCK_WISH_RW;
}

/* lock, auto and allocations: join what the caller belongs to, else ask the lock. */
static int open_session_file(struct service *s, const struct service_open *open,
                             const struct service_caller *caller, struct service_request *request,
                             struct service_answer *answer)
{
    enum lock_wish wish = wish_of(open);
    const struct core_session *session = find_membership(s, open->store, caller);
    if (session && (session->mode == LOCK_MODE_RW || wish != LOCK_WISH_RW))
        return open_plain(s, open, session->id, caller, answer);
    if (session)
        return -EDEADLK;
    return open_locking(s, open, wish, NULL, caller, request, answer);
}

/* commit, abort and entries belong to the writer's session of the caller, if there is one. */
static int open_member_file(struct service *s, const struct service_open *open,
                            const struct service_caller *caller, struct service_answer *answer)
{
    uint64_t session = 0;
    if (open->write)
        service_find_writer(s, open->store, caller, &session);
    if (open->write && open->kind == CORE_KIND_ENTRY && session == 0)
        return -ENOLCK;
    return open_plain(s, open, session, caller, answer);
}

int service_open(struct service *s, const struct service_open *open,
                 const struct service_caller *caller, struct service_request *request)
{
    struct service_answer answer = {0};
    int error;
    switch (open->kind) {
    case CORE_KIND_LOCK:
    case CORE_KIND_AUTO:
    case CORE_KIND_ALLOCATION:
        error = open_session_file(s, open, caller, request, &answer);
        break;
    case CORE_KIND_COMMIT:
    case CORE_KIND_ABORT:
    case CORE_KIND_ENTRY:
        error = open_member_file(s, open, caller, &answer);
        break;
    default:
        error = open_plain(s, open, 0, caller, &answer);
        break;
    }
    if (error || answer.file)
        service_answer(request, error, &answer);
    return 0;
}

/* ---- creating ---------------------------------------------------------------------------- */

static int create_in_session(struct service *s, const char *name, const struct service_open *open,
                             uint64_t session, const struct service_caller *caller,
                             struct service_answer *answer)
{
    struct outcome added;
    struct service_open opened = *open;
    int error = add_allocation(s, session, name, &added);
    if (error)
        return error;
    opened.serial = added.serial;
    opened.truncate = false;
    error = open_plain(s, &opened, session, caller, answer);
    if (error)
        service_remove(s, session, added.serial);
    answer->slot = added.slot;
    answer->rank = added.rank;
    return error;
}

/* Outside a session: an implicit one, at once or EAGAIN; then the allocation, then the file's name.
 */
static int create_implicit(struct service *s, const char *name, const struct service_open *open,
                           const struct service_caller *caller, struct service_request *request,
                           struct service_answer *answer)
{
    struct service_open locking = *open;
    locking.serial = 0;
    locking.truncate = false;
    int error = open_locking(s, &locking, LOCK_WISH_RW, name, caller, request, answer);
    if (error || answer->file == 0)
        return error;
    return create_granted(s, name, answer);
}

int service_create(struct service *s, uint64_t store, const char *name,
                   const struct service_open *open, const struct service_caller *caller,
                   struct service_request *request)
{
    struct service_answer answer = {0};
    const struct core_store *found = core_find_store(s->core, store);
    const struct core_session *session = find_membership(s, store, caller);
    int error;
    if (!found)
        error = -ENOENT;
    else if (layout_find_name(core_get_layout(s->core, found), name))
        error = -EEXIST;
    else if (session && session->mode == LOCK_MODE_RW)
        error = create_in_session(s, name, open, session->id, caller, &answer);
    else if (session)
        error = -EDEADLK;
    else
        error = create_implicit(s, name, open, caller, request, &answer);
    if (error || answer.file)
        service_answer(request, error, &answer);
    return 0;
}

/* ---- ACQUIRE and JOIN -------------------------------------------------------------------- */

/* Aligned as memory is. -ENOMEM: more than the device has, and waiting would not help. */
static int can_ever_reserve(const struct service *s, uint64_t bytes, uint64_t *aligned_bytes)
{
    struct vmm_info info;
    vmm_get_info(s->vmm, &info);
    *aligned_bytes = vmm_align(s->vmm, bytes);
    return *aligned_bytes < bytes || *aligned_bytes > info.total_bytes ? -ENOMEM : 0;
}

int service_acquire(struct service *s, uint64_t file, const struct service_acquire *acquire,
                    const struct service_caller *caller, struct service_request *request)
{
    const struct core_file *ctl = core_find_file(s->core, file);
    struct service_answer answer = {0};
    struct outcome outcome = {0};
    uint64_t reserve_bytes = 0;
    int error = can_ever_reserve(s, acquire->reserve_bytes, &reserve_bytes);
    if (!ctl)
        error = -EBADF;
    else if (acquire->wish != LOCK_WISH_RO && !(ctl->flags & CORE_OPEN_WRITE))
        error = -EBADF;
    if (error)
        goto out;
    struct record record = {
        .type = RECORD_ACQUIRE,
        .file = file,
        .flags = acquire->again ? CORE_OPEN_AGAIN : 0,
        .wish = acquire->wish,
        .process = caller_process(caller),
        .uid = caller->uid,
        .deadline_ms = add_saturated(service_now(s), acquire->timeout_ms),
        .size_bytes = reserve_bytes,
    };
    memcpy(record.comm, caller->comm, sizeof record.comm);
    struct parked how = {.acquire = true};
    if (!ask(s, &record, &how, request, &outcome, &error))
        return 0;
    if (error)
        goto out;
    watch_owner(s, outcome.session);
    fill_granted(s, file, outcome.session, &answer);
out:
    service_answer(request, error, &answer);
    return 0;
}

int service_join(struct service *s, uint64_t file, const uint8_t token[16], uint64_t *session)
{
    struct record record = {.type = RECORD_JOIN, .file = file};
    struct outcome outcome;
    const struct core_file *ctl = core_find_file(s->core, file);
    const struct core_session *found = core_find_token(s->core, token);
    if (!ctl)
        return -EBADF;
    if (!found || is_closing(s, found->id))
        return -ESTALE;
    if (found->mode == LOCK_MODE_RW && !(ctl->flags & CORE_OPEN_WRITE))
        return -EBADF;
    memcpy(record.bytes16, token, sizeof record.bytes16);
    int error = service_apply_record(s, &record, &outcome);
    if (!error)
        *session = outcome.session;
    return error;
}
