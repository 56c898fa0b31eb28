/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/opener.h"

#include "base/clock.h"
#include "base/idvec.h"
#include "base/scope.h"
#include "triton/cuda_helpers.h"
#include "triton/groups.h"
#include "triton/opener_message.h"
#include "triton/shm_object.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAX_PEERS 16384u /* more than the server accepts */

/* The user at a connection: found once, and unchanged then. */
struct peer_record {
    uint64_t id; /* first for idvec */
    uint32_t uid;
};

struct opener {
    const struct opener_options *options;
    int socket;
    uint32_t own_uid;
    struct idvec peers;
    struct cuda_helpers *helpers;
    struct drains drains;
    struct opener_request request;
    struct opener_reply reply;
    bool is_later;           /* answer the request later, when CUDA memory is open */
    int fds[OPENER_MAX_FDS]; /* to send with the reply */
    size_t fd_count;
};

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

static void begin_reply(struct opener *opener)
{
    memset(&opener->reply, 0, OPENER_REPLY_BYTES(0));
    opener->reply.id = opener->request.id;
}

static int answer(struct opener *opener)
{
    int error =
        opener_send(opener->socket, &opener->reply, OPENER_REPLY_BYTES(opener->reply.info_count),
                    opener->fds, opener->fd_count);

    close_all(opener->fds, opener->fd_count);
    opener->fd_count = 0;
    return error;
}

/* ---- users ----------------------------------------------------------------------------------- */

static void identify(struct opener *opener, int fd)
{
    struct opener_reply *reply = &opener->reply;
    uint64_t id = opener->request.connection;
    struct peer_record *peer = NULL;

    reply->uid = IDENTITY_NOBODY;
    if (fd >= 0 && opener->peers.count < MAX_PEERS && !idvec_find(&opener->peers, id))
        peer = calloc(1, sizeof *peer);
    if (!peer) {
        reply->error = fd < 0 ? -EBADF : -ENOSPC;
        return;
    }
    peer->id = id;
    peer->uid = reply->uid = identity_of_socket(fd);
    reply->error = idvec_insert(&opener->peers, peer);
    if (reply->error)
        free(peer);
}

/* Finds the user by the token, or without one by the connection; a wrong token is always
 * refused. */
static uint32_t find_user(struct opener *opener)
{
    const struct opener_request *request = &opener->request;
    const struct peer_record *peer = idvec_find(&opener->peers, request->connection);
    uint32_t uid = peer ? peer->uid : IDENTITY_NOBODY;

    if (request->token[0] != '\0')
        uid = identity_of_token(opener->options->tokens, request->token);
    if (uid == IDENTITY_NOBODY)
        opener->reply.refusal =
            request->token[0] != '\0' ? OPENER_UNKNOWN_TOKEN : OPENER_UNKNOWN_PEER;
    else if (!opener->options->serves_all && uid != opener->own_uid)
        opener->reply.refusal = OPENER_OTHER_USER;
    opener->reply.uid = uid;
    return uid;
}

/* ---- system memory --------------------------------------------------------------------------- */

/* Lists the regions that the request names: all of its kind, or one. */
static int list_named(struct opener *opener, uint32_t uid, struct gmsfs_region_info **list,
                      size_t *count, enum gmsfs_region_reason *reason)
{
    const struct opener_request *request = &opener->request;

    return registry_list(opener->options->registry, uid, (enum gmsfs_region_kind)request->kind,
                         request->name_count ? request->names[0] : NULL, list, count, reason);
}

/* Finds the request's region in the mount. */
static bool find_region(struct opener *opener, uint32_t uid, enum gmsfs_region_kind kind,
                        uint64_t *id)
{
    SCOPED_FREE struct gmsfs_region_info *list = NULL;
    enum gmsfs_region_reason reason;
    size_t count = 0;
    int error = registry_list(opener->options->registry, uid, kind, opener->request.names[0], &list,
                              &count, &reason);

    if (error || count == 0)
        return false;
    *id = list[0].id;
    return true;
}

