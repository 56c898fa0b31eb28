/* SPDX-License-Identifier: Apache-2.0 */
/* Open files: their open with or without a lock, joining and leaving sessions, and their close. */
#include "core/core_internal.h"

#include <errno.h>
#include <stdlib.h>

static void drop_file(struct apply *apply, struct core_file *file)
{
    struct core *core = apply->core;

    share_give(&core->shares[CORE_BOUND_FILES], file->uid, 1);
    share_give(&core->shares[CORE_BOUND_GATHERED], file->uid, file->gathered_bytes);
    free(idvec_remove(&core->files, file->id));
}

static bool kind_takes_lock(uint32_t kind)
{
    return kind == CORE_KIND_LOCK || kind == CORE_KIND_AUTO || kind == CORE_KIND_DATA ||
           kind == CORE_KIND_ALLOCATION;
}

static bool takes_hold(uint32_t kind)
{
    return kind == CORE_KIND_LOCK || kind == CORE_KIND_AUTO || kind == CORE_KIND_DATA;
}

/* Files of the lock have to join a session; other files may. */
static int check_session(const struct core *core, const struct record *record)
{
    const struct core_session *session = core_session(core, record->session);

    if (record->session == 0)
        return kind_takes_lock(record->kind) ? -EINVAL : 0;
    if (!session || session->store != record->store)
        return -ESTALE;
    if (record->kind == CORE_KIND_REGION) /* it joins by REGION_REFER */
        return -EINVAL;
    /* This session was admitted to read one allocation in its tier; the lock promises the
     * device. */
    if (takes_hold(record->kind) && !session->holds &&
        core_store(core, session->store)->places.place != CORE_PLACE_DEVICE)
        return -EAGAIN;
    /* A reader that asks for RW would wait for itself; `auto` accepts RO. */
    if (!(record->flags & CORE_OPEN_WRITE))
        return 0;
    if (session->mode == LOCK_MODE_RO &&
        (record->kind == CORE_KIND_LOCK || record->kind == CORE_KIND_DATA ||
         record->kind == CORE_KIND_ALLOCATION))
        return -EDEADLK;
    return session->mode == LOCK_MODE_RW_DATA && record->kind == CORE_KIND_LOCK ? -EDEADLK : 0;
}

static int check_serial(const struct core *core, const struct record *record,
                        const struct core_store *store)
{
    const struct region *region;

    if (record->kind == CORE_KIND_REGION) {
        region = core_find_region(core, record->serial);
        return region && region->store == record->store ? 0 : -ENOENT;
    }
    if (record->kind != CORE_KIND_ALLOCATION && record->kind != CORE_KIND_ENTRY)
        return 0;
    if (!store)
        return -ENOENT;
    const struct layout *layout = core_get_layout(core, store);
    if (record->kind == CORE_KIND_ENTRY)
        return layout_find_entry_serial(layout, record->serial) ? 0 : -ENOENT;
    if (record->serial == 0) /* an allocation still to be made */
        return 0;
    return layout_find_serial(layout, record->serial) ? 0 : -ENOENT;
}

int apply_file_open(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core *core = apply->core;
    struct core_store *store = core_store(core, record->store);
    struct core_request request = {.store = record->store,
                                   .kind = (enum core_kind)record->kind,
                                   .serial = record->serial,
                                   .flags = record->flags,
                                   .owner = record->process,
                                   .uid = record->uid};
    struct core_file *file = NULL;

    if (record->kind == CORE_KIND_NONE || record->kind >= CORE_KIND_COUNT ||
        record->flags & ~CORE_OPEN_FLAGS)
        return -EINVAL;
    if (record->store != 0 && !store)
        return -ENOENT;
    int error = check_session(core, record);
    if (error == 0)
        error = check_serial(core, record, store);
    if (error == 0) {
        file = malloc(sizeof *file);
        error = file ? apply_take(apply, CORE_BOUND_FILES, store, request.uid, 1) : -ENOMEM;
    }
    if (error < 0) {
        free(file);
        return error;
    }
    core_enter_file(core, &request, file);
    if (record->session != 0) {
        struct core_session *session = core_session(core, record->session);

        core_enter_session(session, file);
        if (takes_hold(record->kind))
            core_hold(core, session);
        apply->out->session = session->id;
        apply->out->mode = session->mode;
    }
    apply->out->file = file->id;
    return 0;
}

