/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/fds_region.h"

#include "base/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SAME(name)                                                         \
    _Static_assert((int)GMSFS_REGION_##name == (int)SERVICE_REGION_##name, \
                   "reasons have the numbers of the service")
SAME(FINE);
SAME(BAD_NAME);
SAME(EXISTS);
SAME(BAD_KEY);
SAME(RESERVED_KEY);
SAME(NO_OBJECT);
SAME(BAD_OBJECT);
SAME(BAD_RANGE);
SAME(NO_SIZE);
SAME(BAD_HANDLE);
SAME(UNCOMMITTED);
SAME(NOT_OWNER);
SAME(BOUND);
SAME(DRAINED);
SAME(UNKNOWN);
_Static_assert((int)GMSFS_REGION_SYSTEM == (int)REGION_SYSTEM &&
                   (int)GMSFS_REGION_CUDA == (int)REGION_CUDA &&
                   GMSFS_REGION_NAME_MAX == REGION_MAX_NAME_BYTES &&
                   GMSFS_REGION_KEY_MAX == REGION_MAX_KEY_BYTES &&
                   GMSFS_REGION_HANDLE_BYTES == REGION_HANDLE_BYTES,
               "regions are as large as in the ABI");

struct answer {
    struct gmsfs_fds_header header;
    struct gmsfs_fds_region_answer region;
    struct gmsfs_region_info list[GMSFS_REGION_LIST_MAX];
};

_Static_assert(sizeof(struct answer) == FDS_REGION_LIST_BYTES, "an answer has no padding");

struct fds_region_op {
    struct service_request request;
    struct fds_answer *answer;
    enum service_region_reason reason;
    void (*answered)(void *context, int error); /* NULL: no connection waits for it */
    void *context;
    bool is_done;
    int sent;
};

void fs_describe_region(const struct fs *fs, const struct region *region,
                        struct gmsfs_region_info *info)
{
    struct vmm_info device;
    service_get_device(fs->service, &device);
    *info = (struct gmsfs_region_info){
        .id = region->id,
        .offset = region->offset,
        .byte_size = region->byte_size,
        .device_id = region->device_id,
        .references = region->references,
        .registered_ms = region->registered_ms,
        .kind = (uint32_t)region->kind,
        .uid = region->uid,
        .memory = region->store ? (uint32_t)device.memory : GMSFS_MEMORY_HOST,
    };
    if (region->draining)
        info->flags |= GMSFS_REGION_DRAINING;
    if (region->writable)
        info->flags |= GMSFS_REGION_WRITABLE;
    if (region->store)
        info->flags |= GMSFS_REGION_ALLOCATION;
    if (region->store || region->memory)
        info->flags |= GMSFS_REGION_DESCRIPTOR;
    memcpy(info->raw_handle, region->raw_handle, sizeof info->raw_handle);
    memcpy(info->name, region->name, region->name_bytes);
    memcpy(info->key, region->key, region->key_bytes);
}

static int send_answer(struct fds_answer *to, struct answer *answer)
{
    size_t size = offsetof(struct answer, list) + answer->header.count * sizeof answer->list[0];
    answer->header.version = GMSFS_ABI_VERSION;
    return fds_answer_send(to, answer, size);
}

int fds_region_refuse(struct fds_answer *to, int error)
{
    struct answer answer = {.header = {.error = error}};

    return send_answer(to, &answer);
}

/* ---- registering ------------------------------------------------------------------------- */

static int has_peers_group(const struct service_caller *caller, uint32_t gid)
{
    return peer_has_group(caller->context, gid);
}

static int has_told_group(const struct service_caller *caller, uint32_t gid)
{
    const struct gmsfs_fds_region_request *request = caller->context;
    for (uint32_t i = 0; i < request->group_count; i++) {
        if (request->groups[i] == gid)
            return 1;
    }
    return 0;
}

static void on_registered(struct service_request *request, int error,
                          const struct service_answer *nothing)
{
    struct fds_region_op *op = (struct fds_region_op *)request;
    struct answer answer = {.header = {.error = error}, .region = {.reason = (uint32_t)op->reason}};
    void (*answered)(void *context, int error) = op->answered;
    (void)nothing;
    op->is_done = true;
    if (!answered) {
        free(op);
        return;
    }
    op->sent = send_answer(op->answer, &answer);
    if (op->context) { /* answered later: the connection resumes */
        void *context = op->context;
        int sent = op->sent;
        free(op);
        answered(context, sent);
    }
}

void fds_region_forget(struct fds_region_op *op)
{
    op->answered = NULL;
}

/* Fills the owner of the region: from root's words if it is another user, else from the
 * kernel's. */