/* Opens the object that a key names; fd -1 without error if the mount has to find it. */
static int open_key(const char *key, uint32_t uid, int *fd)
{
    *fd = -1;
    key += strspn(key, "/");
    const char *end = strchr(key, '/');
    if (!end)
        return shm_object_open(uid, key, fd);
    return end[1] == '\0' || strchr(end + 1, '/') ? -EINVAL : 0; /* STORE/ALLOCATION */
}

/* Finds the groups by which the mount decides rights; a number without a name has none. */
static int find_groups(struct opener *opener, uint32_t uid, struct groups *groups)
{
    int error = groups_find(uid, groups);

    if (error == -ENOENT) {
        groups->gid = uid;
        error = 0;
    }
    if (!error && groups->count > GMSFS_REGION_GROUPS_MAX)
        error = -E2BIG;
    if (error)
        opener->reply.refusal = OPENER_NO_GROUPS;
    return error;
}

static int register_system(struct opener *opener, uint32_t uid, struct gmsfs_region_request *wanted,
                           enum gmsfs_region_reason *reason)
{
    struct groups groups = {0};
    int error = open_key(opener->request.key, uid, &wanted->fd);

    if (error) {
        *reason = GMSFS_REGION_NO_OBJECT;
        return error;
    }
    wanted->key = opener->request.key;
    if (wanted->fd < 0 && uid != opener->own_uid) {
        error = find_groups(opener, uid, &groups);
        wanted->gid = groups.gid;
        wanted->groups = groups.list;
        wanted->group_count = (uint32_t)groups.count;
    }
    if (!error)
        error = registry_register(opener->options->registry, wanted, reason);
    groups_free(&groups);
    if (wanted->fd >= 0)
        close(wanted->fd);
    return error;
}

/* Reports a taken name first, before any other error. */
static int explain(struct opener *opener, uint32_t uid, int error, enum gmsfs_region_reason *reason)
{
    uint64_t id;

    if (*reason == GMSFS_REGION_EXISTS || !find_region(opener, uid, GMSFS_REGION_ANY, &id))
        return error;
    opener->reply.refusal = OPENER_FINE;
    *reason = GMSFS_REGION_EXISTS;
    return -EEXIST;
}

/* ---- CUDA memory --------------------------------------------------------------------------- */

/* A registration that waits until its memory is open. */
struct opening {
    struct cuda_ask ask; /* first */
    struct opener *opener;
    uint32_t uid;
    struct opener_request request; /* with one name */
};

/* A new helper starts with the user's groups. They are looked up here, so that a failure is
 * reported as one of groups and not of the helper; the start finds them in the cache. */
static int check_helper_groups(struct opener *opener, uint32_t uid)
{
    struct groups groups = {0};

    if (uid == geteuid() || cuda_helpers_has(opener->helpers, uid))
        return 0;
    int error = groups_find(uid, &groups);
    groups_free(&groups);
    if (error == 0 || error == -ENOENT)
        return 0;
    opener->reply.refusal = OPENER_NO_GROUPS;
    return error;
}

static struct cuda_target target_of(const struct opener_request *request, uint32_t uid)
{
    return (struct cuda_target){
        .uid = uid, .device_id = request->device_id, .handle = request->handle};
}

/* Translates a helper's error, because the mount's errno of the same number means something
 * else. */
static int judge_helper(struct opener *opener, int error, enum gmsfs_region_reason *reason)
{
    if (error == -EINVAL)
        *reason = GMSFS_REGION_BAD_HANDLE;
    else if (error && error != -ENODEV && error != -ENOMEM)
        opener->reply.refusal = OPENER_NO_HELPER;
    return error;
}

