/* SPDX-License-Identifier: Apache-2.0 */
/* The lock: taking, joining, leaving, publishing; and the daemon's facts about the store. */
#include <errno.h>
#include <string.h>

#include "internal.h"

#include "base/hex.h"

/* ---- text --------------------------------------------------------------------------------- */

int gfs_is_zero(const uint8_t bytes[16])
{
    for (int i = 0; i < 16; i++)
        if (bytes[i])
            return 0;
    return 1;
}

void gmsfs_token_format(const uint8_t token[GMSFS_TOKEN_BYTES], char text[GMSFS_TOKEN_TEXT_BYTES])
{
    hex_format(token, GMSFS_TOKEN_BYTES, text);
}

int gmsfs_token_parse(const char *text, uint8_t token[GMSFS_TOKEN_BYTES])
{
    uint8_t bytes[GMSFS_TOKEN_BYTES];

    if (!text || !token || strlen(text) != 2 * sizeof bytes)
        return -EINVAL;
    if (hex_parse(text, bytes, sizeof bytes) < 0)
        return -EINVAL;
    memcpy(token, bytes, sizeof bytes);
    return 0;
}

/* ---- taking and leaving ------------------------------------------------------------------ */

/* A file that cannot be asked is closed, which ends its session too: one that stayed behind unknown
 * would be in the way of the next. */
int gfs_session_drop(struct gmsfs_store *handle)
{
    int error = gfs_ioctl(handle, GMSFS_IOC_RELEASE, NULL);

    if (error == -ESTALE || error == -ENOLCK)
        return 0;
    return error && gfs_ctl_open(handle, 0) ? error : 0;
}

int gfs_session_release(struct gmsfs_store *handle)
{
    if (handle->mode == GMSFS_MODE_NONE)
        return 0;
    int error = gfs_session_drop(handle);
    if (!error || error == -ENOTCONN)
        gfs_session_forget(handle);
    return error;
}

void gfs_session_give_up_place(struct gmsfs_store *handle)
{
    if (atomic_exchange(&handle->keeps_place, 0))
        gfs_ioctl(handle, GMSFS_IOC_CANCEL, NULL); /* or it is over by itself, in a second */
}

/* A `ctl` may refuse a new session after its last one was ended from outside: then opens it again.
 */
static int session_acquire_retry(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire)
{
    struct gmsfs_ioc_acquire request = *acquire;
    int error = gfs_ioctl_acquire(handle, acquire);

    if (error != -ESTALE)
        return error;
    error = gfs_ctl_open(handle, request.mode != GMSFS_MODE_RO);
    if (error)
        return error;
    *acquire = request;
    return gfs_ioctl_acquire(handle, acquire);
}

int gfs_session_take(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire)
{
    int error;

    if (acquire->mode != GMSFS_MODE_RO && !handle->writable) {
        /* the permission may have come since */
        error = gfs_ctl_open(handle, 1);
        if (error == -EACCES && acquire->mode == GMSFS_MODE_RW_OR_RO) {
            acquire->mode = GMSFS_MODE_RO;
            acquire->reserve_bytes = 0;
        } else if (error)
            return error;
    }
    return session_acquire_retry(handle, acquire);
}

void gfs_session_note(struct gmsfs_store *handle, const struct gmsfs_ioc_acquire *acquire,
                      int committed)
{
    gfs_session_begin(handle, &(struct gfs_grant){.mode = acquire->mode,
                                                  .session = acquire->session,
                                                  .generation = acquire->generation,
                                                  .token = acquire->token,
                                                  .store_id = acquire->store_id,
                                                  .layout_hash = acquire->layout_hash,
                                                  .committed = committed});
}

static int session_learn(struct gmsfs_store *handle, const struct gmsfs_ioc_acquire *acquire)
{
    struct gmsfs_ioc_info info;
    int error;

    memset(&info, 0, sizeof info);
    if (acquire->mode == GMSFS_MODE_RW) {
        error = gfs_ioctl(handle, GMSFS_IOC_INFO, &info);
        if (error) {
            gfs_session_drop(handle);
            return error;
        }
    }
    gfs_session_note(handle, acquire, info.committed != 0);
    return 0;
}

