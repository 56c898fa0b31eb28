/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ioctl - commands on open files: the table, and the commands that answer at once
 *
 * ioctl_later.c has the commands that answer later. A command gets a request whose payload is the
 * caller's argument; it changes the payload into the answer and finishes the request, now or later.
 */
#include "fs/ioctl.h"

#include "fs/list.h"
#include "fs/payload.h"
#include "gmsfs_abi.h"
#include "service/stores.h"

#include <errno.h>
#include <string.h>

_Static_assert((int)VMM_MEMORY_HOST == (int)GMSFS_MEMORY_HOST &&
                   (int)VMM_MEMORY_CUDA == (int)GMSFS_MEMORY_CUDA,
               "kinds of memory have the numbers of the ABI");

_Static_assert(GMSFS_ENTRIES_MAX == LAYOUT_MAX_ENTRIES, "clients know the bound");

/* Answers a command that is done. done: the bytes of the answer, or a negative errno. */
static void finish_now(struct fs_request *request, int done)
{
    if (done >= 0) {
        ioctl_answer(request, (size_t)done);
        request->req = NULL; /* answered */
    }
    fs_request_finish(request, done < 0 ? done : 0, NULL);
}

static void fill_layout(struct gmsfs_ioc_info *info, const struct service_info *view)
{
    if (view->seen) {
        info->allocations = layout_count_allocations(view->seen);
        info->entries = layout_count_entries(view->seen);
        info->total_bytes = layout_total_bytes(view->seen);
    }
    if (view->layout) {
        memcpy(info->layout_hash, view->store->hash, sizeof info->layout_hash);
        info->layout_bytes = (uint32_t)view->layout->size;
    }
}

_Static_assert(GMSFS_RESIDENCY_DEVICE == 1u << CORE_PLACE_DEVICE &&
                   GMSFS_RESIDENCY_HOST == 1u << CORE_PLACE_HOST &&
                   GMSFS_RESIDENCY_DISK == 1u << CORE_PLACE_DISK,
               "clients see the core's tiers");

static uint32_t get_residency(const struct core_store *store)
{
    uint32_t tiers = 0;
    for (unsigned i = 0; i < CORE_TIER_COUNT; i++)
        tiers |= core_has_copy(store, (enum core_place)i) ? 1u << i : 0;
    return tiers;
}

static int do_info(struct fs_request *request, const struct core_file *file)
{
    struct fs *fs = request->fs;
    struct gmsfs_ioc_info *info = (struct gmsfs_ioc_info *)request->payload;
    struct service_info view;
    struct vmm_info device;
    int error = service_view_info(fs->service, file->id, &view);
    if (error)
        return error;
    service_get_device(fs->service, &device);
    *info = (struct gmsfs_ioc_info){
        .generation = view.store->generation,
        .session = view.session ? view.session->id : 0,
        .granularity_bytes = device.granularity_bytes,
        .readers = view.readers,
        .writers_waiting = view.writers_waiting,
        .mode = ioctl_get_mode(view.session ? view.session->mode : LOCK_MODE_NONE),
        .state = (uint32_t)view.state,
        .committed = view.store->lock.committed,
        .sealed = view.store->lock.sealed,
        .abi_version = GMSFS_ABI_VERSION,
        .memory = (uint32_t)device.memory,
        .residency = get_residency(view.store),
        .moves = view.store->places.moves,
        .promote_ms = view.store->places.promote_ms,
    };
    fill_layout(info, &view);
    memcpy(info->store_id, view.store->uuid, sizeof info->store_id);
    memcpy(info->device_uuid, device.uuid, sizeof info->device_uuid);
    memcpy(info->group, view.store->group, sizeof info->group);
    if (view.session)
        memcpy(info->token, view.session->token, sizeof info->token);
    return sizeof *info;
}

static int do_list(struct fs_request *request, const struct core_file *file)
{
    struct gmsfs_ioc_list *list = (struct gmsfs_ioc_list *)request->payload;
    static const uint8_t any[sizeof list->layout];
    uint8_t name[sizeof list->layout];
    const struct layout *seen;
    int error = payload_check_list(list);
    if (!error)
        error = service_view_layout(request->fs->service, file->id, &seen, name);
    if (error)
        return error;
    if (memcmp(list->layout, any, sizeof any) != 0 && memcmp(list->layout, name, sizeof name) != 0)
        return -EAGAIN;
    memcpy(list->layout, name, sizeof name);
    error = list_pack(seen, list, request->bytes);
    return error ? error : (int)(offsetof(struct gmsfs_ioc_list, data) + list->bytes);
}

static int do_join(struct fs_request *request, const struct core_file *file)
{
    struct fs *fs = request->fs;
    struct gmsfs_ioc_join *join = (struct gmsfs_ioc_join *)request->payload;
    uint64_t id = 0;
    int error = service_join(fs->service, file->id, join->token, &id);
    const struct core_session *session = error ? NULL : core_find_session(fs->core, id);
    if (!session)
        return error ? error : -ESTALE;
    join->session = id;
    join->mode = ioctl_get_mode(session->mode);
    join->pad = 0;
    return sizeof *join;
}

