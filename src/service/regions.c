/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regions - registers named memory, and frees the objects of regions that have ended
 *
 * A client's descriptor is kept and given out as it came. It has to be of a file in memory: then no
 * request on it waits for another process, such as a file system's daemon.
 */
#include "service/regions.h"

#include "base/log.h"
#include "service/client_error.h"
#include "service/rights.h"
#include "service/service_internal.h"
#include "service/sessions.h"
#include "service/tickets.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct object { /* the descriptor behind a region's memory number */
    uint64_t id;
    int fd;
};

int service_check_region_owner(uint32_t uid, uint32_t owner)
{
    return uid == 0 || uid == owner ? 0 : -EPERM;
}

int service_check_region_right(uint32_t uid, uint32_t owner)
{
    return service_check_region_owner(uid, owner) ? -EACCES : 0;
}

/* ---- descriptors ------------------------------------------------------------------------- */

struct object_job {
    struct task task; /* first */
    struct object *object;
    bool drops;
    int error;
    /* registering: the request, copied from the wish */
    struct service_request *request;
    enum service_region_reason *reason;
    struct record record;
    char name[REGION_MAX_NAME_BYTES], key[REGION_MAX_KEY_BYTES];
};

static void free_object(struct object *object)
{
    if (object)
        close(object->fd);
    free(object);
}

static void run_object_job(struct job *job)
{
    struct object_job *work = (struct object_job *)job;
    const struct service_host *host = &work->task.service->host;
    struct object *object = work->object;
    /* Not memory of the device, and its owner may shrink it: it counts as a single byte. */
    struct service_memory memory = {.id = object->id, .bytes = 1, .fd = object->fd};
    if (work->drops) {
        host->drop(host->context, &object->id, 1);
        return;
    }
    work->error = host->admit_descriptor(host->context, object->fd);
    if (!work->error)
        work->error = host->keep(host->context, &memory, 1);
}

static void end_drop(struct service *s, struct task *task)
{
    (void)s;
    free_object(((struct object_job *)task)->object);
    free(task);
}

/* Drops an object. The keeper drops its duplicate first, and only once a next worker would not look
 * for it. Without a thread the loop asks the keeper itself. */
static void drop_object(struct service *s, struct object *object)
{
    struct object_job *work = s->ending ? NULL : calloc(1, sizeof *work);
    struct object_job alone = {.task = {.job.run = run_object_job, .end = end_drop, .service = s},
                               .object = object,
                               .drops = true};
    if (!work) {
        if (!s->ending) {
            s->host.publish(s->host.context);
            run_object_job(&alone.task.job);
        }
        free_object(object);
        return;
    }
    *work = alone;
    service_submit_or_run(s, SERVICE_POOL_FREE, &work->task);
}

void service_on_region_over(struct service *s, const struct effect *effect)
{
    struct object *object =
        effect->memory ? idvec_remove(&s->region_objects, effect->memory) : NULL;
    if (object)
        drop_object(s, object);
    if (effect->file && !s->ending)
        service_close(s, effect->file);
}

void service_free_region_objects(struct service *s)
{
    for (size_t i = 0; i < s->region_objects.count; i++)
        free_object(s->region_objects.items[i]);
    idvec_free(&s->region_objects);
}

int service_restore_region(struct service *s, uint64_t memory, int fd)
{
    const struct idvec *regions = &s->core->regions.items;
    size_t i = 0;
    while (i < regions->count && ((const struct region *)regions->items[i])->memory != memory)
        i++;
    if (i == regions->count)
        return -ENOENT;
    struct object *object = malloc(sizeof *object);
    if (!object)
        return -ENOMEM;
    *object = (struct object){.id = memory, .fd = fd};
    int error = idvec_insert(&s->region_objects, object);
    if (error)
        free(object);
    return error;
}

