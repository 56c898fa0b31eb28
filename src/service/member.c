/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member - whose session it is: by an open file, or by the processes of who asks
 *
 * A process belongs to a session as its owner, as the opener of one of its files, or as a
 * descendant of these. A writer's session has what is not committed, so whoever belongs to it by
 * descent alone must be allowed to write the store itself: a parent that has given rights up gives
 * its children none.
 */
#include "service/rights.h"
#include "service/sessions.h"

#include "service/service_internal.h"

#include <errno.h>

struct core_process service_caller_process(const struct service_caller *caller)
{
    return caller->process_count ? caller->processes[0] : (struct core_process){0};
}

static const struct core_session *find_session(const struct service *s, uint64_t store,
                                               const struct service_caller *caller)
{
    const struct core_session *session =
        core_find_membership(s->core, store, caller->processes, caller->process_count);
    return session && !service_is_closing(s, session->id) ? session : NULL;
}

int service_find_membership(const struct service *s, uint64_t store,
                            const struct service_caller *caller,
                            const struct core_session **session)
{
    *session = find_session(s, store, caller);
    if (!*session || (*session)->mode != LOCK_MODE_RW)
        return 0;
    return service_check_right(s, store, caller, SERVICE_WRITE);
}

bool service_has_joinable(const struct service *s, uint64_t store)
{
    return core_has_joinable(s->core, store);
}

static int find_by_path(const struct service *s, const struct service_actor *by, uint64_t *session)
{
    const struct core_session *found;
    int error = service_check_right(s, by->store, by->caller, SERVICE_WRITE);
    if (error)
        return error;
    found = find_session(s, by->store, by->caller);
    if (!found || found->mode != LOCK_MODE_RW)
        return -ENOLCK;
    *session = found->id;
    return 0;
}

/* The file was opened for writing, so its user may write: who uses it now is a member by process
 * alone, and its own rights, those of a set-uid program say, do not count. */
static int find_by_process(const struct service *s, const struct core_file *file,
                           const struct service_caller *caller, uint64_t *session)
{
    const struct core_session *found = caller ? find_session(s, file->store, caller) : NULL;
    if (!found || found->mode != LOCK_MODE_RW)
        return -ENOLCK;
    *session = found->id;
    return 0;
}

int service_find_writer(const struct service *s, const struct service_actor *by, uint64_t *session)
{
    const struct core_file *file;
    if (by->file == 0)
        return find_by_path(s, by, session);
    file = core_find_file(s->core, by->file);
    if (!file || !(file->flags & CORE_OPEN_WRITE))
        return -EBADF;
    if (file->session == 0)
        return find_by_process(s, file, by->caller, session);
    const struct core_session *held = core_find_session(s->core, file->session);
    if (!held || service_is_closing(s, held->id))
        return -ESTALE;
    if (held->mode != LOCK_MODE_RW)
        return -ENOLCK;
    *session = held->id;
    return 0;
}

int service_find_reader(const struct service *s, uint64_t file, const struct core_file **found)
{
    *found = core_find_file(s->core, file);
    return *found && ((*found)->flags & CORE_OPEN_READ) ? 0 : -EBADF;
}
