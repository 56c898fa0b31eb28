/* SPDX-License-Identifier: Apache-2.0 */
/*
 * member - finds the session of a caller, by an open file or by its processes
 *
 * A process belongs to a session as its owner, as the opener of one of its files, or as a
 * descendant of these. A writer's session has uncommitted bytes, so a process that belongs to it by
 * descent alone must be allowed to write the store itself: a parent that has given up rights passes
 * none to its children.
 */
#include "service/rights.h"

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

/* By a path the caller's rights count. By a file (of a set-uid program, say) they do not: it was
 * opened for writing, so its user may write, and a process of the session uses it now. Once a store
 * is sealed a writer's session changes bytes alone. */
static int find_writer(const struct service *s, const struct service_actor *by, bool bytes_only,
                       uint64_t *session)
{
    const struct core_file *file = core_find_file(s->core, by->file);
    const struct core_session *held = NULL;
    int error = by->file == 0 ? service_check_right(s, by->store, by->caller, SERVICE_WRITE)
                : !file || !(file->flags & CORE_OPEN_WRITE) ? -EBADF
                                                            : 0;
    if (error)
        return error;
    if (!file || file->session == 0) {
        held = by->caller ? find_session(s, file ? file->store : by->store, by->caller) : NULL;
    } else {
        held = core_find_session(s->core, file->session);
        if (!held || service_is_closing(s, held->id))
            return -ESTALE;
    }
    if (!held || !(held->mode == LOCK_MODE_RW || (bytes_only && held->mode == LOCK_MODE_RW_DATA)))
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