void service_tell_lost_regions(const struct service *s)
{
    const struct idvec *regions = &s->core->regions.items;
    for (size_t i = 0; i < regions->count; i++) {
        const struct region *region = regions->items[i];
        if (region->memory && !idvec_find(&s->region_objects, region->memory))
            log_error(
                "region %" PRIu64 " of user %u (%" PRIu64
                " bytes) has no descriptor: it is lost, and requests for it fail with ESTALE; "
                "unregister it and register it anew",
                region->id, region->uid, region->byte_size);
    }
}

int service_get_region_descriptor(const struct service *s, uint64_t region,
                                  struct service_descriptor *descriptor)
{
    const struct region *found = core_find_region(s->core, region);
    const struct object *object = found ? idvec_find(&s->region_objects, found->memory) : NULL;
    if (!object)
        return -ESTALE;
    *descriptor = (struct service_descriptor){
        .size_bytes = found->byte_size, .aligned_bytes = found->byte_size, .fd = object->fd};
    return 0;
}

/* ---- registering ------------------------------------------------------------------------- */

static int fail(enum service_region_reason *reason, enum service_region_reason why, int error)
{
    *reason = why;
    return error;
}

/* Returns the reason behind the record's errno; a bound's errno is enough by itself. */
static enum service_region_reason reason_of(int error)
{
    switch (error) {
    case -EEXIST:
        return SERVICE_REGION_EXISTS;
    case -ERANGE:
        return SERVICE_REGION_BAD_RANGE;
    case -ENODEV:
        return SERVICE_REGION_DRAINED;
    case -EDQUOT:
    case -ENOSPC:
    case -ENFILE:
        return SERVICE_REGION_BOUND;
    case -ENOENT:
        return SERVICE_REGION_NO_OBJECT;
    case -EAGAIN:
    case -ENODATA:
        return SERVICE_REGION_UNCOMMITTED;
    default:
        return SERVICE_REGION_FINE;
    }
}

/* The key without the slashes before and behind it. */
struct key {
    const char *text;
    size_t bytes;
    const char *slash; /* the first one inside; NULL: none */
};

static int read_key(const struct service_region_wish *wish, enum service_region_reason *reason,
                    struct key *key)
{
    const size_t prefix_bytes = sizeof SERVICE_REGION_RESERVED_PREFIX - 1;
    int error = region_check_key((enum region_kind)wish->kind, wish->key, wish->key_bytes);
    *key = (struct key){.text = wish->key, .bytes = wish->key_bytes};
    if (error)
        return fail(reason, SERVICE_REGION_BAD_KEY, error);
    while (key->bytes > 0 && key->text[0] == '/') {
        key->text++;
        key->bytes--;
    }
    while (key->bytes > 0 && key->text[key->bytes - 1] == '/')
        key->bytes--;
    if (wish->kind == REGION_SYSTEM && key->bytes == 0)
        return fail(reason, SERVICE_REGION_BAD_KEY, -EINVAL);
    if (key->bytes >= prefix_bytes &&
        memcmp(key->text, SERVICE_REGION_RESERVED_PREFIX, prefix_bytes) == 0)
        return fail(reason, SERVICE_REGION_RESERVED_KEY, -EINVAL);
    key->slash = key->bytes > 0 ? memchr(key->text, '/', key->bytes) : NULL;
    return 0;
}