static int do_free(struct fs_request *request, const struct core_file *file)
{
    const struct gmsfs_ioc_free *argument = (struct gmsfs_ioc_free *)request->payload;
    struct service_actor by = {.file = file->id};
    int error = service_remove_slot(request->fs->service, &by, argument->slot);
    return error ? error : (int)sizeof *argument;
}

static int do_clear(struct fs_request *request, const struct core_file *file)
{
    struct service_actor by = {.file = file->id};
    return service_clear(request->fs->service, &by);
}

static int do_remove_unused(struct fs_request *request, const struct core_file *file)
{
    return service_store_remove_unused(request->fs->service, file->id);
}

/* ---- regions ------------------------------------------------------------------------------ */

static int do_region(struct fs_request *request, const struct core_file *file)
{
    struct fs *fs = request->fs;
    struct gmsfs_ioc_region *argument = (struct gmsfs_ioc_region *)request->payload;
    uint64_t region = file->serial;
    int error = payload_check_region(argument);
    if (error)
        return error;
    memset(argument->ticket, 0, sizeof argument->ticket);
    if (argument->flags & GMSFS_REGION_HOLD)
        error = service_region_hold(fs->service, file->id, request->uid, argument->ticket);
    const struct region *found = error ? NULL : core_find_region(fs->core, region);
    if (!error && !found)
        error = -ESTALE;
    if (!error)
        fs_describe_region(fs, found, &argument->info);
    return error ? error : (int)sizeof *argument;
}

/* Releases the lock of a `ctl`, or the reference of a region. */
static void do_release(struct fs_request *request, const struct core_file *file)
{
    if (file->kind == CORE_KIND_REGION)
        finish_now(request, service_region_release(request->fs->service, file->id));
    else
        ioctl_release(request, file);
}

/* Cancels the file's allocation: a handle of the library waits for one call at a time. */
static int cancel_alloc(struct fs *fs, uint64_t file)
{
    for (struct fs_request *request = fs->requests; request; request = request->next) {
        if (request->file != file || !request->service.alloc)
            continue;
        service_interrupt(fs->service, &request->service);
        return 0;
    }
    return -ENOENT;
}

static int do_cancel(struct fs_request *request, const struct core_file *file)
{
    struct fs *fs = request->fs;
    uint64_t id = file->id; /* canceling may free `file` */
    int error = service_cancel_wait(fs->service, id);
    return error == -ENOENT ? cancel_alloc(fs, id) : error;
}

/* ---- metadata ---------------------------------------------------------------------------- */

static int do_put(struct fs_request *request, const struct core_file *file)
{
    const struct gmsfs_ioc_metadata *data = (struct gmsfs_ioc_metadata *)request->payload;
    struct service_actor by = {.file = file->id};
    struct service_entry entry = {.key = data->data,
                                  .key_bytes = data->key_bytes,
                                  .slot = data->slot,
                                  .offset = data->offset,
                                  .value = data->data + data->key_bytes,
                                  .value_bytes = data->value_bytes};
    int error = payload_check_metadata(data, true);
    return error ? error : service_entry_put(request->fs->service, &by, &entry);
}

static int do_delete(struct fs_request *request, const struct core_file *file)
{
    const struct gmsfs_ioc_metadata *data = (struct gmsfs_ioc_metadata *)request->payload;
    struct service_actor by = {.file = file->id};
    int error = payload_check_metadata(data, false);
    return error ? error
                 : service_entry_delete(request->fs->service, &by, data->data, data->key_bytes);
}

static int do_get(struct fs_request *request, const struct core_file *file)
{
    struct gmsfs_ioc_metadata *data = (struct gmsfs_ioc_metadata *)request->payload;
    const struct layout_entry *entry;
    const struct layout *seen;
    size_t size = offsetof(struct gmsfs_ioc_metadata, data), rank = 0;
    int error = payload_check_metadata(data, false);
    if (!error)
        error = service_view_entry(request->fs->service, file->id, data->data, data->key_bytes,
                                   &seen, &entry);
    if (error)
        return error;
    size += data->key_bytes + entry->value_bytes;
    if (size > sizeof *data || size > request->bytes)
        return -EFBIG;
    data->slot = entry->slot;
    data->rank = GMSFS_SLOT_NONE;
    if (entry->slot != LAYOUT_UNBOUND && layout_find_slot(seen, entry->slot, &rank))
        data->rank = rank;
    data->offset = entry->offset;
    data->value_bytes = entry->value_bytes;
    if (entry->value_bytes)
        memcpy(data->data + data->key_bytes, entry->value, entry->value_bytes);
    return (int)size;
}

/* ---- dispatch ---------------------------------------------------------------------------- */

/* Kinds of files on which a command is known. */
#define ON(kind) (1u << (kind))
#define ON_CTL   ON(CORE_KIND_CTL)
#define ON_SESSION                                                           \
    (ON_CTL | ON(CORE_KIND_LOCK) | ON(CORE_KIND_AUTO) | ON(CORE_KIND_DATA) | \
     ON(CORE_KIND_ALLOCATION))
