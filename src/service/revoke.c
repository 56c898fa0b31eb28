/* SPDX-License-Identifier: Apache-2.0 */
/* revoke - ends the session, or the wait for one, of another user */
#include "service/sessions.h"

#include "service/ending.h"
#include "service/parked.h"
#include "service/rights.h"

#include <errno.h>

static int revoke_waiter(struct service *s, const struct core_file *by, uint64_t number)
{
    const struct core_waiter *found = core_find_waiter(s->core, number);
    struct record record = {.waiter = number,
                            .refusal = ECANCELED,
                            .flags = CORE_WAIT_REVOKED,
                            .process = by->opener,
                            .uid = by->uid};
    if (!found || found->store != by->store)
        return -ENOENT;
    service_end_wait(s, &record);
    return 0;
}

static int revoke(struct service *s, uint64_t file, uint64_t number, bool waiter,
                  struct service_request *request)
{
    const struct core_file *by = core_find_file(s->core, file);
    const struct core_session *found = core_find_session(s->core, number);
    if (!by || !(by->flags & CORE_OPEN_WRITE))
        return -EBADF;
    if (!service_is_owner(s, by->store, by->uid))
        return -EPERM;
    if (waiter) {
        int error = revoke_waiter(s, by, number);
        if (!error)
            service_answer(request, 0, NULL);
        return error;
    }
    if (!found || found->store != by->store)
        return -ENOENT;
    struct ending ending = {.type = ENDING_REVOKE,
                            .session = number,
                            .by = by->opener,
                            .by_uid = by->uid,
                            .request = request};
    return service_end_session(s, &ending);
}

int service_revoke(struct service *s, uint64_t file, uint64_t number, bool waiter,
                   struct service_request *request)
{
    int error = revoke(s, file, number, waiter, request);
    if (error)
        service_answer(request, error, NULL);
    return 0;
}