int gfs_session_acquire(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire)
{
    if (handle->mode != GMSFS_MODE_NONE || handle->connecting)
        return -EBUSY;
    int error = gfs_session_take(handle, acquire);
    return error ? error : session_learn(handle, acquire);
}

/* ---- public ------------------------------------------------------------------------------- */

int gmsfs_connect(gmsfs_t *handle, enum gmsfs_mode mode, uint64_t timeout_ms)
{
    return gmsfs_connect_reserve(handle, mode, timeout_ms, 0);
}

int gfs_session_check_wish(enum gmsfs_mode mode, uint64_t reserve_bytes)
{
    if (mode != GMSFS_MODE_RO && mode != GMSFS_MODE_RW && mode != GMSFS_MODE_RW_OR_RO &&
        mode != GMSFS_MODE_RW_DATA_OR_RW)
        return -EINVAL;
    return mode == GMSFS_MODE_RO && reserve_bytes ? -EINVAL : 0;
}

static int session_begin_work(struct gmsfs_store *handle, uint64_t reserve_bytes)
{
    handle->announced_bytes = handle->mode == GMSFS_MODE_RW ? reserve_bytes : 0;
    int error = gfs_choose_memory(handle);
    if (error)
        gfs_session_release(handle);
    return error;
}

int gfs_session_settle(struct gmsfs_store *handle, const struct gmsfs_ioc_acquire *acquire,
                       uint64_t reserve_bytes)
{
    int error = session_learn(handle, acquire);

    return error ? error : session_begin_work(handle, reserve_bytes);
}

int gfs_session_connect(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire)
{
    uint64_t reserve_bytes = acquire->reserve_bytes;
    int error = gfs_session_acquire(handle, acquire);

    return error ? error : session_begin_work(handle, reserve_bytes);
}

int gmsfs_connect_reserve(gmsfs_t *handle, enum gmsfs_mode mode, uint64_t timeout_ms,
                          uint64_t reserve_bytes)
{
    struct gmsfs_ioc_acquire acquire = {
        .mode = mode, .timeout_ms = timeout_ms, .reserve_bytes = reserve_bytes};
    int error = gfs_session_check_wish(mode, reserve_bytes);

    if (!error)
        error = gfs_enter(handle);
    if (error)
        return error;
    error = gfs_session_connect(handle, &acquire);
    gfs_leave(handle);
    return error;
}

int gmsfs_join(gmsfs_t *handle, const uint8_t token[GMSFS_TOKEN_BYTES])
{
    struct gmsfs_ioc_join join;
    struct gmsfs_ioc_info info;
    int error;

    if (!token)
        return -EINVAL;
    error = gfs_enter(handle);
    if (error)
        return error;
    if (handle->mode != GMSFS_MODE_NONE || handle->connecting) {
        error = -EBUSY;
        goto out;
    }
    memset(&join, 0, sizeof join);
    memset(&info, 0, sizeof info);
    memcpy(join.token, token, sizeof join.token);
    error = gfs_ioctl(handle, GMSFS_IOC_JOIN, &join);
    if (error)
        goto out;
    error = gfs_ioctl(handle, GMSFS_IOC_INFO, &info);
    if (error) {
        gfs_session_drop(handle);
        goto out;
    }
    gfs_session_begin(handle, &(struct gfs_grant){.mode = join.mode,
                                                  .session = join.session,
                                                  .generation = info.generation,
                                                  .token = token,
                                                  .store_id = info.store_id,
                                                  .layout_hash = info.layout_hash,
                                                  .committed = info.committed != 0});
out:
    gfs_leave(handle);
    return error;
}

/* The mappings of the layout that is published must not be written to any more. */
static int session_is_writable(const struct gfs_mapping *mapping, const void *context)
{
    const struct gmsfs_store *handle = context;

    return mapping->live && mapping->access == GMSFS_ACCESS_WRITE &&
           mapping->ident.epoch == handle->ident.epoch;
}

/* For every device that a mapping was made for, as the program may have named others since: the
 * call changes the rights, not the set of devices. */