/* Checks everything but the memory. */
static int check_wish(const struct service *s, const struct service_peer *peer,
                      const struct service_region_wish *wish, enum service_region_reason *reason,
                      struct key *key)
{
    int error = service_check_region_owner(peer->uid, wish->owner->uid);
    if (error)
        return fail(reason, SERVICE_REGION_NOT_OWNER, error);
    if (wish->kind != REGION_SYSTEM && wish->kind != REGION_CUDA)
        return -EINVAL;
    if (s->core->draining)
        return fail(reason, SERVICE_REGION_DRAINED, -ENODEV);
    error = region_check_name(wish->name, wish->name_bytes);
    if (error)
        return fail(reason, SERVICE_REGION_BAD_NAME, error);
    error = read_key(wish, reason, key);
    if (error)
        return error;
    if (regions_find_name(&s->core->regions, wish->owner->uid, wish->name, wish->name_bytes))
        return fail(reason, SERVICE_REGION_EXISTS, -EEXIST);
    if (wish->byte_size == 0)
        return fail(reason, SERVICE_REGION_NO_SIZE, -EINVAL);
    if (!region_is_range(wish->offset, wish->byte_size))
        return fail(reason, SERVICE_REGION_BAD_RANGE, -EINVAL);
    return 0;
}

/* Checks that the object is a file in memory: such files have seals. */
static int check_object(const struct service_region_wish *wish, enum service_region_reason *reason,
                        bool *writable)
{
    struct stat stat;
    int flags = fcntl(wish->fd, F_GETFL);
    if (flags < 0 || fcntl(wish->fd, F_GET_SEALS) < 0 || fstat(wish->fd, &stat))
        return fail(reason, SERVICE_REGION_BAD_OBJECT, -errno);
    if ((flags & O_ACCMODE) == O_WRONLY || !S_ISREG(stat.st_mode))
        return fail(reason, SERVICE_REGION_BAD_OBJECT, -EINVAL);
    if (wish->offset + wish->byte_size > (uint64_t)stat.st_size)
        return fail(reason, SERVICE_REGION_BAD_RANGE, -EINVAL);
    *writable = (flags & O_ACCMODE) == O_RDWR;
    return 0;
}

static struct record describe(const struct service_peer *peer,
                              const struct service_region_wish *wish)
{
    return (struct record){.type = RECORD_REGION_REGISTER,
                           .process = peer->process,
                           .uid = wish->owner->uid,
                           .kind = wish->kind,
                           .name = wish->name,
                           .name_bytes = wish->name_bytes,
                           .tag = wish->key,
                           .tag_bytes = wish->key_bytes,
                           .offset = wish->offset,
                           .size_bytes = wish->byte_size};
}

static int apply(struct service *s, struct record *record, enum service_region_reason *reason)
{
    int error = service_apply_record(s, record, NULL);
    if (error)
        *reason = reason_of(error);
    return error == -ERANGE ? -EINVAL : error;
}

static int register_handle(struct service *s, const struct service_peer *peer,
                           const struct service_region_wish *wish,
                           enum service_region_reason *reason)
{
    struct record record = describe(peer, wish);
    if (wish->handle_bytes != REGION_HANDLE_BYTES)
        return fail(reason, SERVICE_REGION_BAD_HANDLE, -EINVAL);
    if (wish->fd >= 0)
        return fail(reason, SERVICE_REGION_BAD_OBJECT, -EINVAL);
    record.value = wish->raw_handle;
    record.value_bytes = wish->handle_bytes;
    record.device_id = (uint64_t)wish->device_id;
    return apply(s, &record, reason);
}

/* ---- a client's object ------------------------------------------------------------------- */

static void end_registering(struct service *s, struct task *task)
{
    struct object_job *work = (struct object_job *)task;
    struct object *object = work->object;
    int error = service_error_for_client(work->error);
    if (error)
        *work->reason = reason_of(error);
    if (!error)
        error = idvec_insert(&s->region_objects, object);
    if (!error) {
        error = s->ending ? -ENOTCONN : apply(s, &work->record, work->reason);
        if (error)
            idvec_remove(&s->region_objects, object->id);
    }
    if (error)
        drop_object(s, object);
    service_answer(work->request, error, NULL);
    free(work);
}

/* Registers an object. The keeper gets the descriptor before the client gets the answer. 0:
 * answered later; else the caller still owns the descriptor. */