#define ON_REGION ON(CORE_KIND_REGION)
#define ON_ANY    ((ON(CORE_KIND_COUNT) - 1) & ~ON_REGION) /* of a store */

/* Beside the kinds: */
#define WAITS (UINT32_C(1) << 30) /* an INTERRUPT ends it */
/* Refused before its argument is looked at, unless the caller is the writer; the service checks the
 * others itself. */
#define TOUCHES (UINT32_C(1) << 31)
_Static_assert(CORE_KIND_COUNT <= 30, "a kind has a bit");

#define ROW(command, ...) [_IOC_NR(command)] = {_IOC_SIZE(command), __VA_ARGS__}

static const struct command {
    size_t size;
    uint32_t flags;
    /* Does it, and returns the bytes of the answer or a negative errno. */
    int (*now)(struct fs_request *request, const struct core_file *file);
    /* Takes over the request, to answer it later. */
    void (*later)(struct fs_request *request, const struct core_file *file);
} COMMANDS[] = {
    ROW(GMSFS_IOC_INFO, ON_ANY, do_info, NULL),
    ROW(GMSFS_IOC_ACQUIRE, ON_CTL | WAITS, NULL, ioctl_acquire),
    ROW(GMSFS_IOC_JOIN, ON_CTL, do_join, NULL),
    ROW(GMSFS_IOC_RELEASE, ON_CTL | ON_REGION, NULL, do_release),
    ROW(GMSFS_IOC_ALLOC, ON_SESSION | WAITS | TOUCHES, NULL, ioctl_alloc),
    ROW(GMSFS_IOC_FREE, ON_SESSION, do_free, NULL),
    ROW(GMSFS_IOC_CLEAR, ON_SESSION, do_clear, NULL),
    ROW(GMSFS_IOC_EXPORT, ON_SESSION, NULL, ioctl_export),
    ROW(GMSFS_IOC_METADATA_PUT, ON_SESSION, do_put, NULL),
    ROW(GMSFS_IOC_METADATA_GET, ON_ANY, do_get, NULL),
    ROW(GMSFS_IOC_METADATA_DELETE, ON_SESSION, do_delete, NULL),
    ROW(GMSFS_IOC_COMMIT, ON_SESSION | TOUCHES, NULL, ioctl_commit),
    ROW(GMSFS_IOC_ABORT, ON_SESSION, NULL, ioctl_abort),
    ROW(GMSFS_IOC_APPLY, ON_CTL | TOUCHES, NULL, ioctl_apply),
    ROW(GMSFS_IOC_RESERVE, ON_SESSION | WAITS | TOUCHES, NULL, ioctl_reserve),
    ROW(GMSFS_IOC_LIST, ON_ANY, do_list, NULL),
    ROW(GMSFS_IOC_ALLOC_EACH, ON_SESSION | WAITS | TOUCHES, NULL, ioctl_alloc_each),
    ROW(GMSFS_IOC_CANCEL, ON_CTL, do_cancel, NULL),
    ROW(GMSFS_IOC_REMOVE_UNUSED, ON_CTL, do_remove_unused, NULL),
    ROW(GMSFS_IOC_REGION, ON_REGION, do_region, NULL),
};

/* Runs a command with a decoded payload. */
static void run(const struct command *command, struct fs_request *request,
                const struct core_file *file)
{
    const struct service_actor by = {.file = file->id};
    int error = command->flags & TOUCHES ? service_touch(request->fs->service, &by) : 0;
    if (error)
        fs_request_finish(request, error, NULL);
    else if (command->later)
        command->later(request, file);
    else
        finish_now(request, command->now(request, file));
}

void fs_op_ioctl(fuse_req_t req, fuse_ino_t id, unsigned command, void *argument,
                 struct fuse_file_info *info, unsigned flags, const void *in, size_t in_bytes,
                 size_t out_bytes)
{
    struct fs *fs = fs_of(req);
    unsigned number = payload_get_number(command);
    const struct command *known =
        number < sizeof COMMANDS / sizeof COMMANDS[0] ? &COMMANDS[number] : &COMMANDS[0];
    const struct core_file *file =
        flags & FUSE_IOCTL_DIR ? NULL : core_find_file(fs->core, info->fh);
    (void)argument;
    /* stdio asks of every file whether it is a terminal: unknown commands are ENOTTY. */
    if (!file || (file->store == 0 && file->kind != CORE_KIND_REGION) ||
        !(known->flags & ON(file->kind))) {
        fs_reply_error(req, -ENOTTY);
        return;
    }
    /* Each command sets its reply. */
    struct fs_request *request = fs_request_new(req, NULL, known->size);
    if (!request) {
        if (number == _IOC_NR(GMSFS_IOC_APPLY))
            ioctl_drop_gathered(fs, info->fh, NULL);
        return;
    }
    request->node = id;
    request->file = file->id;
    request->store = file->store;
    request->bytes = out_bytes;
    int error = payload_decode(in, in_bytes, request->payload, known->size);
    if (error)
        fs_request_finish(request, error, NULL);
    else if (!(known->flags & WAITS) || fs_request_may_wait(request))
        run(known, request, file);
}