int apply_file_bind(struct apply *apply)
{
    const struct record *record = apply->record;
    struct core *core = apply->core;
    struct core_file *file = core_file(core, record->file);
    const struct core_store *store;

    if (!file)
        return -EBADF;
    if (file->kind != CORE_KIND_ALLOCATION || file->serial != 0)
        return -EINVAL;
    if (!core_session(core, file->session))
        return -ESTALE;
    store = core_store(core, file->store);
    if (!layout_find_serial(core_get_layout(core, store), record->serial))
        return -ENOENT;
    file->serial = record->serial;
    return 0;
}

/* Takes the file out of its live session, if any, and ends the session if no file keeps it
 * alive. */
static void leave(struct apply *apply, struct core_file *file, bool linger)
{
    struct core_session *session = core_session(apply->core, file->session);

    if (!session)
        return;
    if (session->exclusive && session->opener == file->id)
        apply_end_region_of(apply, file);
    core_leave_session(session, file);
    if (session->files > 0 && !(session->exclusive && session->opener == file->id))
        return;
    if (linger)
        session->ending = true;
    else if (!session->ending)
        apply->out->rolled_back = apply_end_session(apply, session, false);
}

int apply_file_close(struct apply *apply)
{
    struct core *core = apply->core;
    struct core_file *file = core_file(core, apply->record->file);
    struct core_store *store;

    if (!file)
        return -EBADF;
    if (apply->record->flags & ~(uint32_t)CORE_CLOSE_LINGER)
        return -EINVAL;
    store = core_store(core, file->store);
    struct core_waiter *waiter =
        file->kind == CORE_KIND_CTL ? core_find_file_waiter(core, file->id) : NULL;
    if (waiter) {
        if (!waiter->away)
            core_push_effect(core, (struct effect){.type = EFFECT_REFUSED,
                                                   .waiter = waiter->id,
                                                   .store = waiter->store,
                                                   .error = -ECANCELED});
        apply_forget_waiter(apply, waiter);
    }
    apply->out->session = file->session;
    leave(apply, file, (apply->record->flags & CORE_CLOSE_LINGER) != 0);
    apply_drop_reference(apply, file);
    drop_file(apply, file);
    if (store)
        apply_grant_waiters(apply, store);
    return 0;
}

int apply_join(struct apply *apply)
{
    struct core *core = apply->core;
    struct core_file *file = core_file(core, apply->record->file);
    int error = apply_check_idle_ctl(apply, file);

    if (error < 0)
        return error;
    const struct core_session *found = core_find_token(core, apply->record->bytes16);
    if (!found || found->store != file->store || found->ending)
        return -ESTALE;
    if (found->mode != LOCK_MODE_RO && !(file->flags & CORE_OPEN_WRITE))
        return -EBADF;
    struct core_session *session = core_session(core, found->id);
    if (!session->holds && core_store(core, found->store)->places.place != CORE_PLACE_DEVICE)
        return -EAGAIN;
    core_hold(core, session);
    struct core_waiter *kept = core_find_file_waiter(core, file->id);
    if (kept)
        apply_forget_waiter(apply, kept);
    core_enter_session(session, file);
    apply->out->session = session->id;
    apply->out->mode = session->mode;
    return 0;
}

int apply_detach(struct apply *apply)
{
    struct core *core = apply->core;
    struct core_file *file = core_file(core, apply->record->file);

    if (!file)
        return -EBADF;
    if (file->session == 0)
        return -ENOLCK;
    if (!core_session(core, file->session))
        return -ESTALE;
    apply->out->session = file->session;
    leave(apply, file, false);
    apply_grant_waiters(apply, core_store(core, file->store));
    return 0;
}
