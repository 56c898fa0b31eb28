/* SPDX-License-Identifier: Apache-2.0 */
/*
 * create - creates allocations and entries together with their open files
 */
#include "service/metadata.h"
#include "service/rights.h"
#include "service/sessions.h"

#include "service/parked.h"

#include <errno.h>

/* ---- allocations ------------------------------------------------------------------------- */

static int create_in_session(struct service *s, const char *name, const struct service_open *open,
                             uint64_t session, const struct service_caller *caller,
                             struct service_answer *answer)
{
    struct service_open opened = *open;
    struct outcome added;
    int error = service_add_named(s, session, name, &added);
    if (error)
        return error;
    opened.serial = added.serial;
    opened.truncate = false;
    error = service_open_in(s, &opened, session, caller, answer);
    if (error)
        service_record(s, .type = RECORD_ALLOC_REMOVE, .session = session, .serial = added.serial);
    answer->slot = added.slot;
    answer->rank = added.rank;
    return error;
}

/* Outside a session: takes an implicit session at once, or EAGAIN; then the allocation, then the
 * file's name. */
static int create_implicit(struct service *s, const char *name, const struct service_open *open,
                           const struct service_caller *caller, struct service_request *request,
                           struct service_answer *answer)
{
    struct service_open locking = *open;
    locking.serial = 0;
    locking.truncate = false;
    if (core_find_store(s->core, open->store)
            ->lock.sealed) /* the grant would be for the bytes alone */
        return -ENOLCK;
    int error = service_open_locking(s, &locking, LOCK_WISH_DATA, name, caller, request, answer);
    if (error || answer->file == 0)
        return error;
    return service_create_granted(s, name, answer);
}

int service_create(struct service *s, uint64_t store, const char *name,
                   const struct service_open *open, const struct service_caller *caller,
                   struct service_request *request)
{
    struct service_answer answer = {0};
    const struct core_store *found = core_find_store(s->core, store);
    const struct core_session *session = NULL;
    int error = service_check_right(s, store, caller, SERVICE_WRITE | SERVICE_SEARCH);
    if (!error)
        error = service_find_membership(s, store, caller, &session);
    if (error)
        ;
    else if (layout_find_name(core_get_layout(s->core, found), name))
        error = -EEXIST;
    else if (session && session->mode == LOCK_MODE_RW)
        error = create_in_session(s, name, open, session->id, caller, &answer);
    else if (session)
        error = session->mode == LOCK_MODE_RO ? -EDEADLK : -ENOLCK;
    else
        error = create_implicit(s, name, open, caller, request, &answer);
    if (error || answer.file)
        service_answer(request, error, &answer);
    return 0;
}

/* ---- entries ----------------------------------------------------------------------------- */

static const struct layout_entry *find_entry(const struct service *s, uint64_t store,
                                             const struct service_entry *entry)
{
    return layout_find_entry(core_get_layout(s->core, core_find_store(s->core, store)), entry->key,
                             entry->key_bytes);
}

/* The entry exists at once, without a value; the bytes written to it are put when it is closed. */
static int create_entry(struct service *s, uint64_t store, const struct service_entry *entry,
                        const struct service_open *open, const struct service_caller *caller,
                        struct service_answer *answer)
{
    struct service_actor by = {.store = store, .caller = caller};
    struct service_open opened = *open;
    uint64_t session;
    int error = service_find_writer(s, &by, &session);
    if (error)
        return error;
    const struct layout_entry *made = find_entry(s, store, entry);
    bool was_there = made;
    if (!made) {
        error = service_entry_put(s, &by, entry);
        if (error)
            return error;
        made = find_entry(s, store, entry);
    }
    opened.kind = CORE_KIND_ENTRY;
    opened.serial = made->serial;
    opened.truncate = false;
    error = service_open_in(s, &opened, session, caller, answer);
    if (error && !was_there)
        service_entry_delete(s, &by, entry->key, entry->key_bytes);
    return error;
}

int service_create_entry(struct service *s, uint64_t store, const char *key, size_t key_bytes,
                         const struct service_open *open, const struct service_caller *caller,
                         struct service_request *request)
{
    struct service_entry entry = {
        .key = key, .key_bytes = key_bytes, .slot = LAYOUT_UNBOUND, .value = ""};
    struct service_answer answer = {0};
    int error = service_check_right(s, store, caller, SERVICE_WRITE | SERVICE_SEARCH);
    if (!error)
        error = create_entry(s, store, &entry, open, caller, &answer);
    service_answer(request, error, &answer);
    return 0;
}
