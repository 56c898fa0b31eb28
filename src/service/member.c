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

#include "service/ending.h"
#include "service/parked.h"

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
    if (!*session || (*session)->mode == LOCK_MODE_RO)
        return 0;
    return service_check_right(s, store, caller, SERVICE_WRITE);
}

bool service_has_joinable(const struct service *s, uint64_t store)
{
    return core_has_joinable(s->core, store);
}

/* Once it is sealed a writer's session changes bytes alone. */
static bool may_change(const struct core_session *session, bool bytes_only)
{
    return session->mode == LOCK_MODE_RW || (bytes_only && session->mode == LOCK_MODE_RW_DATA);
}

static int find_by_path(const struct service *s, const struct service_actor *by, bool bytes_only,
                        uint64_t *session)
{
    const struct core_session *found;
    int error = service_check_right(s, by->store, by->caller, SERVICE_WRITE);
    if (error)
        return error;
    found = find_session(s, by->store, by->caller);
    if (!found || !may_change(found, bytes_only))
        return -ENOLCK;
    *session = found->id;
    return 0;
}

/* The file was opened for writing, so its user may write: who uses it now is a member by process
 * alone, and its own rights, those of a set-uid program say, do not count. */
static int find_by_process(const struct service *s, const struct core_file *file,
                           const struct service_caller *caller, bool bytes_only, uint64_t *session)
{
    const struct core_session *found = caller ? find_session(s, file->store, caller) : NULL;
    if (!found || !may_change(found, bytes_only))
        return -ENOLCK;
    *session = found->id;
    return 0;
}

static int find_writer(const struct service *s, const struct service_actor *by, bool bytes_only,
                       uint64_t *session)
{
    const struct core_file *file;
    if (by->file == 0)
        return find_by_path(s, by, bytes_only, session);
    file = core_find_file(s->core, by->file);
    if (!file || !(file->flags & CORE_OPEN_WRITE))
        return -EBADF;
    if (file->session == 0)
        return find_by_process(s, file, by->caller, bytes_only, session);
    const struct core_session *held = core_find_session(s->core, file->session);
    if (!held || service_is_closing(s, held->id))
        return -ESTALE;
    if (!may_change(held, bytes_only))
        return -ENOLCK;
    *session = held->id;
    return 0;
}

int service_find_writer(const struct service *s, const struct service_actor *by, uint64_t *session)
{
    return find_writer(s, by, false, session);
}

int service_find_byte_writer(const struct service *s, const struct service_actor *by,
                             uint64_t *session)
{
    return find_writer(s, by, true, session);
}

int service_find_reader(const struct service *s, uint64_t file, const struct core_file **found)
{
    *found = core_find_file(s->core, file);
    return *found && ((*found)->flags & CORE_OPEN_READ) ? 0 : -EBADF;
}
