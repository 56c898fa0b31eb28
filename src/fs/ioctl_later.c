/* SPDX-License-Identifier: Apache-2.0 */
/* ioctl_later - ACQUIRE, RELEASE, ALLOC, ALLOC_EACH, RESERVE, EXPORT, COMMIT, ABORT, APPLY:
 * answered when the service is done */
#include "fs/ioctl.h"

#include "fs/payload.h"
#include "gmsfs_abi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- answers ----------------------------------------------------------------------------- */

uint32_t ioctl_get_mode(enum lock_mode mode)
{
    static const enum gmsfs_mode modes[LOCK_MODES] = {
        [LOCK_MODE_NONE] = GMSFS_MODE_NONE,
        [LOCK_MODE_RO] = GMSFS_MODE_RO,
        [LOCK_MODE_RW] = GMSFS_MODE_RW,
        [LOCK_MODE_RW_DATA] = GMSFS_MODE_RW_DATA,
    };

    return (uint32_t)modes[mode];
}

int ioctl_answer(struct fs_request *request, size_t size)
{
    size_t room = request->bytes;
    return fuse_reply_ioctl(request->req, 0, size ? request->payload : NULL,
                            size < room ? size : room);
}

/* ---- ACQUIRE ----------------------------------------------------------------------------- */

/* The grant could not be delivered: the client was interrupted and will ask again. */
static void undo_acquire(struct fs *fs, uint64_t file)
{
    struct fs_request *unheard = fs_request_new_unheard(fs);
    if (!unheard)
        return; /* the session then lives as long as the file */
    fs_request_submitted(unheard, service_release(fs->service, file, &unheard->service));
}

static void on_acquired(struct fs_request *request, const struct service_answer *answer)
{
    struct fs *fs = request->fs;
    struct gmsfs_ioc_acquire *acquire = (struct gmsfs_ioc_acquire *)request->payload;
    struct service_acquired acquired;
    int error = service_view_acquired(fs->service, request->file, &acquired);
    (void)answer;
    if (error) {
        fs_reply_error(request->req, error);
        return;
    }
    acquire->mode = ioctl_get_mode(acquired.session->mode);
    acquire->session = acquired.session->id;
    acquire->generation = acquired.store->generation;
    memcpy(acquire->token, acquired.session->token, sizeof acquire->token);
    memcpy(acquire->store_id, acquired.store->uuid, sizeof acquire->store_id);
    memcpy(acquire->layout_hash, acquired.hash, sizeof acquire->layout_hash);
    if (ioctl_answer(request, sizeof *acquire) == -ENOENT)
        undo_acquire(fs, request->file);
}

/* If the export failed, the grant stands: the client exports by itself and gets the error then. */
static void on_acquire_exported(struct fs_request *request, const struct service_answer *answer)
{
    struct gmsfs_ioc_acquire *acquire = (struct gmsfs_ioc_acquire *)request->payload;
    if (!request->error) {
        memcpy(acquire->ticket, request->export.ticket, sizeof acquire->ticket);
        acquire->count = request->export.count;
    }
    on_acquired(request, answer);
}

static enum lock_wish get_wish(uint32_t mode)
{
    switch (mode) {
    case GMSFS_MODE_RO:
        return LOCK_WISH_RO;
    case GMSFS_MODE_RW:
        return LOCK_WISH_RW;
    case GMSFS_MODE_RW_DATA_OR_RW:
        return LOCK_WISH_DATA;
    default:
        return LOCK_WISH_AUTO;
    }
}

/* Exports for a granted request. */
static int export_acquired(struct fs_request *request)
{
    request->export = (struct service_export){.uid = request->uid};
    request->reply = on_acquire_exported;
    request->takes_errors = true;
    return service_export(request->fs->service, request->file, &request->export, &request->service);
}

