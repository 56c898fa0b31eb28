/* SPDX-License-Identifier: Apache-2.0 */
/*
 * end - flush, close, commit, abort, release: how sessions end
 *
 * An ending waits for the transfers of its session that run already (they are short), refuses new
 * ones meanwhile, and then is one record.
 */
#include "service/sessions.h"

#include "service/ending.h"
#include "service/parked.h"
#include "service/transfers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int apply_commit(struct service *s, const struct ending *ending,
                        struct service_answer *answer)
{
    struct record record = {.type = RECORD_COMMIT,
                            .session = ending->session,
                            .flags = ending->flags,
                            .commit = ending->prepared};
    struct outcome outcome;
    const struct core_session *session = core_find_session(s->core, ending->session);
    if (!session)
        return -ESTALE;
    uint64_t store = session->store;
    memcpy(record.bytes16, ending->group, sizeof record.bytes16);
    if (ending->refusal[0]) {
        record.name = ending->refusal;
        record.name_bytes = strlen(ending->refusal);
        record.refusal = (uint64_t)-ending->error;
    }
    int error = service_apply_record(s, &record, &outcome);
    if (error)
        return error;
    const struct core_store *committed = core_find_store(s->core, store);
    const struct core_session *stayed = core_find_session(s->core, ending->session);
    answer->generation = outcome.generation;
    answer->session = ending->session;
    answer->mode = stayed ? stayed->mode : LOCK_MODE_NONE;
    if (committed && ending->may_read)
        memcpy(answer->hash, committed->hash, sizeof answer->hash);
    return 0;
}

static int apply_end(struct service *s, const struct ending *ending, struct service_answer *answer)
{
    const struct core_session *session = core_find_session(s->core, ending->session);
    bool revoked = ending->type == ENDING_REVOKE && session && !session->ending;
    struct outcome outcome;
    int error = service_record_for(
        s, &outcome, .type = RECORD_SESSION_END, .session = ending->session,
        .flags = revoked ? CORE_END_REVOKED : 0, .process = ending->by, .uid = ending->by_uid);
    answer->rolled_back = outcome.rolled_back;
    return error;
}

static void execute_ending(struct service *s, struct ending *ending)
{
    struct service_answer answer = {0};
    int error = 0;
    switch (ending->type) {
    case ENDING_COMMIT:
        error =
            ending->error && !ending->refusal[0] ? ending->error : apply_commit(s, ending, &answer);
        break;
    case ENDING_ABORT:
    case ENDING_EXIT:
    case ENDING_CLOSE:
        error = apply_end(s, ending, &answer);
        break;
    case ENDING_REVOKE:
        error = apply_end(s, ending, &answer);
        if (error == -ESTALE) /* the session has ended by itself meanwhile */
            error = 0;
        break;
    case ENDING_DETACH:
        error = service_record(s, .type = RECORD_DETACH, .file = ending->file);
        break;
    }
    struct service_request *request = ending->request;
    steps_go(ending_steps, &ending->state, ENDING_ENDS);
    service_drop_prepared(s, ending);
    free(ending);
    service_answer(request, error, &answer);
}

/* Turns bytes written without a size into memory before the commit. Returns true while that
 * runs. */
static bool seal_before_commit(struct service *s, struct in_flight *in_flight,
                               struct ending *ending)
{
    if (ending->type != ENDING_COMMIT || ending->state != ENDING_WAITS)
        return false;
    steps_go(ending_steps, &ending->state, ENDING_SEALS);
    int sealed = service_seal_spools(s, in_flight->id, 0, 0);
    if (sealed < 0)
        ending->error = sealed;
    return in_flight->running > 0;
}

