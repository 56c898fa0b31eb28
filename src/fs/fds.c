/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fds - the ticket socket `.fds`: clients exchange tickets for descriptors
 *
 * A connection answers one request after the other. While descriptors are being sent, its further
 * requests are not read; nothing ever waits for a client. A client's mistake costs it its
 * connection.
 */
#include "fs/fs_internal.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/probe.h"
#include "fs/fds_connection.h"
#include "fs/fds_drain.h"
#include "fs/fds_receive.h"
#include "fs/fds_region.h"
#include "fs/fds_request.h"
#include "fs/fds_unread.h"
#include "fs/trace.h"
#include "gmsfs_abi.h"
#include "service/admin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void drop(struct connection *connection)
{
    struct fs *fs = connection->fs;
    struct fs_connections *all = fs->connections;
    for (size_t i = 0; i < all->count; i++) {
        if (all->items[i] == connection) {
            all->items[i] = all->items[--all->count];
            break;
        }
    }
    fs_unwatch(fs, &connection->watch);
    fs->host.unhold(fs->host.context, &connection->held);
    fds_answer_forget(&connection->answer);
    fds_close_when_read(connection);
    if (fs->drainer == connection && fds_drain_serve(connection)) {
        fs->drainer = NULL; /* without memory for the record: the tick ends unclaimed drains */
        fs->unclaimed_until_ms = fs->now_ms;
    }
    service_end_drain(fs->service, &connection->drain);
    if (fs->governor == connection)
        fs->governor = NULL;
    if (connection->registering)
        fds_region_forget(connection->registering);
    free(connection);
}

void fs_fds_drop_all(struct fs *fs)
{
    fs->drainer = NULL; /* the mount goes, or no client can reach it any more */
    while (fs->connections && fs->connections->count)
        drop(fs->connections->items[fs->connections->count - 1]);
    fds_close_unread(fs);
    free(fs->connections);
    fs->connections = NULL;
}

static void warn(struct connection *connection, const char *mistake)
{
    if (fs_may_warn(connection->fs))
        log_warning("%s/.fds: process %d (uid %u) %s; its connection is dropped",
                    connection->fs->options.mountpoint, connection->pid, connection->uid, mistake);
}

/* ---- sending ----------------------------------------------------------------------------- */

struct batch {
    struct fds_items message;
    int own[GMSFS_BATCH_MAX];
    unsigned own_count; /* first of `own`, to be closed here */
};

static void close_own(struct batch *batch)
{
    while (batch->own_count > 0)
        close(batch->own[--batch->own_count]);
}

/* Returns true for a shortage that may be over in a moment: the transfer then continues. */
static bool is_shortage(int error)
{
    return error == -ETOOMANYREFS || error == -ENOBUFS || error == -ENOMEM || error == -EMFILE ||
           error == -ENFILE;
}

/* Sends the next message of the ticket, whose use an earlier step has recorded. Any error of the
 * session is answered, and ends the transfer. */
static int send_batch(struct connection *connection)
{
    struct fs *fs = connection->fs;
    uint64_t left = connection->ticket.count - connection->sent;
    uint32_t count = left < connection->batch ? (uint32_t)left : connection->batch;
    struct batch batch; /* large: not cleared; every field that is read is set */
    int error = 0;
    if (count && !fds_may_send(connection, count))
        return -ETOOMANYREFS;
    if (count)
        error = fds_charge(connection, FDS_ITEMS_BYTES(count));
    if (error) /* the first message reports it; a later one waits until other clients have read */
        return connection->sent ? -ENOMEM : fds_send_answer(connection, error, 0);
    batch.message.header =
        (struct gmsfs_fds_header){.version = GMSFS_ABI_VERSION, .remaining = left - count};
    batch.message.tag_bytes = 0;
    batch.own_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct service_descriptor descriptor;
        error =
            service_get_descriptor(fs->service, &connection->ticket,
                                   connection->ticket.first + connection->sent + i, &descriptor);
        if (error) {
            close_own(&batch);
            return is_shortage(error) ? error : fds_send_answer(connection, error, 0);
        }
        fds_add_item(&batch.message, &descriptor);
        if (descriptor.is_own)
            batch.own[batch.own_count++] = descriptor.fd;
    }
    error = fds_send_items(connection->watch.fd, &batch.message);
    PROBE_ANSWER(connection->answer.asker, PROBE_FDS, error);
    if (log_is_debug())
        fs_trace_told(connection->answer.asker, error, sizeof batch.message.header, count);
    close_own(&batch);
    if (error)
        return error;
    fds_note_sent(connection, count);
    connection->sent += count;
    connection->active_ms = fs->now_ms;
    connection->sending = connection->sent < connection->ticket.count;
    return 0;
}