void ioctl_acquire(struct fs_request *request, const struct core_file *file)
{
    struct fs *fs = request->fs;
    struct gmsfs_ioc_acquire *argument = (struct gmsfs_ioc_acquire *)request->payload;
    struct service_caller caller;
    int error = payload_check_acquire(argument, (file->flags & CORE_OPEN_READ) != 0,
                                      (file->flags & CORE_OPEN_WRITE) != 0);
    if (error) {
        fs_request_finish(request, error, NULL);
        return;
    }
    struct service_acquire acquire = {
        .wish = get_wish(argument->mode),
        .timeout_ms = argument->timeout_ms,
        .reserve_bytes = argument->reserve_bytes,
        .again = (argument->flags & GMSFS_ACQUIRE_AGAIN) != 0,
        .fresh = (argument->flags & GMSFS_ACQUIRE_FRESH) != 0,
        .replace = (argument->flags & GMSFS_ACQUIRE_REPLACE) != 0,
        .any = (argument->flags & GMSFS_ACQUIRE_ANY) != 0,
        .grouped = (argument->flags & GMSFS_ACQUIRE_GROUP) != 0,
        .by_process = (argument->flags & GMSFS_ACQUIRE_BY_PROCESS) != 0,
        /* Forked children of a library's user may have the file as well. */
        .owned = !(argument->flags & GMSFS_ACQUIRE_BY_PROCESS),
    };
    memset(argument->ticket, 0, sizeof argument->ticket);
    argument->count = 0;
    error = fs_get_caller(request->req, 1, &caller);
    if (error) {
        fs_request_finish(request, error, NULL);
        return;
    }
    request->reply = on_acquired;
    if (argument->flags & GMSFS_ACQUIRE_EXPORT)
        request->next_step = export_acquired;
    fs_request_submitted(
        request, service_acquire(fs->service, file->id, &acquire, &caller, &request->service));
}

/* ---- RELEASE ----------------------------------------------------------------------------- */

static void on_released(struct fs_request *request, const struct service_answer *answer)
{
    (void)answer;
    ioctl_answer(request, 0);
}

void ioctl_release(struct fs_request *request, const struct core_file *file)
{
    request->reply = on_released;
    fs_request_submitted(request,
                         service_release(request->fs->service, file->id, &request->service));
}

_Static_assert(GMSFS_ALLOC_EACH_MAX == SERVICE_MAX_ALLOC_ITEMS, "of one ALLOC_EACH");

/* ---- ALLOC ------------------------------------------------------------------------------- */

static void on_allocated(struct fs_request *request, const struct service_answer *answer)
{
    struct gmsfs_ioc_alloc *alloc = (struct gmsfs_ioc_alloc *)request->payload;
    alloc->size_bytes = answer->aligned_bytes;
    alloc->slot = answer->slot;
    alloc->rank = answer->rank;
    memset(alloc->name, 0, sizeof alloc->name);
    memcpy(alloc->name, answer->name, strnlen(answer->name, sizeof alloc->name - 1));
    ioctl_answer(request, sizeof *alloc);
}

void ioctl_alloc(struct fs_request *request, const struct core_file *file)
{
    const struct gmsfs_ioc_alloc *argument = (struct gmsfs_ioc_alloc *)request->payload;
    struct service_actor by = {.file = file->id};
    int error = payload_check_alloc(argument);
    struct service_alloc alloc = {
        .size_bytes = argument->size_bytes,
        .count = argument->count,
        .name = argument->name,
        .tag = argument->tag,
        .exact = (argument->flags & GMSFS_ALLOC_EXACT) != 0,
        .wait = !(argument->flags & GMSFS_ALLOC_NOWAIT),
        .timeout_ms = argument->timeout_ms,
    };
    request->reply = on_allocated;
    if (!error)
        error = service_alloc(request->fs->service, &by, &alloc, &request->service);
    fs_request_submitted(request, error);
}

static void on_allocated_each(struct fs_request *request, const struct service_answer *answer)
{
    struct gmsfs_ioc_alloc_each *alloc = (struct gmsfs_ioc_alloc_each *)request->payload;
    for (uint32_t i = 0; i < alloc->count; i++)
        alloc->items[i].slot = answer->slots[i];
    ioctl_answer(request, sizeof *alloc);
}

