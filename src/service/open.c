/* SPDX-License-Identifier: Apache-2.0 */
/* open - opens existing files: by joining a session, by asking for the lock, or by neither */
#include "service/regions.h"
#include "service/rights.h"
#include "service/sessions.h"

#include "service/ending.h"
#include "service/parked.h"

#include <errno.h>
#include <string.h>

/* Time after a FLUSH within which its RELEASE may still be on its way, so that a grace period makes
 * sense. */
#define FLUSH_RECENT_MS 50u

static uint32_t open_flags(const struct service_open *open)
{
    return (open->read ? CORE_OPEN_READ : 0) | (open->write ? CORE_OPEN_WRITE : 0) |
           (open->nonblock ? CORE_OPEN_NONBLOCK : 0) |
           (open->connection ? CORE_OPEN_CONNECTION : 0);
}

/* close() is answered before its RELEASE arrives, so a process that closes and asks again without
 * waiting may meet its own stale lock. */
static bool release_may_be_under_way(const struct service *s, uint64_t store)
{
    uint64_t now_ms = service_now(s);
    for (size_t i = 0; i < s->in_flights.count; i++) {
        const struct in_flight *in_flight = s->in_flights.items[i];
        const struct core_session *session = core_find_session(s->core, in_flight->id);
        if (session && session->store == store &&
            (in_flight->closing ||
             (in_flight->flushed && now_ms - in_flight->flushed_ms <= FLUSH_RECENT_MS)))
            return true;
    }
    return false;
}

/* Returns true if a session of the caller is ending: its lock will be free after its last
 * transfer. */
static bool is_leaving(const struct service *s, uint64_t store, const struct service_caller *caller)
{
    const struct core_session *session =
        core_find_membership(s->core, store, caller->processes, caller->process_count);
    return session && service_is_closing(s, session->id);
}

/* Truncates (O_TRUNC), or closes the file again. */
static int truncate_opened(struct service *s, const struct service_open *open, uint64_t file)
{
    const struct core_file *opened = core_find_file(s->core, file);
    int error = 0;
    if (open->truncate && open->kind == CORE_KIND_ALLOCATION && opened)
        error = service_truncate_opened(s, opened);
    if (error)
        service_close(s, file);
    return error;
}

int service_open_in(struct service *s, const struct service_open *open, uint64_t session,
                    const struct service_caller *caller, struct service_answer *answer)
{
    struct outcome outcome;
    int error = service_record_for(
        s, &outcome, .type = RECORD_FILE_OPEN, .store = open->store, .kind = open->kind,
        .serial = open->serial, .flags = open_flags(open),
        .process = service_caller_process(caller), .uid = caller->uid, .session = session);
    if (error)
        return error;
    service_fill_granted(s, outcome.file, session, answer);
    return truncate_opened(s, open, outcome.file);
}

/* Any tool may walk a tree and read every file in it, so an open that only reads never waits. */
static bool may_wait(const struct service_open *open)
{
    return open->write && !open->nonblock && open->kind != CORE_KIND_ALLOCATION;
}

int service_open_locking(struct service *s, const struct service_open *open, enum lock_wish wish,
                         const char *create, const struct service_caller *caller,
                         struct service_request *request, struct service_answer *answer)
{
    uint32_t flags = open_flags(open);
    uint64_t deadline_ms = LOCK_FOREVER;
    bool waits = may_wait(open);
    if (!waits)
        flags |= CORE_OPEN_NONBLOCK;
    if (!waits && release_may_be_under_way(s, open->store)) {
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
        .process = service_caller_process(caller),
        .uid = caller->uid,
        .deadline_ms = deadline_ms,
    };
    memcpy(record.comm, caller->comm, sizeof record.comm);
    struct parked how = {.truncate = open->truncate, .create = create};
    struct outcome outcome;
    int error;
    if (!service_ask(s, &record, &how, request, &outcome, &error))
        return 0;
    if (error)
        return error;
    service_fill_granted(s, outcome.file, outcome.session, answer);
    return truncate_opened(s, open, outcome.file);
}

/* A writer of an allocation outside a session destroys no sealed bytes: it asks for the bytes
 * alone. */
static enum lock_wish wish_of(const struct service_open *open)
{
    if (!open->write)
        return LOCK_WISH_RO;
    if (open->kind == CORE_KIND_AUTO)
        return LOCK_WISH_AUTO;
    return open->kind == CORE_KIND_LOCK ? LOCK_WISH_RW : LOCK_WISH_DATA;
}

/* Opens lock, auto, data and allocations: joins the caller's session, else asks the lock. */
static int open_session_file(struct service *s, const struct service_open *open,
                             const struct service_caller *caller, struct service_request *request,
                             struct service_answer *answer)
{
    const struct core_session *session;
    int error = service_find_membership(s, open->store, caller, &session);
    if (error)
        return error;
    if (session)
        return service_open_in(s, open, session->id, caller, answer);
    return service_open_locking(s, open, wish_of(open), NULL, caller, request, answer);
}

/* Opens commit, seal, abort and entries in the caller's writing session, if there is one. */
static int open_member_file(struct service *s, const struct service_open *open,
                            const struct service_caller *caller, struct service_answer *answer)
{
    struct service_actor by = {.store = open->store, .caller = caller};
    uint64_t session = 0;
    if (open->write && open->kind == CORE_KIND_ENTRY) {
        int error = service_find_writer(s, &by, &session);
        if (error || session == 0)
            return -ENOLCK;
    } else if (open->write) {
        service_find_byte_writer(s, &by, &session);
    }
    return service_open_in(s, open, session, caller, answer);
}

/* Returns true while the store shows a layout that never changes, to readers and in their
 * sessions. */
static bool is_immutable(const struct service *s, uint64_t store)
{
    const struct core_store *shown = core_find_store(s->core, store);
    return shown && layout_is_immutable(core_get_layout(s->core, shown));
}

static int check_open(const struct service *s, const struct service_open *open,
                      const struct service_caller *caller)
{
    unsigned wanted = (open->read ? SERVICE_READ : 0) | (open->write ? SERVICE_WRITE : 0);
    if (wanted & ~service_get_directions(open->kind) ||
        (open->kind == CORE_KIND_DATA && !open->write))
        return -EACCES;
    if (open->kind == CORE_KIND_REGION) {
        const struct region *region = core_find_region(s->core, open->serial);
        return region ? service_check_region_right(caller->uid, region->uid) : -ENOENT;
    }
    int error = service_check_right(s, open->store, caller, wanted);
    if (!error && open->write && open->kind == CORE_KIND_ALLOCATION && is_immutable(s, open->store))
        error = -EPERM;
    return error;
}

int service_open(struct service *s, const struct service_open *open,
                 const struct service_caller *caller, struct service_request *request)
{
    struct service_answer answer = {0};
    int error = check_open(s, open, caller);
    if (error) {
        service_answer(request, error, NULL);
        return 0;
    }
    switch (open->kind) {
    case CORE_KIND_LOCK:
    case CORE_KIND_AUTO:
    case CORE_KIND_DATA:
    case CORE_KIND_ALLOCATION:
        error = open_session_file(s, open, caller, request, &answer);
        break;
    case CORE_KIND_COMMIT:
    case CORE_KIND_ABORT:
    case CORE_KIND_SEAL:
    case CORE_KIND_ENTRY:
        error = open_member_file(s, open, caller, &answer);
        break;
    default:
        error = service_open_in(s, open, 0, caller, &answer);
        break;
    }
    if (error || answer.file)
        service_answer(request, error, &answer);
    return 0;
}