static int session_protect(struct gmsfs_store *handle, enum gmsfs_access access)
{
    uint64_t size_bytes;
    size_t at = 0;
    uintptr_t va;
    int error = 0, failed;

    while (gfs_vmap_next_run(&handle->map, &at, session_is_writable, handle, &va, &size_bytes)) {
        failed = gfs_memory_protect(&handle->memory, va, size_bytes, access,
                                    gfs_vmap_find_mapping(&handle->map, va)->devices);
        error = error ? error : failed;
    }
    return error;
}

struct session_again {
    struct gmsfs_store *handle;
    struct gfs_mapping *mapping;
    enum gmsfs_access access;
};

static int session_take_again(void *context, const struct gfs_item *given, int *fd)
{
    const struct session_again *again = context;
    const struct gfs_mapping *mapping = again->mapping;
    struct gfs_memory *memory = &again->handle->memory;

    if (given->aligned_bytes != mapping->aligned_bytes)
        return -ESTALE;
    int error = gfs_memory_map(memory, mapping->va, mapping->aligned_bytes, again->access, *fd);
    return error ? error
                 : gfs_memory_settle(memory, mapping->va, mapping->aligned_bytes, again->access,
                                     mapping->devices);
}

static int session_map_one_again(struct session_again *again)
{
    struct gmsfs_store *handle = again->handle;
    uint64_t slot = again->mapping->slot;
    int error = gfs_export_slot(handle, slot, again->access, session_take_again, again);

    if (error == -EPERM && again->access == GMSFS_ACCESS_WRITE) {
        /* sealed by the immutable commit, before that failed */
        again->access = GMSFS_ACCESS_READ;
        error = gfs_export_slot(handle, slot, again->access, session_take_again, again);
        gfs_state_lock(handle);
        again->mapping->access = GMSFS_ACCESS_READ;
        gfs_state_unlock(handle);
    }
    return error == -ENOENT ? 0 : error; /* freed under its mapping */
}

/* Maps host memory anew at its address: a mapping by a writable descriptor counts as writable,
 * even if it is read-only now. Returns the first error, and maps the rest all the same. */
static int session_map_again(struct gmsfs_store *handle, enum gmsfs_access access)
{
    int error = 0, failed;

    for (size_t i = 0; i < handle->map.mapping_count; i++) {
        struct session_again again = {handle, handle->map.mappings + i, access};

        if (!session_is_writable(again.mapping, handle))
            continue;
        failed = session_map_one_again(&again);
        error = error ? error : failed;
    }
    return error;
}

static int session_set_access(struct gmsfs_store *handle, enum gmsfs_access access, unsigned flags)
{
    return flags & GMSFS_COMMIT_IMMUTABLE && handle->memory.kind == &gfs_memory_host
               ? session_map_again(handle, access)
               : session_protect(handle, access);
}

static int session_publish_layout(struct gmsfs_store *handle, struct gmsfs_ioc_commit *commit)
{
    int error = gfs_ioctl(handle, GMSFS_IOC_COMMIT, commit);

    if (!error)
        gfs_session_publish(handle, commit);
    return error;
}

/* Publishes every write before the call, and prevents writes after it. */
static int session_close_and_publish(struct gmsfs_store *handle, struct gmsfs_ioc_commit *commit)
{
    GFS_SCOPE(scope);
    int error = gfs_memory_enter(&handle->memory, 0, &scope);

    if (!error)
        error = gfs_memory_synchronise(&handle->memory);
    if (error)
        return error;
    error = session_set_access(handle, GMSFS_ACCESS_READ, commit->flags);
    if (!error)
        error = session_publish_layout(handle, commit);
    if (error) /* the caller hears why the commit failed, also where this fails too */
        session_set_access(handle, GMSFS_ACCESS_WRITE, commit->flags);
    return error;
}

int gfs_session_commit(struct gmsfs_store *handle, unsigned flags, const uint8_t *group)
{
    struct gmsfs_ioc_commit commit = {.flags = flags};
    int error = handle->mode == GMSFS_MODE_RW ? 0 : -ENOLCK;

    if (group)
        memcpy(commit.group, group, sizeof commit.group);
    if (!error)
        error = gfs_create_trim(handle);
    if (!error)
        error = gfs_mapping_learn_ranks(handle);
    if (error)
        return error;
    if (handle->map.mapping_count == 0)
        /* perhaps a program that has no use for the device */
        return session_publish_layout(handle, &commit);
    return session_close_and_publish(handle, &commit);
}