void ioctl_alloc_each(struct fs_request *request, const struct core_file *file)
{
    struct fs *fs = request->fs;
    const struct gmsfs_ioc_alloc_each *argument = (struct gmsfs_ioc_alloc_each *)request->payload;
    struct service_alloc_item items[SERVICE_MAX_ALLOC_ITEMS];
    struct service_actor by = {.file = file->id};
    int error = payload_check_alloc_each(argument);
    if (error) {
        fs_request_finish(request, error, NULL);
        return;
    }
    for (uint32_t i = 0; i < argument->count; i++)
        items[i] = (struct service_alloc_item){.size_bytes = argument->items[i].size_bytes,
                                               .name = argument->items[i].name,
                                               .tag = argument->items[i].tag};
    struct service_alloc alloc = {
        .items = items,
        .count = argument->count,
        .exact = (argument->flags & GMSFS_ALLOC_EXACT) != 0,
        .wait = !(argument->flags & GMSFS_ALLOC_NOWAIT),
        .timeout_ms = argument->timeout_ms,
    };
    request->reply = on_allocated_each;
    fs_request_submitted(request, service_alloc(fs->service, &by, &alloc, &request->service));
}

/* ---- RESERVE ----------------------------------------------------------------------------- */

static void on_reserved(struct fs_request *request, const struct service_answer *answer)
{
    struct gmsfs_ioc_reserve *reserve = (struct gmsfs_ioc_reserve *)request->payload;
    reserve->bytes = answer->reserved_bytes;
    reserve->before = answer->reserved_before_bytes;
    ioctl_answer(request, sizeof *reserve);
}

static bool reserve_flags_are_known(uint32_t flags)
{
    if (flags & GMSFS_RESERVE_REPLACING && !(flags & GMSFS_RESERVE_AS_ACQUIRE))
        return false;
    return !(flags & ~(GMSFS_RESERVE_AT_LEAST | GMSFS_RESERVE_NOWAIT | GMSFS_RESERVE_AS_ACQUIRE |
                       GMSFS_RESERVE_REPLACING));
}

void ioctl_reserve(struct fs_request *request, const struct core_file *file)
{
    const struct gmsfs_ioc_reserve *argument = (struct gmsfs_ioc_reserve *)request->payload;
    struct service_actor by = {.file = file->id};
    int error = reserve_flags_are_known(argument->flags) ? 0 : -EINVAL;
    struct service_set_aside wanted = {
        .bytes = argument->bytes,
        .at_least = (argument->flags & GMSFS_RESERVE_AT_LEAST) != 0,
        .wait = !(argument->flags & GMSFS_RESERVE_NOWAIT),
        .timeout_ms = argument->timeout_ms,
        .as_acquire = (argument->flags & GMSFS_RESERVE_AS_ACQUIRE) != 0,
        .replacing = (argument->flags & GMSFS_RESERVE_REPLACING) != 0,
    };
    request->reply = on_reserved;
    if (!error)
        error = service_set_aside(request->fs->service, &by, &wanted, &request->service);
    fs_request_submitted(request, error);
}

/* ---- EXPORT ------------------------------------------------------------------------------ */

static void on_exported(struct fs_request *request, const struct service_answer *answer)
{
    struct gmsfs_ioc_export *export = (struct gmsfs_ioc_export *)request->payload;
    (void)answer;
    export->first = request->export.first;
    export->count = request->export.count;
    export->total_bytes = request->export.total_bytes;
    export->generation = request->export.generation;
    memcpy(export->ticket, request->export.ticket, sizeof export->ticket);
    ioctl_answer(request, sizeof *export);
}