static int register_object(struct service *s, const struct service_peer *peer,
                           const struct service_region_wish *wish, bool writable,
                           enum service_region_reason *reason, struct service_request *request)
{
    struct object_job *work = calloc(1, sizeof *work);
    struct object *object = malloc(sizeof *object);
    int error = work && object ? 0 : -ENOMEM;
    if (!error) {
        *object = (struct object){.id = SERVICE_REGION_MEMORY | s->next_memory++, .fd = wish->fd};
        *work = (struct object_job){
            .task = {.job.run = run_object_job, .end = end_registering},
            .object = object,
            .request = request,
            .reason = reason,
            .record = describe(peer, wish),
        };
        memcpy(work->name, wish->name, wish->name_bytes);
        memcpy(work->key, wish->key, wish->key_bytes);
        work->record.name = work->name;
        work->record.tag = work->key;
        work->record.memory = object->id;
        work->record.flags = writable ? CORE_REGION_WRITABLE : 0;
        error = service_submit(s, SERVICE_POOL_MEMORY, &work->task);
    }
    if (error) {
        free(object);
        free(work);
    }
    return error;
}

/* ---- an allocation of a store ------------------------------------------------------------ */

struct instant_answer { /* of a request that does not wait */
    struct service_request request;
    bool came;
    int error;
};

static void note_answer(struct service_request *request, int error,
                        const struct service_answer *answer)
{
    struct instant_answer *instant = (struct instant_answer *)request;
    (void)answer;
    instant->came = true;
    instant->error = error;
}

/* STORE/ALLOCATION: -ENOENT, -EACCES, -ENODATA */
static int find_allocation(const struct service *s, const struct service_caller *owner,
                           const struct key *key, enum service_region_reason *reason,
                           const struct core_store **store, uint64_t *serial)
{
    char text[REGION_MAX_KEY_BYTES + 1];
    size_t store_bytes = (size_t)(key->slash - key->text);
    memcpy(text, key->text, key->bytes);
    text[store_bytes] = '\0';
    text[key->bytes] = '\0';
    *store = core_find_store_name(s->core, text);
    int error = *store ? service_check_right(s, (*store)->id, owner, SERVICE_READ | SERVICE_SEARCH)
                       : -ENOENT;
    if (error)
        return fail(reason, SERVICE_REGION_NO_OBJECT, error);
    if (!(*store)->lock.committed && !core_get_writer(s->core, (*store)->id))
        return fail(reason, SERVICE_REGION_UNCOMMITTED, -ENODATA);
    const struct layout_allocation *allocation =
        layout_find_name(core_get_layout(s->core, *store), text + store_bytes + 1);
    if (!allocation && !core_get_writer(s->core, (*store)->id))
        return fail(reason, SERVICE_REGION_NO_OBJECT, -ENOENT);
    *serial = allocation ? allocation->serial : 0;
    return 0;
}

/* Takes a reader's session for the region alone, which no process can join. */
static int take_lock(struct service *s, const struct service_peer *peer,
                     const struct service_caller *owner, uint64_t store, uint64_t *file)
{
    struct service_caller reader = {.processes = {peer->process},
                                    .process_count = peer->process.pid != 0,
                                    .uid = owner->uid,
                                    .gid = owner->gid,
                                    .comm = "region"};
    const struct service_acquire once = {.wish = LOCK_WISH_RO};
    struct instant_answer instant = {.request = {.done = note_answer}};
    struct outcome outcome;
    int error = service_record_for(s, &outcome, .type = RECORD_FILE_OPEN, .store = store,
                                   .kind = CORE_KIND_CTL, .flags = CORE_OPEN_READ,
                                   .process = peer->process, .uid = owner->uid);
    if (error)
        return error;
    *file = outcome.file;
    error = service_acquire(s, *file, &once, &reader, &instant.request);
    if (!error)
        error = instant.came ? instant.error : -EAGAIN;
    if (error)
        service_close(s, *file);
    return error;
}