/* Sends as much as the socket takes. False: the connection is gone. */
static bool advance(struct connection *connection)
{
    struct fs *fs = connection->fs;
    int error = 0;
    connection->starved = connection->awaits_share = false;
    for (unsigned i = 0; i < FS_MESSAGES_PER_TURN && connection->sending && !error; i++)
        error = send_batch(connection);
    if (is_shortage(error))
        connection->starved = true;
    else if (error && error != -EAGAIN && error != -EINTR) {
        drop(connection);
        return false;
    }
    uint32_t events = EVENT_READ;
    if (connection->sending)
        events = connection->starved ? 0 : EVENT_WRITE;
    if (fs_watch(fs, &connection->watch, events)) {
        drop(connection);
        return false;
    }
    return true;
}

static void on_released(struct event_held *held)
{
    advance(CONTAINER_OF(held, struct connection, held));
}

static void on_answer_failed(struct fds_answer *answer)
{
    drop(CONTAINER_OF(answer, struct connection, answer));
}

/* ---- requests ---------------------------------------------------------------------------- */

static void redeem(struct connection *connection, const struct gmsfs_fds_request *request,
                   int sender)
{
    struct fs *fs = connection->fs;
    struct service_peer peer = {.uid = connection->uid};
    int error = fds_find_sender(connection, sender, &peer.process);
    if (!error)
        error = service_redeem(fs->service, request->ticket, &peer, &connection->ticket);
    if (error) {
        if (error == -EACCES && fs_may_warn(fs))
            log_warning("%s/.fds: process %d (uid %u) presented a ticket of another user",
                        fs->options.mountpoint, connection->pid, connection->uid);
        if (fds_send_answer(connection, error, 0))
            drop(connection);
        return;
    }
    connection->sending = true; /* an empty range is one message without descriptors */
    connection->sent = 0;
    connection->batch = request->batch;
    if (!fs->host.hold(fs->host.context, &connection->held))
        advance(connection);
}

static void fence(struct connection *connection, const struct gmsfs_fds_request *request)
{
    struct fs_fence_answer answer;
    fs_fds_fence(connection->fs, connection->watch.fd, request, &answer);
    if (fds_answer_send(&connection->answer, &answer, sizeof answer))
        drop(connection);
}

static void unmount(struct connection *connection)
{
    struct fs *fs = connection->fs;
    struct service_peer peer = fds_peer_of(connection);
    int error = service_may_unmount(fs->service, &peer);
    if (!error) { /* the keeper is told before the answer, and unmounts even if this process ends */
        log_info("%s: process %d (uid %u) asked for the unmount", fs->options.mountpoint,
                 connection->pid, connection->uid);
        fs->host.request_unmount(fs->host.context);
    }
    if (fds_send_answer(connection, error, 0) && error)
        drop(connection);
    if (error)
        return;
    fs->host.end_step(fs->host.context); /* sends the answer */
    fs_fds_drop_all(fs); /* they hold the mount; the client can still read the answer */
}

/* Lets this connection govern the mount. holder: with -EBUSY the pid of the process that governs
 * it, 0 if it cannot be seen. */
static int govern(struct connection *connection, int sender, uint64_t *holder)
{
    struct fs *fs = connection->fs;
    *holder = 0;
    if (!fds_is_trusted(connection))
        return -EPERM;
    if (fs->governor == connection)
        return 0;
    if (fs->governor && fds_is_abandoned(fs->governor->watch.fd))
        drop(fs->governor); /* its process has ended, and the loop has not seen that yet */
    if (fs->governor) {
        *holder = (uint64_t)fs->governor_pid;
        return -EBUSY;
    }
    fs->governor = connection;
    fs->governor_pid = sender;
    log_info("%s: process %d (uid %u) governs the mount", fs->options.mountpoint, sender,
             connection->uid);
    return 0;
}

