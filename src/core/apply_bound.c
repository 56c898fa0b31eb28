/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds and the users' shares of them. */
#include "core/core_internal.h"

#include <errno.h>
#include <string.h>

static const struct {
    char name[CORE_BOUND_BYTES];
    int whole; /* the error when all of it is used */
} bounds[] = {
    [CORE_BOUND_NONE] = {"", 0},
    [CORE_BOUND_FILES] = {"files", -ENFILE},
    [CORE_BOUND_TICKETS] = {"tickets", -ENOSPC},
    [CORE_BOUND_SESSIONS] = {"sessions", -ENOSPC},
    [CORE_BOUND_WAITERS] = {"waiters", -ENOSPC},
    [CORE_BOUND_GATHERED] = {"documents", -ENOMEM},
    [CORE_BOUND_REGIONS] = {"regions", -ENOSPC},
    [CORE_BOUND_REGION_BYTES] = {"region_names", -ENOSPC},
    [CORE_BOUND_MEMORY] = {"memory", -ENOMEM},
};

const char *core_bound_name(enum core_bound bound)
{
    return bounds[bound].name;
}

enum share_rank core_get_rank(const struct core *core, const struct core_store *store, uint32_t uid)
{
    if (uid == 0 || uid == core->options.admin_uid)
        return SHARE_ADMIN;
    return store && store->uid == uid ? SHARE_OWNER : SHARE_USER;
}

static struct share *get_share(struct core *core, enum core_bound bound, struct core_store *store)
{
    if (bound == CORE_BOUND_SESSIONS)
        return &store->sessions;
    return bound == CORE_BOUND_WAITERS ? &store->waiters : &core->shares[bound];
}

int apply_check_bound(struct apply *apply, enum core_bound bound, struct core_store *store,
                      uint32_t uid, uint64_t more)
{
    const struct share *share = get_share(apply->core, bound, store);
    int error = share_check(share, uid, core_get_rank(apply->core, store, uid), more);

    if (error < 0) {
        apply->out->bound = bound;
        apply->out->bound_uid = uid;
    }
    return error == -ENOSPC ? bounds[bound].whole : error;
}

int apply_take(struct apply *apply, enum core_bound bound, struct core_store *store, uint32_t uid,
               uint64_t more)
{
    int error = apply_check_bound(apply, bound, store, uid, more);

    return error < 0 ? error : share_take(get_share(apply->core, bound, store), uid, more);
}

int apply_gather(struct apply *apply)
{
    struct core *core = apply->core;
    struct core_file *file = core_file(core, apply->record->file);
    uint64_t bytes = apply->record->size_bytes;
    int error = 0;

    if (!file)
        return -EBADF;
    if (bytes > file->gathered_bytes)
        error = apply_take(apply, CORE_BOUND_GATHERED, core_store(core, file->store), file->uid,
                           bytes - file->gathered_bytes);
    else
        share_give(&core->shares[CORE_BOUND_GATHERED], file->uid, file->gathered_bytes - bytes);
    if (error == 0)
        file->gathered_bytes = bytes;
    return error;
}

int apply_check_idle_ctl(struct apply *apply, const struct core_file *file)
{
    if (!file)
        return -EBADF;
    if (file->kind != CORE_KIND_CTL)
        return -EINVAL;
    if (!core_store(apply->core, file->store))
        return -ESTALE;
    if (core_session(apply->core, file->session))
        return -EDEADLK;
    const struct core_waiter *waiter = core_find_file_waiter(apply->core, file->id);
    return waiter && !waiter->away ? -EBUSY : 0;
}

int apply_bound(struct apply *apply)
{
    const struct record *record = apply->record;
    size_t bytes = record->name_bytes;

    if (bytes == 0 || bytes >= CORE_BOUND_BYTES || memchr(record->name, '\0', bytes) ||
        (record->flags & ~(uint32_t)CORE_BOUND_SHARE))
        return -EINVAL;
    core_add_event(apply, CORE_EVENT_BOUND, core_store(apply->core, record->store), NULL);
    return 0;
}