static int register_opened(struct opener *opener, uint32_t uid, uint64_t size_bytes,
                           enum gmsfs_region_reason *reason)
{
    const struct opener_request *request = &opener->request;
    const struct cuda_target target = target_of(request, uid);
    const struct gmsfs_region_request wanted = {.kind = GMSFS_REGION_CUDA,
                                                .uid = uid,
                                                .name = request->names[0],
                                                .fd = -1,
                                                .offset = request->offset,
                                                .byte_size = request->byte_size,
                                                .device_id = request->device_id,
                                                .raw_handle = request->handle,
                                                .raw_handle_bytes = sizeof request->handle};
    bool is_inside =
        request->offset <= size_bytes && request->byte_size <= size_bytes - request->offset;
    int error = is_inside ? registry_register(opener->options->registry, &wanted, reason) : -EINVAL;
    uint64_t id;

    if (!is_inside)
        *reason = GMSFS_REGION_BAD_RANGE;
    if (!error && find_region(opener, uid, GMSFS_REGION_CUDA, &id))
        cuda_helpers_keep(opener->helpers, &target, id);
    else
        cuda_helpers_close(opener->helpers, &target);
    return error;
}

static void on_opened(struct cuda_ask *ask, int error, uint64_t size_bytes)
{
    struct opening *opening = (struct opening *)ask;
    struct opener *opener = opening->opener;
    enum gmsfs_region_reason reason = GMSFS_REGION_FINE;
    uint32_t uid = opening->uid;

    memcpy(&opener->request, &opening->request, OPENER_REQUEST_BYTES(1));
    free(opening);
    begin_reply(opener);
    opener->reply.uid = uid;
    error = error ? judge_helper(opener, error, &reason)
                  : register_opened(opener, uid, size_bytes, &reason);
    opener->reply.error = error ? explain(opener, uid, error, &reason) : 0;
    opener->reply.reason = reason;
    answer(opener); /* if the server is gone, the next receive notices */
}

static int begin_cuda(struct opener *opener, uint32_t uid, enum gmsfs_region_reason *reason)
{
    const struct cuda_target target = target_of(&opener->request, uid);
    int error = check_helper_groups(opener, uid);
    struct opening *opening;

    if (error)
        return error;
    opening = malloc(sizeof *opening);
    if (!opening)
        return -ENOMEM;
    opening->ask.done = on_opened;
    opening->opener = opener;
    opening->uid = uid;
    memcpy(&opening->request, &opener->request, OPENER_REQUEST_BYTES(1));
    error = cuda_helpers_open(opener->helpers, &target, &opening->ask);
    opener->is_later = !error;
    if (!error)
        return 0;
    free(opening);
    return explain(opener, uid, judge_helper(opener, error, reason), reason);
}

/* ---- registering --------------------------------------------------------------------------- */

static int register_region(struct opener *opener, uint32_t uid, enum gmsfs_region_reason *reason)
{
    const struct opener_request *request = &opener->request;
    struct gmsfs_region_request wanted = {.kind = (enum gmsfs_region_kind)request->kind,
                                          .uid = uid,
                                          .name = request->names[0],
                                          .fd = -1,
                                          .offset = request->offset,
                                          .byte_size = request->byte_size};

    if (request->kind == GMSFS_REGION_CUDA)
        return begin_cuda(opener, uid, reason);
    int error = register_system(opener, uid, &wanted, reason);
    return error ? explain(opener, uid, error, reason) : 0;
}

/* A list may need several messages; the caller sends the last one. */
static int list_regions(struct opener *opener, uint32_t uid, enum gmsfs_region_reason *reason)
{
    struct opener_reply *reply = &opener->reply;
    SCOPED_FREE struct gmsfs_region_info *list = NULL;
    size_t count = 0;
    int error = list_named(opener, uid, &list, &count, reason);

    for (size_t at = 0; !error && at < count; at += reply->info_count) {
        reply->info_count =
            (uint32_t)(count - at < OPENER_MAX_INFOS ? count - at : OPENER_MAX_INFOS);
        memcpy(reply->infos, list + at, reply->info_count * sizeof *list);
        reply->more = at + reply->info_count < count;
        if (reply->more)
            error = answer(opener);
    }
    return error;
}