/* The keeper answers, and checks the client by itself. */
static void introduce(struct connection *connection, uint32_t op)
{
    const struct fs *fs = connection->fs;
    connection->is_passed_on = fds_is_trusted(connection);
    if (connection->is_passed_on)
        fs->host.introduce(fs->host.context, op, connection->watch.fd);
    else
        fds_send_answer(connection, -EPERM, 0);
    drop(connection);
}

/* A registration is answered: the next request can be read. */
static void on_region_answered(void *context, int error)
{
    struct connection *connection = context;
    connection->registering = NULL;
    connection->active_ms = connection->fs->now_ms;
    if (error || fs_watch(connection->fs, &connection->watch, EVENT_READ))
        drop(connection);
}

/* Asks for a region; takes the descriptor over. */
static void ask_region(struct connection *connection, struct fds_received *received)
{
    struct fds_region_asker asker = {.fs = connection->fs,
                                     .fd = connection->watch.fd,
                                     .answer = &connection->answer,
                                     .peer = {.uid = connection->uid},
                                     .object = received->object};
    received->object = -1;
    /* A process that cannot be seen now may ask all the same: only `events` and `sessions` name
     * it. */
    fds_find_sender(connection, received->sender, &asker.peer.process);
    int error = 0;
    if (received->request.op == GMSFS_FDS_REGION_LIST)
        error = fds_charge(connection, FDS_REGION_LIST_BYTES);
    error = error ? fds_region_refuse(&connection->answer, error)
                  : fds_region_ask(&asker, &received->region, on_region_answered, connection,
                                   &connection->registering);
    if (!error && connection->registering)
        error = fs_watch(connection->fs, &connection->watch, 0);
    if (error)
        drop(connection);
}

/* Answers an error in the op's own shape, which requests about regions have. */
static void answer_refused(struct connection *connection, const struct gmsfs_fds_request *request,
                           int error)
{
    if (request->version == GMSFS_ABI_VERSION && fds_request_is_region(request))
        fds_region_refuse(&connection->answer, error);
    else
        fds_send_answer(connection, error, 0);
}

static void refuse(struct connection *connection, struct fds_received *received)
{
    if (received->object >= 0)
        close(received->object);
    answer_refused(connection, &received->request, -EIO);
    drop(connection);
}

static void serve(struct connection *connection, struct fds_received *received)
{
    const struct gmsfs_fds_request *request = &received->request;
    struct fs *fs = connection->fs;
    uint64_t holder, began_us = clock_now_us();
    int error;
    fds_work_for(connection, request->op);
    PROBE_REQUEST(connection->answer.asker, PROBE_FDS, request->op, connection->uid);
    if (log_is_debug())
        fs_trace_asked(connection->answer.asker, request->op, request->batch, connection->uid);
    fs_die_if_told("GMSFS_DIE_SERVING_FDS");
    switch (request->op) {
    case GMSFS_FDS_REDEEM:
        redeem(connection, request, received->sender);
        break;
    case GMSFS_FDS_UNMOUNT:
        unmount(connection);
        break;
    case GMSFS_FDS_UPGRADE:
    case GMSFS_FDS_TAKEOVER:
        introduce(connection, request->op);
        break;
    case GMSFS_FDS_CLEAR_SUSPECT:
    case GMSFS_FDS_LOG:
        if (fds_admin_answer(connection, request))
            drop(connection);
        break;
    case GMSFS_FDS_GOVERN:
        error = govern(connection, received->sender, &holder);
        if (fds_send_answer(connection, error, holder))
            drop(connection);
        break;
    case GMSFS_FDS_DRAIN:
    case GMSFS_FDS_DRAIN_END:
    case GMSFS_FDS_DRAIN_RESUME:
    case GMSFS_FDS_SERVE:
    case GMSFS_FDS_STORE_DRAIN:
    case GMSFS_FDS_STORE_HOLDERS:
    case GMSFS_FDS_STORE_SERVE:
        if (fds_drain_answer(connection, request, received->sender))
            drop(connection);
        break;
    case GMSFS_FDS_REGION_REGISTER:
    case GMSFS_FDS_REGION_UNREGISTER:
    case GMSFS_FDS_REGION_UNREGISTER_ALL:
    case GMSFS_FDS_REGION_LIST:
        ask_region(connection, received);
        break;
    default:
        fence(connection, request);
    }
    fs_count_request(fs, FS_COUNTED_FDS, began_us);
}