static int find_owner(const struct fds_region_asker *asker, uint32_t uid,
                      const struct gmsfs_fds_region_request *request, struct peer *peer,
                      struct service_caller *owner)
{
    *owner = (struct service_caller){
        .uid = uid, .gid = request->gid, .has_group = has_told_group, .context = request};
    if (uid != asker->peer.uid)
        return 0;
    int error = peer_read(asker->fd, peer);
    owner->gid = peer->gid;
    owner->has_group = has_peers_group;
    owner->context = peer;
    return error;
}

static int register_region(const struct fds_region_asker *asker, uint32_t uid,
                           const struct gmsfs_fds_region_request *request,
                           void (*answered)(void *context, int error), void *context,
                           struct fds_region_op **pending)
{
    struct fds_region_op *op = calloc(1, sizeof *op);
    struct peer peer = {0};
    struct service_caller owner;
    int error = op ? find_owner(asker, uid, request, &peer, &owner) : -ENOMEM;
    if (error) {
        if (asker->object >= 0)
            close(asker->object);
        peer_free(&peer);
        free(op);
        return fds_region_refuse(asker->answer, error);
    }
    *op = (struct fds_region_op){
        .request = {.done = on_registered}, .answer = asker->answer, .answered = answered};
    const struct service_region_wish wish = {
        .kind = request->kind,
        .name = request->name,
        .key = request->key,
        .name_bytes = request->name_bytes,
        .key_bytes = request->key_bytes,
        .offset = request->offset,
        .byte_size = request->byte_size,
        .device_id = request->device_id,
        .raw_handle = request->raw_handle,
        .handle_bytes = request->handle_bytes,
        .fd = asker->object,
        .owner = &owner,
    };
    service_region_register(asker->fs->service, &asker->peer, &wish, &op->reason, &op->request);
    peer_free(&peer);
    if (op->is_done) { /* without `context` it is still there */
        error = op->sent;
        free(op);
        return error;
    }
    op->context = context;
    *pending = op;
    return 0;
}

/* ---- other requests ---------------------------------------------------------------------- */

static bool matches(const struct region *region, uint32_t kind)
{
    return kind == GMSFS_REGION_ANY || kind == (uint32_t)region->kind;
}

static int list_one(const struct fs *fs, uint32_t uid,
                    const struct gmsfs_fds_region_request *request, struct answer *answer)
{
    const struct region *region =
        regions_find_name(&fs->core->regions, uid, request->name, request->name_bytes);
    if (!region || !matches(region, request->kind))
        return -ENOENT;
    fs_describe_region(fs, region, &answer->list[0]);
    answer->header.count = 1;
    return 0;
}

static int list_many(const struct fs *fs, uint32_t uid,
                     const struct gmsfs_fds_region_request *request, struct answer *answer)
{
    const struct regions *regions = &fs->core->regions;
    const struct region *first = regions_next(regions, uid, request->name, request->name_bytes);
    size_t at = 0;
    while (first && regions->sorted[at] != first)
        at++;
    for (; first && at < regions->items.count && regions->sorted[at]->uid == uid; at++) {
        if (!matches(regions->sorted[at], request->kind))
            continue;
        if (answer->header.count < GMSFS_REGION_LIST_MAX)
            fs_describe_region(fs, regions->sorted[at], &answer->list[answer->header.count++]);
        else
            answer->header.remaining++;
    }
    return 0;
}

static int answer_now(const struct fds_region_asker *asker, uint32_t uid,
                      const struct gmsfs_fds_region_request *request, struct answer *answer)
{
    struct fs *fs = asker->fs;
    int error = service_check_region_owner(asker->peer.uid, uid);
    if (error)
        return error;
    switch (request->request.op) {
    case GMSFS_FDS_REGION_UNREGISTER:
        return service_region_unregister(fs->service, &asker->peer, uid, request->kind,
                                         request->name, request->name_bytes, &answer->region.count);
    case GMSFS_FDS_REGION_UNREGISTER_ALL:
        return service_region_unregister(fs->service, &asker->peer, uid, request->kind, NULL, 0,
                                         &answer->region.count);
    default:
        return request->flags & GMSFS_REGION_LIST_ONE ? list_one(fs, uid, request, answer)
                                                      : list_many(fs, uid, request, answer);
    }
}

int fds_region_ask(const struct fds_region_asker *asker,
                   const struct gmsfs_fds_region_request *request,
                   void (*answered)(void *context, int error), void *context,
                   struct fds_region_op **op)
{
    uint32_t uid = request->uid == GMSFS_REGION_SELF ? asker->peer.uid : request->uid;
    struct answer answer = {0};
    if (request->request.op == GMSFS_FDS_REGION_REGISTER)
        return register_region(asker, uid, request, answered, context, op);
    if (asker->object >= 0)
        close(asker->object);
    answer.header.error = answer_now(asker, uid, request, &answer);
    if (answer.header.error == -ENOENT)
        answer.region.reason = GMSFS_REGION_UNKNOWN;
    else if (answer.header.error == -EPERM)
        answer.region.reason = GMSFS_REGION_NOT_OWNER;
    return send_answer(asker->answer, &answer);
}