/* Refuses a region whose drain time is over, and drops the reference. */
static int check_drain(struct opener *opener, const struct gmsfs_region_info *info, int file,
                       int fd, enum gmsfs_region_reason *reason)
{
    drains_note(&opener->drains, info, 1, clock_now_ms());
    if (!drains_is_over(&opener->drains, info))
        return 0;
    close(file);
    if (fd >= 0)
        close(fd);
    *reason = GMSFS_REGION_UNKNOWN;
    return -ENOENT;
}

/* Drops the reference on failure. */
static int lease(struct opener *opener, uint32_t uid, struct gmsfs_region_info *info, int *fd,
                 int file)
{
    const struct cuda_target target = {
        .uid = uid, .device_id = info->device_id, .handle = info->raw_handle};
    int error = check_helper_groups(opener, uid);

    info->flags |= GMSFS_REGION_DESCRIPTOR | GMSFS_REGION_WRITABLE;
    if (!error) {
        error = cuda_helpers_lease(opener->helpers, &target, info->id, fd);
        if (!error)
            return 0;
        opener->reply.refusal = OPENER_NO_HELPER;
    }
    close(file);
    return error;
}

static int hold_one(struct opener *opener, uint32_t uid, uint32_t at,
                    enum gmsfs_region_reason *reason)
{
    struct gmsfs_region_info *info = &opener->reply.infos[at];
    int file, fd,
        error = registry_hold(opener->options->registry, uid, opener->request.names[at], info,
                              &file, &fd, reason);

    if (!error)
        error = check_drain(opener, info, file, fd, reason);
    if (!error && info->kind == GMSFS_REGION_CUDA)
        error = lease(opener, uid, info, &fd, file);
    if (error)
        return error;
    opener->fds[opener->fd_count++] = file;
    if (fd >= 0)
        opener->fds[opener->fd_count++] = fd;
    opener->reply.info_count++;
    return 0;
}

static int hold_all(struct opener *opener, uint32_t uid, enum gmsfs_region_reason *reason)
{
    int error = 0;

    for (uint32_t i = 0; !error && i < opener->request.name_count; i++) {
        opener->reply.failed = i;
        error = hold_one(opener, uid, i, reason);
    }
    if (!error)
        return 0;
    close_all(opener->fds, opener->fd_count);
    opener->fd_count = 0;
    opener->reply.info_count = 0;
    return error;
}

/* A region that is unregistered but still listed is in use. */
static void note_drains(struct opener *opener, uint32_t uid)
{
    SCOPED_FREE struct gmsfs_region_info *list = NULL;
    enum gmsfs_region_reason reason;
    size_t count = 0;

    list_named(opener, uid, &list, &count, &reason);
    drains_note(&opener->drains, list, count, clock_now_ms());
}

static int unregister(struct opener *opener, uint32_t uid)
{
    const struct opener_request *request = &opener->request;
    int error =
        registry_unregister(opener->options->registry, uid, (enum gmsfs_region_kind)request->kind,
                            request->name_count ? request->names[0] : NULL);

    if (request->kind == GMSFS_REGION_CUDA)
        cuda_helpers_look(opener->helpers, uid);
    if (!error && opener->drains.limit_ms != DRAINS_FOREVER)
        note_drains(opener, uid);
    return error;
}

static int serve_user(struct opener *opener, enum gmsfs_region_reason *reason)
{
    const struct opener_request *request = &opener->request;
    uint32_t uid = find_user(opener);

    if (opener->reply.refusal != OPENER_FINE)
        return -EPERM;
    switch (request->op) {
    case OPENER_REGISTER:
        return register_region(opener, uid, reason);
    case OPENER_UNREGISTER:
        return unregister(opener, uid);
    case OPENER_STATUS:
        return list_regions(opener, uid, reason);
    default:
        return hold_all(opener, uid, reason);
    }
}