/* Refuses without receiving descriptors, because workers died as they received from this process;
 * takes the bytes off, because a close with unread bytes would reset the connection first. */
static void refuse_unread(struct connection *connection)
{
    char byte;
    if (recv(connection->watch.fd, &byte, sizeof byte, MSG_DONTWAIT) >= 0)
        fds_send_answer(connection, -EIO, 0);
    drop(connection);
}

/* Returns true if nothing may be read now: the client has not read the last answer, or the
 * connection is gone. */
static bool await_reader(struct connection *connection)
{
    bool awaits = fds_has_unread(connection->watch.fd);
    if (awaits == connection->awaits_reader)
        return awaits;
    connection->awaits_reader = awaits;
    if (fs_watch(connection->fs, &connection->watch,
                 awaits ? EVENT_WRITE | EVENT_TAKEN : EVENT_READ) == 0)
        return awaits;
    drop(connection);
    return true;
}

static void on_ready(struct event_watch *watch, uint32_t events)
{
    struct connection *connection = (struct connection *)watch;
    struct fds_received received;
    fds_work_for(connection, connection->asked);
    if (connection->registering) { /* reads are paused, so the event means that the peer has gone */
        drop(connection);
        return;
    }
    if (connection->sending) {
        /* Reads are paused, so READ alone means that the peer hung up: sending finds out. */
        (void)events;
        advance(connection);
        return;
    }
    if (await_reader(connection))
        return;
    if (fds_is_refused(connection, 0)) {
        refuse_unread(connection);
        return;
    }
    fds_work_for(connection, 0);
    fs_die_if_told("GMSFS_DIE_RECEIVING_FDS");
    int error = fds_receive(connection->fs, watch->fd, connection->uid, &received);
    if (error == -EAGAIN)
        return;
    if (error == -EINVAL) {
        answer_refused(connection, &received.request, error);
        warn(connection, "sent an invalid request");
    }
    connection->active_ms = connection->fs->now_ms;
    if (error || fds_is_abandoned(watch->fd)) {
        if (received.object >= 0)
            close(received.object);
        drop(connection);
        return;
    }
    connection->asked = received.request.op;
    if (fds_is_refused(connection, received.request.op))
        refuse(connection, &received);
    else
        serve(connection, &received);
}

/* ---- connections ------------------------------------------------------------------------- */

/* Returns true if the connection may be closed: it awaits nothing, and nothing ends with it. */
static bool is_idle(const struct connection *connection)
{
    const struct fs *fs = connection->fs;
    return !connection->sending && !connection->registering && !connection->drain.store &&
           connection != fs->drainer && connection != fs->governor;
}

/* Drops the idle connection that its user has not used for longest. False: the user has none. */
static bool make_place(struct fs *fs, uint32_t uid)
{
    struct fs_connections *all = fs->connections;
    struct connection *oldest = NULL;
    for (size_t i = 0; all && i < all->count; i++) {
        struct connection *at = all->items[i];
        if (at->uid == uid && is_idle(at) && (!oldest || at->active_ms < oldest->active_ms) &&
            !fds_has_unread(at->watch.fd)) /* it keeps its place until they are read */
            oldest = at;
    }
    if (oldest)
        drop(oldest);
    return oldest != NULL;
}

static int take_place(struct fs *fs, uint32_t uid)
{
    int error = service_take(fs->service, SERVICE_BOUND_CONNECTIONS, 0, uid, 1);
    if (error == -EDQUOT || error == -ENFILE) {
        fds_count_unread(fs); /* closes the connections whose clients have read all */
        error = service_take(fs->service, SERVICE_BOUND_CONNECTIONS, 0, uid, 1);
    }
    if ((error == -EDQUOT || error == -ENFILE) && make_place(fs, uid))
        error = service_take(fs->service, SERVICE_BOUND_CONNECTIONS, 0, uid, 1);
    return error;
}