int gmsfs_commit(gmsfs_t *handle, unsigned flags, const uint8_t *group)
{
    if (flags & ~(GMSFS_COMMIT_STAY | GMSFS_COMMIT_GROUP | GMSFS_COMMIT_IMMUTABLE) ||
        !(flags & GMSFS_COMMIT_GROUP) != !group)
        return -EINVAL;
    int error = gfs_enter(handle);
    if (error)
        return error;
    error = gfs_session_commit(handle, flags, group);
    gfs_leave(handle);
    return error;
}

int gmsfs_commit_layout(gmsfs_t *handle)
{
    struct gmsfs_ioc_commit commit = {.flags = GMSFS_COMMIT_SEAL};
    int error = gfs_enter(handle);

    if (error)
        return error;
    error = handle->mode == GMSFS_MODE_RW ? gfs_create_trim(handle) : -ENOLCK;
    if (!error)
        error = gfs_mapping_learn_ranks(handle);
    if (!error)
        error = gfs_ioctl(handle, GMSFS_IOC_COMMIT, &commit);
    if (!error)
        gfs_session_seal(handle, &commit);
    gfs_leave(handle);
    return error;
}

int gmsfs_abort(gmsfs_t *handle, int *rolled_back)
{
    struct gmsfs_ioc_abort answer = {0};
    int error = gfs_enter(handle);

    if (error)
        return error;
    error = gfs_session_writes(handle) ? 0 : -ENOLCK;
    if (!error)
        error = gfs_ioctl(handle, GMSFS_IOC_ABORT, &answer);
    if (!error) {
        gfs_session_forget(handle);
        if (rolled_back)
            *rolled_back = answer.rolled_back != 0;
    }
    gfs_leave(handle);
    return error;
}

/* ---- looking ------------------------------------------------------------------------------ */

int gmsfs_set_connect_flags(gmsfs_t *handle, unsigned flags)
{
    int error = gfs_enter(handle);

    if (error)
        return error;
    if (flags & ~(GMSFS_CONNECT_REPLACE | GMSFS_CONNECT_ANY | GMSFS_CONNECT_KEEP_PLACE))
        error = -EINVAL;
    else
        handle->connect_flags = flags;
    gfs_leave(handle);
    return error;
}

int(gmsfs_get_info)(gmsfs_t *handle, struct gmsfs_info *out, size_t out_bytes)
{
    struct gmsfs_info own = {0};
    struct gmsfs_ioc_info info;
    int error = gfs_enter(handle);

    if (error)
        return error;
    memset(&info, 0, sizeof info);
    error =
        out && !gfs_check_struct(out_bytes) ? gfs_ioctl(handle, GMSFS_IOC_INFO, &info) : -EINVAL;
    own.memory = handle->is_beside ? GMSFS_MEMORY_HOST : info.memory;
    gfs_leave(handle);
    if (error)
        return error;
    memcpy(own.store_id, info.store_id, 16);
    memcpy(own.device_uuid, info.device_uuid, 16);
    memcpy(own.group, info.group, 16);
    if (!gfs_is_zero(info.layout_hash))
        hex_format(info.layout_hash, sizeof info.layout_hash, own.layout_hash);
    own.state = info.state;
    own.mode = info.mode;
    own.committed = info.committed != 0;
    own.generation = info.generation;
    own.session = info.session;
    own.allocations = info.allocations;
    own.entries = info.entries;
    own.total_bytes = info.total_bytes;
    own.granularity_bytes = info.granularity_bytes;
    own.readers = info.readers;
    own.writers_waiting = info.writers_waiting;
    own.sealed = info.sealed != 0;
    own.residency = info.residency;
    own.moves = info.moves;
    gfs_give_struct(out, out_bytes, &own, sizeof own);
    return 0;
}

int gmsfs_get_memory_layout_hash(gmsfs_t *handle, char text[GMSFS_HASH_TEXT_BYTES])
{
    struct gmsfs_info info;
    int error = text ? gmsfs_get_info(handle, &info) : -EINVAL;

    if (error)
        return error;
    memcpy(text, info.layout_hash, GMSFS_HASH_TEXT_BYTES);
    return 0;
}