static int register_allocation(struct service *s, const struct service_peer *peer,
                               const struct service_region_wish *wish, const struct key *key,
                               enum service_region_reason *reason)
{
    struct record record = describe(peer, wish);
    const struct core_store *store;
    int error = find_allocation(s, wish->owner, key, reason, &store, &record.serial);
    if (error)
        return error;
    error = take_lock(s, peer, wish->owner, store->id, &record.file);
    if (error) {
        *reason = reason_of(error);
        return error;
    }
    error = apply(s, &record, reason);
    if (error)
        service_close(s, record.file);
    return error;
}

/* ---- all kinds ---------------------------------------------------------------------------- */

/* Registers. *later: the request is answered later, and only then is the descriptor taken. */
static int register_now(struct service *s, const struct service_peer *peer,
                        const struct service_region_wish *wish, enum service_region_reason *reason,
                        struct service_request *request, bool *later)
{
    struct key key;
    bool writable = false;
    int error = check_wish(s, peer, wish, reason, &key);
    if (error)
        return error;
    if (wish->kind == REGION_CUDA)
        return register_handle(s, peer, wish, reason);
    if (wish->handle_bytes || wish->device_id || (wish->fd >= 0) == (key.slash != NULL))
        return fail(reason, SERVICE_REGION_BAD_OBJECT, -EINVAL);
    if (key.slash)
        return register_allocation(s, peer, wish, &key, reason);
    error = check_object(wish, reason, &writable);
    if (!error)
        error = register_object(s, peer, wish, writable, reason, request);
    *later = !error;
    return error;
}

int service_region_register(struct service *s, const struct service_peer *peer,
                            const struct service_region_wish *wish,
                            enum service_region_reason *reason, struct service_request *request)
{
    bool later = false;
    *reason = SERVICE_REGION_FINE;
    int error = register_now(s, peer, wish, reason, request, &later);
    if (later)
        return 0;
    if (wish->fd >= 0)
        close(wish->fd);
    service_answer(request, error, NULL);
    return 0;
}

int service_region_unregister(struct service *s, const struct service_peer *peer, uint32_t owner,
                              uint32_t kind, const char *name, size_t name_bytes, uint64_t *count)
{
    struct outcome outcome;
    int error = service_check_region_owner(peer->uid, owner);
    if (!error)
        error = service_record_for(s, &outcome, .type = RECORD_REGION_UNREGISTER,
                                   .process = peer->process, .uid = owner, .kind = kind,
                                   .name = name, .name_bytes = name ? name_bytes : 0,
                                   .flags = name ? 0 : CORE_REGION_ALL);
    *count = error ? 0 : outcome.count;
    return error;
}

/* ---- references -------------------------------------------------------------------------- */

/* Makes a ticket for an object, or for an allocation by the region's session. */
static int make_ticket(struct service *s, uint64_t file, uint32_t uid, uint8_t ticket[16])
{
    const struct core_file *held = core_find_file(s->core, file);
    const struct region *region = core_find_region(s->core, held->serial);
    struct record record = {
        .type = RECORD_TICKET_ADD, .file = file, .serial = region->serial, .uid = uid};
    memset(ticket, 0, sizeof record.bytes16);
    if (region->kind == REGION_CUDA)
        return 0;
    return service_add_ticket(s, &record, ticket);
}

int service_region_hold(struct service *s, uint64_t file, uint32_t uid, uint8_t ticket[16])
{
    const struct core_file *opened = core_find_file(s->core, file);
    bool held = opened && opened->holds;
    int error = service_record(s, .type = RECORD_REGION_REFER, .file = file);
    if (error)
        return error;
    error = make_ticket(s, file, uid, ticket);
    if (error && !held)
        service_region_release(s, file);
    return error;
}

int service_region_release(struct service *s, uint64_t file)
{
    return service_record(s, .type = RECORD_REGION_RELEASE, .file = file);
}
