/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/fds_drain.h"

#include "base/log.h"
#include "gmsfs_abi.h"
#include "service/admin.h"

#include <errno.h>
#include <string.h>

/* store NULL: the mount's drain. */
static bool is_claimed(void *context, const struct core_store *store)
{
    const struct fs *fs = context;
    const struct fs_connections *all = fs->connections;
    bool found = !store && fs->drainer;
    for (size_t i = 0; store && all && i < all->count && !found; i++)
        found =
            all->items[i]->drain.store == store->id && all->items[i]->drain.id == store->drain.id;
    return found;
}

static int begin_store(struct fs *fs, const struct service_peer *peer,
                       const struct gmsfs_fds_request *request, struct service_drain *own)
{
    const struct core_store *store = core_find_uuid(fs->core, request->ticket);
    bool is_unheard = store && store->drain.is_on && own->store == 0 && !is_claimed(fs, store) &&
                      service_is_drainer(&store->drain.by, peer);

    if (is_unheard) /* the last worker ended before it answered */
        *own = (struct service_drain){.store = store->id, .id = store->drain.id};
    int error = service_drain_store(fs->service, peer, request->ticket, request->batch, own);
    if (error && is_unheard)
        *own = (struct service_drain){0};
    if (!error)
        log_info("%s: process %llu (uid %u) drains the store '%s'", fs->options.mountpoint,
                 (unsigned long long)peer->process.pid, peer->uid, store->name);
    return error;
}

static int ask_store(struct fs *fs, const struct service_peer *peer,
                     const struct gmsfs_fds_request *request, struct service_drain *own,
                     uint64_t *remaining)
{
    *remaining = 0;
    switch (request->op) {
    case GMSFS_FDS_STORE_DRAIN:
        return begin_store(fs, peer, request, own);
    case GMSFS_FDS_STORE_HOLDERS:
        return service_count_holders(fs->service, peer, own, request->batch != 0, remaining);
    default:
        return service_serve_store(fs->service, peer, request->ticket);
    }
}

/* ---- of the mount ------------------------------------------------------------------------ */

int fds_drain_serve(struct connection *connection)
{
    struct service_peer peer = fds_peer_of(connection);
    int error = service_serve(connection->fs->service, &peer);
    if (!error)
        connection->fs->drainer = NULL;
    return error;
}

/* Returns true if the drain is claimed, or if its process is still there and may come again; a
 * process that cannot be seen counts as there. */
static bool may_be_claimed(void *context, const struct core_store *store)
{
    const struct fs *fs = context;
    const struct core_process *by = store ? &store->drain.by.process : &fs->core->drainer.process;
    struct service_caller found;
    if (is_claimed(context, store) || by->pid == 0 ||
        fs->host.resolve(fs->host.context, (uint32_t)by->pid, 1, &found))
        return true;
    return found.process_count > 0 && core_same_process(found.processes[0], *by);
}

bool fds_drain_await(struct fs *fs)
{
    if (!fs->unclaimed_until_ms)
        return false;
    bool is_late = fs->now_ms >= fs->unclaimed_until_ms;
    if (is_late)
        fs->unclaimed_until_ms = 0;
    service_end_unclaimed_drains(fs->service, is_late ? is_claimed : may_be_claimed, fs);
    return !is_late;
}

static int begin_drain(struct connection *connection, const struct service_peer *peer, bool revoke)
{
    struct fs *fs = connection->fs;
    bool is_anothers = fs->unclaimed_until_ms && core_has_drainer(fs->core) &&
                       !service_is_drainer(&fs->core->drainer, peer);
    if (fs->drainer ? fs->drainer != connection : is_anothers)
        return -EBUSY;
    bool was_drained = fs->core->draining && !core_has_drainer(fs->core);
    int error = service_drain(fs->service, peer, revoke);
    if (error)
        return error;
    if (!was_drained) /* a mount that is drained for good stays so when this connection goes */
        fs->drainer = connection;
    log_info("%s: process %d (uid %u) drains the mount", fs->options.mountpoint, connection->pid,
             connection->uid);
    return 0;
}

struct drain_answer {
    struct gmsfs_fds_header header;
    struct gmsfs_fds_drain drain;
};

/* drainer may be NULL if there is an error. */
static int answer_begun(struct connection *connection, int error,
                        const struct core_drainer *drainer)
{
    struct drain_answer answer = {.header = {.version = GMSFS_ABI_VERSION, .error = error}};
    if (!error && drainer)
        memcpy(answer.drain.token, drainer->token, sizeof answer.drain.token);
    return fds_answer_send(&connection->answer, &answer, sizeof answer);
}

/* Returns the process that drains, which the next worker has to recognize. */
static struct service_peer drainer_of(struct connection *connection, int sender)
{
    struct service_peer peer = fds_peer_of(connection);
    struct core_process process = {0};
    if (fds_find_sender(connection, sender, &process) == 0 && process.pid)
        peer.process = process;
    return peer;
}

static int resume_drain(struct connection *connection, const struct service_peer *peer,
                        const uint8_t token[16])
{
    struct fs *fs = connection->fs;
    struct service_drain own = {0};
    bool is_mount;
    int error = service_resume_drain(fs->service, peer, token, &own, &is_mount);
    if (error)
        return error;
    if (is_mount
            ? fs->drainer && fs->drainer != connection
            : connection->drain.store != 0 || is_claimed(fs, core_find_store(fs->core, own.store)))
        return -EBUSY;
    if (is_mount)
        fs->drainer = connection;
    else
        connection->drain = own;
    log_info("%s: process %d (uid %u) goes on with its drain", fs->options.mountpoint,
             connection->pid, connection->uid);
    return 0;
}

/* Serves DRAIN, DRAIN_END, SERVE. */
static int drain_mount(struct connection *connection, const struct service_peer *peer,
                       const struct gmsfs_fds_request *request)
{
    struct fs *fs = connection->fs;
    uint64_t remaining = 0;
    int error;
    if (request->op == GMSFS_FDS_DRAIN) {
        error = begin_drain(connection, peer, request->batch != 0);
        return answer_begun(connection, error, &fs->core->drainer);
    }
    if (request->op == GMSFS_FDS_DRAIN_END) {
        error = service_drain_end(fs->service, peer, &remaining);
        if (!error)
            fs->drainer = NULL;
    } else {
        error = fds_drain_serve(connection);
    }
    return fds_send_answer(connection, error, remaining);
}

/* Serves STORE_DRAIN, STORE_HOLDERS, STORE_SERVE. */
static int drain_store(struct connection *connection, const struct service_peer *peer,
                       const struct gmsfs_fds_request *request)
{
    struct fs *fs = connection->fs;
    uint64_t remaining;
    int error = ask_store(fs, peer, request, &connection->drain, &remaining);
    if (request->op != GMSFS_FDS_STORE_DRAIN)
        return fds_send_answer(connection, error, remaining);
    const struct core_store *store = core_find_store(fs->core, connection->drain.store);
    return answer_begun(connection, error, store ? &store->drain.by : NULL);
}

int fds_drain_answer(struct connection *connection, const struct gmsfs_fds_request *request,
                     int sender)
{
    struct service_peer peer = drainer_of(connection, sender);
    switch (request->op) {
    case GMSFS_FDS_DRAIN:
    case GMSFS_FDS_DRAIN_END:
    case GMSFS_FDS_SERVE:
        return drain_mount(connection, &peer, request);
    case GMSFS_FDS_DRAIN_RESUME:
        return fds_send_answer(connection, resume_drain(connection, &peer, request->ticket), 0);
    default:
        return drain_store(connection, &peer, request);
    }
}