void ioctl_export(struct fs_request *request, const struct core_file *file)
{
    const struct gmsfs_ioc_export *argument = (struct gmsfs_ioc_export *)request->payload;
    if (argument->flags & ~(GMSFS_EXPORT_WRITABLE | GMSFS_EXPORT_BY_SLOT) ||
        (argument->flags & GMSFS_EXPORT_BY_SLOT && argument->count > 1)) {
        fs_request_finish(request, -EINVAL, NULL);
        return;
    }
    request->export = (struct service_export){
        .first = argument->first,
        .count = argument->count,
        .by_slot = (argument->flags & GMSFS_EXPORT_BY_SLOT) != 0,
        .writable = (argument->flags & GMSFS_EXPORT_WRITABLE) != 0,
        .uid = request->uid,
    };
    request->reply = on_exported;
    fs_request_submitted(request, service_export(request->fs->service, file->id, &request->export,
                                                 &request->service));
}

/* ---- COMMIT, ABORT, APPLY ---------------------------------------------------------------- */

static void on_committed(struct fs_request *request, const struct service_answer *answer)
{
    struct gmsfs_ioc_commit *commit = (struct gmsfs_ioc_commit *)request->payload;
    if (commit->flags & GMSFS_COMMIT_CHECK) {
        commit->mode = GMSFS_MODE_RW;
        ioctl_answer(request, sizeof *commit);
        return;
    }
    commit->mode = ioctl_get_mode(answer->mode);
    commit->generation = answer->generation;
    memcpy(commit->layout_hash, answer->hash, sizeof commit->layout_hash);
    ioctl_answer(request, sizeof *commit);
}

void ioctl_commit(struct fs_request *request, const struct core_file *file)
{
    const struct gmsfs_ioc_commit *commit = (struct gmsfs_ioc_commit *)request->payload;
    struct service_actor by = {.file = file->id};
    int error = payload_check_commit(commit);
    request->reply = on_committed;
    if (!error)
        error = service_commit(request->fs->service, &by, commit->flags, commit->group,
                               &request->service);
    fs_request_submitted(request, error);
}

static void on_aborted(struct fs_request *request, const struct service_answer *answer)
{
    struct gmsfs_ioc_abort *abort = (struct gmsfs_ioc_abort *)request->payload;
    *abort = (struct gmsfs_ioc_abort){.rolled_back = answer->rolled_back};
    ioctl_answer(request, sizeof *abort);
}

void ioctl_abort(struct fs_request *request, const struct core_file *file)
{
    struct service_actor by = {.file = file->id};
    request->reply = on_aborted;
    fs_request_submitted(request, service_abort(request->fs->service, &by, &request->service));
}

void ioctl_drop_gathered(struct fs *fs, uint64_t file, struct fs_gathered *document)
{
    struct fs_handle *handle = fs_handle_find(fs, file);
    if (handle) {
        fs_gather_free(fs, handle, document ? document : &handle->gathered);
        fs_note_gathered(fs, handle, FS_GATHERED_DROP, 0, NULL, 0);
    }
}

/* A document's error is in the answer; the ioctl itself then succeeds. */
static void on_applied(struct fs_request *request, const struct service_answer *answer)
{
    struct gmsfs_ioc_apply *apply = (struct gmsfs_ioc_apply *)request->payload;
    ioctl_drop_gathered(request->fs, request->file, &request->document);
    *apply = (struct gmsfs_ioc_apply){
        .applied = answer->applied,
        .error = request->error,
        .culprit = request->error ? answer->culprit : 0,
    };
    ioctl_answer(request, sizeof *apply);
}

void ioctl_apply(struct fs_request *request, const struct core_file *file)
{
    struct fs *fs = request->fs;
    struct fs_handle *handle = fs_handle_find(fs, file->id);
    struct service_actor by = {.file = file->id};
    int error = fs_take_loss(fs, file->id);
    if (error) {
        fs_request_finish(request, error, NULL);
        return;
    }
    if (handle)
        request->document = fs_gather_take(handle);
    request->reply = on_applied;
    request->takes_errors = true;
    if (!request->document.bytes) { /* nothing was written: not a document */
        struct service_answer answer = {.culprit = UINT64_MAX};
        fs_request_finish(request, -EINVAL, &answer);
        return;
    }
    fs_request_submitted(request, service_apply(fs->service, &by, request->document.bytes,
                                                request->document.used, &request->service));
}
