/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/rpc.h"

#include "base/container.h"
#include "base/log.h"
#include "rpc/rpc_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- sessions that end by themselves --------------------------------------------------------- */

/* Ends connections whose sessions were revoked or lost with the device: the connection was the
 * lock. */
static void on_sweep(struct event_timeout *timeout)
{
    struct rpc *rpc = CONTAINER_OF(timeout, struct rpc, sweep);

    for (size_t i = rpc->connections.count; i-- > 0;) {
        struct rpc_connection *connection = rpc->connections.items[i];

        if (connection->session && !connection->finish && connection->phase == RPC_SESSION &&
            !core_find_session(rpc->core, connection->session))
            rpc_connection_end(connection);
        if (i > rpc->connections.count)
            i = rpc->connections.count;
    }
}

static bool ends_sessions(enum core_event_type type)
{
    switch (type) {
    case CORE_EVENT_REVOKED:
    case CORE_EVENT_ABORTED:
    case CORE_EVENT_ROLLED_BACK:
    case CORE_EVENT_RO_DISCONNECTED:
    case CORE_EVENT_RW_DATA_DISCONNECTED:
    case CORE_EVENT_LOST:
    case CORE_EVENT_DROPPED:
        return true;
    default:
        return false;
    }
}

static void on_event(void *context)
{
    struct rpc *rpc = context;
    bool ends = false;

    /* One record may have several events, and each call reports the last one only. */
    while (++rpc->seen_event < rpc->core->next_event) {
        const struct core_event *event = core_find_event(rpc->core, rpc->seen_event);

        ends |= !event || ends_sessions(event->type);
    }
    rpc->seen_event--;
    /* later: this call comes from within the end of the session */
    if (ends && rpc->connections.count > 0)
        rpc->host.loop.set_timeout(rpc->host.loop.context, &rpc->sweep, rpc->now_ms);
}

static void on_lists(struct event_timeout *timeout)
{
    rpc_serve_listing(CONTAINER_OF(timeout, struct rpc, lists));
}

static void on_state(void *context, uint64_t store)
{
    (void)context;
    (void)store;
}

/* ---- accepting ------------------------------------------------------------------------------- */

static int watch_listener(struct rpc_listener *listener, uint32_t events)
{
    struct rpc *rpc = listener->rpc;

    return rpc->host.loop.watch(rpc->host.loop.context, &listener->watch, events);
}

/* Without a free descriptor the listener would stay ready: it rests until the next tick. */
static void rest(struct rpc_listener *listener)
{
    listener->rests = watch_listener(listener, 0) == 0;
}

#define RAISE_NOFILE                                                                          \
    "the daemon has no descriptor left: raise its limit of open files (prlimit --nofile, or " \
    "LimitNOFILE= of its unit)"

/* Explains why no connection is accepted now, and the remedy. */
static const char *explain_accept(int error)
{
    switch (error) {
    case EMFILE:
        return RAISE_NOFILE;
    case ENFILE:
        return "the machine has no descriptor left: raise fs.file-max (sysctl)";
    default:
        return strerror(error);
    }
}

static const char *explain_refusal(int error)
{
    switch (error) {
    case -EDQUOT:
        return "its user has its share of the mount's connections or frames, or of the daemon's "
               "memory (gmsfs(5), LIMITS; `events` say which): let it end some";
    case -ENFILE:
        return "the mount has no connection left (gmsfs(5), LIMITS): raise the daemon's limit of "
               "open files if that is small, or end some clients";
    case -ENOMEM:
        return "the mount has no frames left, or the daemon no memory (gmsfs(5), LIMITS; `events` "
               "say which): end some clients";
    case -EMFILE:
        return RAISE_NOFILE;
    default:
        return strerror(-error);
    }
}

/* Accepts a connection after taking its place: if the worker is killed after accept(2), the next
 * worker would else never learn of the connection. */
static int accept_kept(struct rpc_listener *listener, uint64_t id, struct kept **kept)
{
    struct rpc *rpc = listener->rpc;

    *kept = kept_take(rpc->memory, id, listener->domain, listener->protocol);
    int fd = accept4(listener->watch.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && *kept) {
        int error = errno;
        kept_give(rpc->memory, *kept);
        errno = error;
    }
    return fd;
}

/* Accepts one connection: a client that connects and closes in a loop then delays others by one
 * connection a turn. */