static void run_endings(struct service *s, struct in_flight *in_flight)
{
    uint64_t session = in_flight->id;
    while (in_flight && in_flight->running == 0 && in_flight->endings) {
        struct ending *ending = in_flight->endings;
        if (seal_before_commit(s, in_flight, ending))
            return; /* the end of the last one comes back here */
        if (service_prepare_commit(s, in_flight, ending))
            return;
        in_flight->endings = ending->next;
        execute_ending(s, ending);
        in_flight = idvec_find(&s->in_flights, session); /* an answer may have removed it */
    }
    if (!in_flight)
        return;
    if (!in_flight->endings)
        in_flight->closing = false;
    if (in_flight->running == 0 && !core_find_session(s->core, session))
        free(idvec_remove(&s->in_flights, session));
}

void service_run_endings(struct service *s)
{
    for (size_t at = 0; at < s->in_flights.count; at++) {
        struct in_flight *in_flight = s->in_flights.items[at];
        if (!in_flight->is_due)
            continue;
        in_flight->is_due = false;
        run_endings(s, in_flight);
        at = SIZE_MAX; /* that may have removed this and others: from the first again */
    }
}

/* A client that waits for an ending asks the next worker again. A revocation without a request is
 * recorded, or a next worker would not know of it. */
static void note_revocation(struct service *s, const struct ending *ending)
{
    if (ending->type == ENDING_REVOKE && !ending->request)
        service_record(s, .type = RECORD_SESSION_END, .session = ending->session,
                       .flags = CORE_END_REVOKED | CORE_END_LINGER, .process = ending->by,
                       .uid = ending->by_uid); /* it goes on here even if it cannot be recorded */
}

int service_end_session(struct service *s, const struct ending *ending)
{
    struct in_flight *in_flight = service_get_in_flight(s, ending->session);
    struct ending *queued = malloc(sizeof *queued);
    if (!in_flight || !queued) {
        free(queued);
        return -ENOMEM;
    }
    *queued = *ending;
    LIST_APPEND(in_flight->endings, queued);
    in_flight->closing = true;
    if (in_flight->running == 0 && in_flight->endings == queued)
        run_endings(s, in_flight);
    else
        note_revocation(s, ending);
    return 0;
}

void service_on_session_over(struct service *s, uint64_t session)
{
    struct in_flight *in_flight = idvec_find(&s->in_flights, session);
    if (!in_flight)
        return;
    struct ending *endings = in_flight->endings;
    in_flight->endings = NULL;
    if (in_flight->running == 0)
        free(idvec_remove(&s->in_flights, session));
    while (endings) { /* these are answered ESTALE */
        struct ending *next = endings->next;
        execute_ending(s, endings);
        endings = next;
    }
}

void service_drop_in_flight(struct service *s, struct in_flight *in_flight)
{
    while (in_flight->endings) {
        struct ending *ending = in_flight->endings;
        struct service_request *request = ending->request;
        in_flight->endings = ending->next;
        service_drop_prepared(s, ending);
        free(ending);
        service_answer(request, -ENOTCONN, NULL);
    }
    free(in_flight);
}

void service_end_owned(struct service *s, uint64_t session)
{
    struct ending ending = {.type = ENDING_EXIT, .session = session};
    struct service_answer unused;
    if (service_end_session(s, &ending)) /* no second event will come: do not wait for transfers */
        apply_end(s, &ending, &unused);
}

/* ---- flush and close --------------------------------------------------------------------- */

/* Returns true if an implicit writer's file closes in the process that opened it, without a commit,
 * and no other client has the session open: its bytes will not be kept. */
static bool may_be_lost_write(const struct core_file *file, const struct core_session *session)
{
    return session->implicit && session->mode == LOCK_MODE_RW && session->opener == file->id &&
           session->files == 1;
}

static bool is_lost_write(const struct core_file *file, const struct core_session *session,
                          const struct service_caller *caller)
{
    return may_be_lost_write(file, session) && caller->process_count > 0 &&
           core_same_process(caller->processes[0], file->opener);
}

size_t service_flush_asks(const struct service *s, uint64_t file)
{
    const struct core_file *closed = core_find_file(s->core, file);
    const struct core_session *session =
        closed && closed->session ? core_find_session(s->core, closed->session) : NULL;
    return session && may_be_lost_write(closed, session) ? 1 : 0;
}

