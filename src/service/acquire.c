/* SPDX-License-Identifier: Apache-2.0 */
/* acquire - the lock on a `ctl`: ACQUIRE and JOIN */
#include "service/sessions.h"

#include "service/ending.h"
#include "service/parked.h"

#include <errno.h>
#include <string.h>

int service_acquire(struct service *s, uint64_t file, const struct service_acquire *acquire,
                    const struct service_caller *caller, struct service_request *request)
{
    const struct core_file *ctl = core_find_file(s->core, file);
    struct service_answer answer = {0};
    struct outcome outcome = {0};
    uint64_t reserve_bytes = vmm_align(s->vmm, acquire->reserve_bytes);
    int error = 0;
    if (reserve_bytes < acquire->reserve_bytes || !service_can_ever_fit(s, reserve_bytes))
        error = -ENOMEM; /* more than the device has: waiting would not help */
    if (!ctl)
        error = -EBADF;
    else if (acquire->wish != LOCK_WISH_RO && !(ctl->flags & CORE_OPEN_WRITE))
        error = -EBADF;
    if (error)
        goto out;
    struct record record = {
        .type = RECORD_ACQUIRE,
        .file = file,
        .flags = (acquire->again ? CORE_OPEN_AGAIN : 0) | (acquire->owned ? CORE_OPEN_OWNED : 0) |
                 (acquire->fresh ? CORE_OPEN_FRESH : 0) |
                 (acquire->replace ? CORE_OPEN_REPLACE : 0) | (acquire->any ? CORE_OPEN_ANY : 0) |
                 (acquire->by_process ? CORE_OPEN_BY_PROCESS : 0),
        .wish = acquire->wish,
        .process = service_caller_process(caller),
        .uid = caller->uid,
        .deadline_ms = service_deadline_ms(service_now(s), acquire->timeout_ms),
        .size_bytes = reserve_bytes,
    };
    memcpy(record.comm, caller->comm, sizeof record.comm);
    struct parked how = {.acquire = true, .grouped = acquire->grouped};
    error = service_watch(s, ctl, &record);
    if (error)
        goto out;
    if (acquire->owned)
        how.watched = record.process;
    if (!service_ask(s, &record, &how, request, &outcome, &error))
        return 0;
    if (error == -EAGAIN && acquire->timeout_ms > 0)
        error = -ETIMEDOUT; /* its timeout was over before the record was applied */
    if (error)
        service_unwatch(s, how.watched);
    else
        service_check_owner(s, outcome.session);
    service_fill_granted(s, file, outcome.session, &answer);
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
    if (!found || service_is_closing(s, found->id))
        return -ESTALE;
    if (found->mode != LOCK_MODE_RO && !(ctl->flags & CORE_OPEN_WRITE))
        return -EBADF;
    memcpy(record.bytes16, token, sizeof record.bytes16);
    int error = service_apply_record(s, &record, &outcome);
    if (!error)
        *session = outcome.session;
    return error;
}