static int serve(struct opener *opener, int fd)
{
    enum gmsfs_region_reason reason = GMSFS_REGION_FINE;
    struct opener_reply *reply = &opener->reply;

    begin_reply(opener);
    opener->is_later = false;
    switch (opener->request.op) {
    case OPENER_IDENTIFY:
        identify(opener, fd);
        break;
    case OPENER_FIND_USER:
        reply->error = find_user(opener) == IDENTITY_NOBODY ? -EPERM : 0;
        break;
    case OPENER_FORGET:
        free(idvec_remove(&opener->peers, opener->request.connection));
        break;
    case OPENER_PING:
        reply->error = registry_ping(opener->options->registry);
        break;
    default:
        reply->error = serve_user(opener, &reason);
    }
    reply->reason = reason;
    return opener->is_later ? 0 : answer(opener);
}

/* 0; 1: the other end is gone; or a negative errno */
static int serve_next(struct opener *opener)
{
    int fds[OPENER_MAX_FDS], error;
    size_t fd_count = OPENER_MAX_FDS, bytes = sizeof opener->request;

    error = opener_receive(opener->socket, &opener->request, &bytes, fds, &fd_count);
    if (!error && bytes == 0)
        return 1;
    if (!error)
        error = opener_request_check(&opener->request, bytes);
    if (!error)
        error = serve(opener, fd_count == 1 ? fds[0] : -1);
    close_all(fds, fd_count);
    return error == -EPIPE || error == -ECONNRESET ? 1 : error;
}

/* Tells the server of regions whose drain time is over. */
static int end_drains(struct opener *opener)
{
    struct opener_reply *reply = &opener->reply;
    uint64_t region;
    int error = 0;

    while (!error && drains_take_over(&opener->drains, clock_now_ms(), &region)) {
        memset(reply, 0, OPENER_REPLY_BYTES(0));
        reply->id = OPENER_ENDED;
        reply->region = region;
        error = answer(opener);
    }
    return error;
}

static void tick(struct opener *opener)
{
    cuda_helpers_tick(opener->helpers);
    drains_look(&opener->drains, opener->options->registry);
}

static int get_wait_ms(const struct opener *opener)
{
    int wait_ms = drains_get_wait_ms(&opener->drains, clock_now_ms());

    return wait_ms < 0 || wait_ms > CUDA_TICK_MS ? CUDA_TICK_MS : wait_ms;
}

/* Returns false if only the server can wake us: no CUDA memory is open, and no region drains. */
static bool has_more_to_do(const struct opener *opener)
{
    return cuda_helpers_has_any(opener->helpers) || opener->drains.items.count > 0;
}

static int wait_next(struct opener *opener, uint64_t *tick_ms)
{
    struct pollfd polled[1 + CUDA_MAX_HELPERS] = {{.fd = opener->socket, .events = POLLIN}};
    nfds_t count = cuda_helpers_list(opener->helpers, polled + 1);

    if (poll(polled, 1 + count, get_wait_ms(opener)) < 0 && errno != EINTR)
        return -errno;
    cuda_helpers_serve(opener->helpers, polled + 1, count);
    int error = end_drains(opener);
    if (error)
        return error;
    if (clock_now_ms() - *tick_ms >= CUDA_TICK_MS) {
        tick(opener);
        *tick_ms = clock_now_ms();
    }
    return polled[0].revents ? serve_next(opener) : 0;
}

int opener_serve(const struct opener_options *options, int socket)
{
    SCOPED_FREE struct opener *opener = calloc(1, sizeof *opener);
    uint64_t tick_ms = clock_now_ms();

    if (!opener)
        return -ENOMEM;
    opener->options = options;
    opener->socket = socket;
    opener->own_uid = geteuid();
    opener->drains.limit_ms = options->drain_ms;
    int error = cuda_helpers_new(options->registry, &opener->helpers);
    while (!error)
        error = has_more_to_do(opener) ? wait_next(opener, &tick_ms) : serve_next(opener);
    cuda_helpers_free(opener->helpers);
    drains_free(&opener->drains);
    idvec_free_items(&opener->peers);
    return error > 0 ? 0 : error;
}