static void on_connect(struct event_watch *watch, uint32_t events)
{
    struct rpc_listener *listener = CONTAINER_OF(watch, struct rpc_listener, watch);
    struct rpc *rpc = listener->rpc;
    uint64_t id = kept_next_id(rpc->memory);
    struct kept *kept;
    int fd = accept_kept(listener, id, &kept);
    int error = fd < 0 ? errno : 0;

    (void)events;
    if (error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS)
        rest(listener);
    if (error && error != EAGAIN && error != EINTR && error != ECONNABORTED && rpc_may_warn(rpc))
        log_warning("%s: GMS socket of %s: cannot accept: %s", rpc->options.mountpoint,
                    rpc_domain_name(listener->domain), explain_accept(error));
    if (error)
        return;
    error = rpc_connection_new(listener, id, kept, fd);
    if (error && rpc_may_warn(rpc))
        log_warning("%s: GMS socket of %s: connection refused: %s", rpc->options.mountpoint,
                    rpc_domain_name(listener->domain), explain_refusal(error));
}

int rpc_listen(struct rpc *rpc, enum rpc_domain domain, enum message_protocol protocol,
               int listen_fd)
{
    if ((unsigned)domain >= RPC_DOMAIN_COUNT || (unsigned)protocol > MESSAGE_V1 ||
        rpc->listeners[domain][protocol].watch.fd >= 0) {
        close(listen_fd);
        return -EINVAL;
    }
    struct rpc_listener *listener = &rpc->listeners[domain][protocol];
    listener->watch = (struct event_watch){.fd = listen_fd, .ready = on_connect};
    return watch_listener(listener, EVENT_READ);
}

void rpc_close_listeners(struct rpc *rpc)
{
    for (unsigned i = 0; i < 2 * RPC_DOMAIN_COUNT; i++) {
        struct rpc_listener *listener = &rpc->listeners[i / 2][i % 2];

        if (listener->watch.fd < 0)
            continue;
        rpc->host.loop.unwatch(rpc->host.loop.context, &listener->watch);
        close(listener->watch.fd);
        listener->watch.fd = -1;
        listener->rests = false;
    }
    while (rpc->connections.count > 0)
        rpc_connection_end(rpc->connections.items[rpc->connections.count - 1]);
}

bool rpc_on_tick(struct rpc *rpc, uint64_t now_ms)
{
    bool busy = false;

    rpc->now_ms = now_ms;
    rpc->warnings = 0;
    for (unsigned i = 0; i < 2 * RPC_DOMAIN_COUNT; i++) {
        struct rpc_listener *listener = &rpc->listeners[i / 2][i % 2];

        if (listener->watch.fd >= 0 && listener->rests)
            listener->rests = watch_listener(listener, EVENT_READ) != 0;
        busy |= listener->rests;
    }
    for (size_t i = rpc->connections.count; i-- > 0;) {
        if (i < rpc->connections.count)
            rpc_connection_check(rpc->connections.items[i]);
    }
    rpc_free_unread(rpc, false);
    return busy || rpc->connections.count > 0 || rpc->unread;
}

/* ---- beginning and end ----------------------------------------------------------------------- */

int rpc_make_memory(int *fd)
{
    return kept_make(fd);
}

int rpc_new(struct service *service, const struct rpc_options *options, const struct rpc_host *host,
            struct rpc **rpc)
{
    struct rpc *made = calloc(1, sizeof *made);
    int error = made ? kept_open(options->memory_fd, &made->memory) : -ENOMEM;

    if (error) {
        free(made);
        return error;
    }
    made->service = service;
    made->core = service_get_core(service);
    made->options = *options;
    made->host = *host;
    made->seen_event = made->core->next_event - 1;
    made->sweep.expired = on_sweep;
    made->lists.expired = on_lists;
    made->observer =
        (struct service_observer){.context = made, .on_state = on_state, .on_event = on_event};
    for (unsigned i = 0; i < 2 * RPC_DOMAIN_COUNT; i++)
        made->listeners[i / 2][i % 2] = (struct rpc_listener){
            .watch = {.fd = -1}, .rpc = made, .domain = i / 2, .protocol = i % 2};
    service_observe(service, &made->observer);
    *rpc = made;
    return 0;
}

void rpc_free(struct rpc *rpc)
{
    if (!rpc)
        return;
    rpc_close_listeners(rpc);
    rpc_free_unread(rpc, true);
    service_unobserve(rpc->service, &rpc->observer);
    rpc->host.loop.clear_timeout(rpc->host.loop.context, &rpc->sweep);
    rpc->host.loop.clear_timeout(rpc->host.loop.context, &rpc->lists);
    idvec_free(&rpc->connections);
    rpc_forget_notes(rpc);
    kept_close(rpc->memory);
    free(rpc);
}