static int add_connection(struct fs *fs, int fd)
{
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    int on = 1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) ||
        setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on))
        return -errno;
    if (!fs->connections)
        fs->connections = calloc(1, sizeof *fs->connections);
    if (!fs->connections)
        return -ENOMEM;
    int error = take_place(fs, peer.uid);
    if (error)
        return error;
    struct connection *connection = calloc(1, sizeof *connection);
    error = connection ? 0 : -ENOMEM;
    if (connection) {
        *connection = (struct connection){
            .fs = fs,
            .uid = peer.uid,
            .pid = peer.pid,
            .active_ms = fs->now_ms,
            .watch = {.fd = fd, .ready = on_ready, .whose = event_of_user(peer.uid)},
            .held = {.released = on_released},
            .answer = {.fs = fs, .fd = fd, .failed = on_answer_failed}};
        error = fs_watch(fs, &connection->watch, EVENT_READ);
    }
    if (error) {
        service_give(fs->service, SERVICE_BOUND_CONNECTIONS, peer.uid, 1);
        free(connection);
        return error;
    }
    fs->connections->items[fs->connections->count++] = connection;
    return 0;
}

/* Without a free descriptor the listener would stay ready: it rests until the next tick. */
static void rest(struct fs *fs)
{
    fs->listener_rests = fs_watch(fs, &fs->listener, 0) == 0;
}

static void on_connect(struct event_watch *watch, uint32_t events)
{
    struct fs *fs = CONTAINER_OF(watch, struct fs, listener);
    (void)events;
    for (unsigned i = 0; i < FS_ACCEPTS_PER_TURN; i++) {
        int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            int error = errno;
            if (error != EAGAIN && error != EINTR && error != ECONNABORTED && fs_may_warn(fs))
                log_warning("%s/.fds: cannot accept: %s", fs->options.mountpoint, strerror(error));
            if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS)
                rest(fs);
            return;
        }
        int error = add_connection(fs, fd);
        if (error) {
            close(fd);
            if (fs_may_warn(fs))
                log_warning("%s/.fds: connection refused: %s", fs->options.mountpoint,
                            strerror(-error));
        }
    }
}

/* If the listener cannot be watched now, the tick tries again. */
static void listen_or_rest(struct fs *fs)
{
    int error = fs_watch(fs, &fs->listener, EVENT_READ);
    if (error && fs_may_warn(fs))
        log_warning("%s/.fds: cannot be watched: %s", fs->options.mountpoint, strerror(-error));
    fs->listener_rests = error != 0;
}

void fs_set_listener(struct fs *fs, int listen_fd)
{
    if (fs->listener.fd >= 0) {
        fs_unwatch(fs, &fs->listener);
        close(fs->listener.fd);
    }
    fs->listener = (struct event_watch){.fd = listen_fd, .ready = on_connect};
    fs->listener_rests = false;
    /* Removes its node too: otherwise it could not be bound again after a refused unmount. */
    fs->top.has_socket = listen_fd >= 0;
    if (listen_fd >= 0)
        listen_or_rest(fs);
}

static const char *why_stalled(const struct connection *connection)
{
    if (connection->awaits_share)
        return "waited too long for its user's share of descriptors: other connections have not "
               "read "
               "theirs";
    return connection->starved ? "waited too long for descriptors or memory, which are short"
                               : "does not read its descriptors";
}

/* A transfer that waits for its client makes no progress here; a starved one is tried again. */
bool fs_fds_tick(struct fs *fs)
{
    if (fs->listener_rests)
        listen_or_rest(fs);
    bool busy = fds_drain_await(fs);
    busy = fds_count_unread(fs) || busy || fs->listener_rests;
    fs->unread_is_counted = true;
    bool share_is_awaited = false;
    for (size_t i = 0; fs->connections && i < fs->connections->count;) {
        struct connection *connection = fs->connections->items[i];
        if (connection->sending && fs->now_ms - connection->active_ms > fds_stall_ms()) {
            warn(connection, why_stalled(connection));
            drop(connection);
        } else if (connection->sending && connection->starved && !advance(connection)) {
            continue;
        } else {
            busy |= connection->sending;
            share_is_awaited |= connection->awaits_share;
            i++;
        }
    }
    fs->share_is_awaited = share_is_awaited;
    fs->unread_is_counted = false;
    return busy;
}