int service_flush(struct service *s, uint64_t file, const struct service_caller *caller)
{
    const struct core_file *closed = core_find_file(s->core, file);
    if (!closed || closed->session == 0)
        return 0;
    const struct core_session *session = core_find_session(s->core, closed->session);
    if (!session)
        return 0;
    struct in_flight *in_flight = service_get_in_flight(s, session->id);
    if (in_flight) {
        in_flight->flushed = true;
        in_flight->flushed_ms = service_now(s);
    }
    return is_lost_write(closed, session, caller) ? -ECANCELED : 0;
}

static bool ends_session(const struct core_file *file, const struct core_session *session)
{
    return session->files == 1 || (session->exclusive && session->opener == file->id);
}

/* Records the close at once; the session that it ends holds the lock until its transfers have
 * ended. */
static void close_last(struct service *s, const struct core_file *file, uint64_t session)
{
    const struct in_flight *in_flight = idvec_find(&s->in_flights, session);
    struct record record = {.type = RECORD_FILE_CLOSE, .file = file->id};
    struct ending ending = {.type = ENDING_CLOSE, .session = session};
    struct service_answer unused;
    if (in_flight && (in_flight->running > 0 || in_flight->endings))
        record.flags = CORE_CLOSE_LINGER;
    service_apply_record(s, &record, NULL);
    if (record.flags && service_end_session(s, &ending))
        apply_end(s, &ending, &unused);
}

void service_close(struct service *s, uint64_t file)
{
    const struct core_file *closed = core_find_file(s->core, file);
    if (!closed)
        return;
    vmm_end_reader(s->vmm, file);
    const struct core_session *session =
        closed->session ? core_find_session(s->core, closed->session) : NULL;
    if (session && !session->ending && ends_session(closed, session)) {
        close_last(s, closed, session->id);
        return;
    }
    if (session)
        service_seal_file(s, closed);
    service_record(s, .type = RECORD_FILE_CLOSE, .file = file);
}

/* ---- requests of users ------------------------------------------------------------------- */

/* Answers the request now if nothing was begun that answers it later. */
static int answer_error(struct service_request *request, int error)
{
    if (error)
        service_answer(request, error, NULL);
    return 0;
}

int service_commit(struct service *s, const struct service_actor *by, uint32_t flags,
                   const uint8_t group[16], struct service_request *request)
{
    struct ending ending = {.type = ENDING_COMMIT, .flags = flags, .request = request};
    const struct core_file *file;
    if (group)
        memcpy(ending.group, group, sizeof ending.group);
    ending.may_read = service_find_reader(s, by->file, &file) == 0;
    int error = service_find_writer(s, by, &ending.session);
    if (!error && (flags & CORE_COMMIT_CHECK))
        error = service_check_commit(s, ending.session, flags, request);
    else if (!error)
        error = service_end_session(s, &ending);
    return answer_error(request, error);
}

int service_abort(struct service *s, const struct service_actor *by,
                  struct service_request *request)
{
    struct ending ending = {.type = ENDING_ABORT, .request = request};
    int error = service_find_byte_writer(s, by, &ending.session);
    return answer_error(request, error ? error : service_end_session(s, &ending));
}

int service_release(struct service *s, uint64_t file, struct service_request *request)
{
    const struct core_file *ctl = core_find_file(s->core, file);
    int error = 0;
    if (!ctl)
        error = -EBADF;
    else if (ctl->session == 0)
        error = -ENOLCK;
    else {
        const struct core_session *session = core_find_session(s->core, ctl->session);
        struct ending ending = {
            .type = ENDING_DETACH, .session = ctl->session, .file = file, .request = request};
        if (session && !ends_session(ctl, session)) { /* a member leaves: the others stay */
            error = service_record(s, .type = RECORD_DETACH, .file = file);
            service_answer(request, error, NULL);
            return 0;
        }
        error = session ? service_end_session(s, &ending) : -ESTALE;
    }
    return answer_error(request, error);
}
