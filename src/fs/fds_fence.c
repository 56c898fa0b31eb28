/* SPDX-License-Identifier: Apache-2.0 */
/* fds_fence - the fence of a checkpoint, requested on the ticket socket */
#include "fs/fs_internal.h"

#include "base/log.h"
#include "base/peer.h"
#include "service/fence.h"

#include <stdio.h>
#include <string.h>

#define SAME(name)                                                                 \
    _Static_assert((int)GMSFS_FDS_OBSTACLE_##name == (int)SERVICE_OBSTACLE_##name, \
                   "obstacles have the numbers of the service")
SAME(NONE);
SAME(WEIGHTS_IN_USE);
SAME(KV_CACHE_IN_USE);
SAME(WEIGHTS_UNCOMMITTED);
SAME(KV_CACHE_COMMITTED);
SAME(WEIGHTS_EMPTY);
SAME(KV_CACHE_SEALED);

static int has_group(const struct service_caller *caller, uint32_t gid)
{
    return peer_has_group(caller->context, gid);
}

static int find_caller(const struct fs *fs, const struct peer *peer, struct service_caller *caller)
{
    *caller = (struct service_caller){
        .uid = peer->uid, .gid = peer->gid, .has_group = has_group, .context = peer};
    return peer->pid > 0 ? fs->host.resolve(fs->host.context, (uint32_t)peer->pid, 1, caller) : 0;
}

static int ask(const struct fs *fs, const struct service_caller *caller,
               const struct gmsfs_fds_request *request, struct service_fence *fence)
{
    switch (request->op) {
    case GMSFS_FDS_FENCE:
        return service_fence(fs->service, caller, fence);
    case GMSFS_FDS_FENCE_ABORT:
    case GMSFS_FDS_FENCE_COMPLETE:
        return service_unfence(fs->service, caller, request->ticket,
                               request->op == GMSFS_FDS_FENCE_COMPLETE);
    default:
        return service_may_fence(fs->service, caller);
    }
}

static void note(const struct fs *fs, const struct peer *peer, bool was_up, bool is_up)
{
    if (was_up != is_up)
        log_info("%s: process %d (uid %u) %s", fs->options.mountpoint, peer->pid, peer->uid,
                 is_up ? "fenced it for a checkpoint" : "ended its fence");
}

static int answer(const struct fs *fs, const struct peer *peer,
                  const struct gmsfs_fds_request *request, struct gmsfs_fds_fence *told)
{
    struct service_fence before, now, asked = {0};
    struct service_caller caller;
    int error = find_caller(fs, peer, &caller);

    service_get_fence(fs->service, &before);
    if (!error)
        error = ask(fs, &caller, request, &asked);
    service_get_fence(fs->service, &now);
    note(fs, peer, before.is_up, now.is_up);
    told->is_up = now.is_up;
    told->obstacle = asked.obstacle;
    snprintf(told->why, sizeof told->why, "%s", service_obstacle_text(asked.obstacle));
    /* The token that ends the fence is only for clients that may end it. */
    if (now.is_up && service_may_fence(fs->service, &caller) == 0)
        memcpy(told->token, now.token, sizeof told->token);
    return error;
}

void fs_fds_fence(const struct fs *fs, int fd, const struct gmsfs_fds_request *request,
                  struct fs_fence_answer *out)
{
    struct peer peer;
    int error = peer_read(fd, &peer);

    memset(out, 0, sizeof *out);
    if (!error)
        error = answer(fs, &peer, request, &out->fence);
    out->header = (struct gmsfs_fds_header){.version = GMSFS_ABI_VERSION, .error = error};
    peer_free(&peer);
}
