/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gms.h"

#include "base/container.h"
#include "base/idvec.h"
#include "base/log.h"
#include "base/test_hooks.h"
#include "daemon/at_work.h"
#include "daemon/process.h"
#include "daemon/wire.h"
#include "fs/deaths.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A connection that the keeper holds or is about to hold, with all that dropping it needs. */
struct kept {
    uint64_t id; /* the connection's; first for idvec */
    struct job job;
    struct gms *gms;
    struct rpc_keeping *keeping; /* NULL if it was answered */
    int error;
    struct kept *next; /* next in to_drop, when no helper was free to drop it */
};

struct gms {
    struct gms_setup setup;
    struct rpc *rpc;
    struct idvec kept;    /* descriptors that the keeper holds; only the loop's thread uses it */
    struct kept *to_drop; /* tried again at the tick */
    bool ending;
};

static struct kept *kept_of(struct job *job)
{
    return CONTAINER_OF(job, struct kept, job);
}

/* ---- the keeper's copies ------------------------------------------------------------------- */

static void run_drop(struct job *job)
{
    struct kept *kept = kept_of(job);
    uint64_t id = WIRE_CONNECTION | kept->id;

    keep_drop(kept->gms->setup.keep, &id, 1);
}

static void on_dropped(struct job *job)
{
    free(kept_of(job));
}

static void drop(struct kept *kept)
{
    struct gms *gms = kept->gms;

    kept->job = (struct job){.run = run_drop, .done = on_dropped};
    if (helpers_submit(gms->setup.helpers, SERVICE_POOL_COMPUTE, &kept->job) == 0)
        return;
    kept->next = gms->to_drop;
    gms->to_drop = kept;
}

static void run_keep(struct job *job)
{
    struct kept *kept = kept_of(job);
    hook_kill_once("GMSFS_DIE_ACCEPTED"); /* a worker that has just accepted a connection */
    struct service_memory connection = {.id = WIRE_CONNECTION | kept->id, .fd = kept->keeping->fd};

    kept->error = keep_add(kept->gms->setup.keep, &connection, 1);
    if (kept->error) /* the keeper may hold it all the same: the answer was lost */
        run_drop(job);
}

static void on_kept(struct job *job)
{
    struct kept *kept = kept_of(job);
    struct gms *gms = kept->gms;
    struct rpc_keeping *keeping = kept->keeping;
    int error = kept->error;

    kept->keeping = NULL;
    if (error) {
        idvec_remove(&gms->kept, kept->id);
        free(kept);
    }
    keeping->done(keeping, error);
}

/* Returns NULL if there is no memory. */
static struct kept *enter(struct gms *gms, uint64_t id)
{
    struct kept *kept = gms->ending ? NULL : malloc(sizeof *kept);

    if (!kept)
        return NULL;
    *kept = (struct kept){.id = id, .gms = gms};
    if (idvec_insert(&gms->kept, kept) == 0)
        return kept;
    free(kept);
    return NULL;
}

static void host_keep_ahead(void *context, uint64_t id, int fd)
{
    struct gms *gms = context;
    const struct service_memory connection = {.id = WIRE_CONNECTION | id, .fd = fd};

    if (enter(gms, id))
        keep_add_ahead(gms->setup.keep, &connection);
}

/* After a failure the connection has to be dropped: the keeper may hold it from host_keep_ahead. */
static int host_keep(void *context, struct rpc_keeping *keeping)
{
    struct gms *gms = context;
    struct kept *kept = idvec_find(&gms->kept, keeping->id);

    if (!kept)
        kept = enter(gms, keeping->id);
    if (!kept)
        return -ENOMEM;
    kept->job = (struct job){.run = run_keep, .done = on_kept};
    kept->keeping = keeping;
    int error = helpers_submit(gms->setup.helpers, SERVICE_POOL_COMPUTE, &kept->job);
    if (error)
        kept->keeping = NULL;
    return error;
}

/* Connections that are not held are ignored. */
static void host_drop(void *context, uint64_t id)
{
    struct gms *gms = context;
    struct kept *kept = gms->ending ? NULL : idvec_remove(&gms->kept, id);

    if (kept)
        drop(kept);
}

/* Drops the connections for which no helper was free. */
static bool drop_again(struct gms *gms)
{
    struct kept *next, *kept = gms->to_drop;

    gms->to_drop = NULL;
    for (; kept; kept = next) {
        next = kept->next;
        drop(kept);
    }
    return gms->to_drop != NULL;
}

/* ---- the rest of struct rpc_host ------------------------------------------------------------- */

static int host_submit(void *context, struct job *job)
{
    struct gms *gms = context;

    return gms->ending ? -ENOMEM : helpers_submit(gms->setup.helpers, SERVICE_POOL_COMPUTE, job);
}

static int host_resolve_peer(void *context, int fd, size_t max, struct service_caller *caller)
{
    (void)context;
    return process_resolve_peer(fd, max, caller);
}

static int host_resolve(void *context, uint32_t pid, size_t max, struct service_caller *caller)
{
    (void)context;
    return process_resolve(pid, max, caller);
}

static bool host_has_exited(void *context, int fd)
{
    (void)context;
    return process_peer_has_exited(fd);
}

static uint64_t host_enter(void *context, uint64_t id, uint64_t frame)
{
    const struct gms *gms = context;
    uint64_t former = at_work_set(gms->setup.ledger, fs_at_connection(id, frame));

    fs_die_if_told("GMSFS_DIE_GMS");
    return former;
}

static void host_leave(void *context, uint64_t former)
{
    const struct gms *gms = context;

    at_work_set(gms->setup.ledger, former);
}

static uint64_t host_number(uint64_t id, uint64_t frame)
{
    return fs_at_connection(id, frame);
}

static bool host_is_recording(void *context)
{
    const struct gms *gms = context;

    return journal_has_transaction(gms->setup.transaction->journal);
}

static int host_note(void *context, const struct iovec *parts, int count)
{
    struct gms *gms = context;

    return transaction_note(gms->setup.transaction, TRANSACTION_CONNECTION, parts, count);
}

static bool host_hold(void *context, struct event_held *held)
{
    struct gms *gms = context;

    return transaction_hold(gms->setup.transaction, held);
}

static void host_unhold(void *context, struct event_held *held)
{
    struct gms *gms = context;

    transaction_unhold(gms->setup.transaction, held);
}

static void host_count(void *context, uint32_t kind, uint64_t began_us)
{
    struct gms *gms = context;

    fs_count_gms(gms->setup.counts, kind, began_us);
}

/* ---- for the worker -------------------------------------------------------------------------- */

static int make_rpc(struct gms *gms)
{
    struct rpc_options options = {.keeps_committed = gms->setup.options->gms_keep,
                                  .mountpoint = gms->setup.mountpoint,
                                  .memory_fd = gms->setup.memory_fd};
    struct rpc_host host = {
        .context = gms,
        .loop = loop_get_calls(gms->setup.loop),
        .resolve_peer = host_resolve_peer,
        .resolve = host_resolve,
        .has_exited = host_has_exited,
        .keep_ahead = host_keep_ahead,
        .keep = host_keep,
        .submit = host_submit,
        .enter = host_enter,
        .leave = host_leave,
        .count = host_count,
        .number = host_number,
        .is_recording = host_is_recording,
        .note = host_note,
        .hold = host_hold,
        .unhold = host_unhold,
        .drop = host_drop,
    };
    struct vmm_info device;

    service_get_device(gms->setup.service, &device);
    memcpy(options.gpu_uuid, device.uuid, sizeof device.uuid);
    return rpc_new(gms->setup.service, &options, &host, &gms->rpc);
}

int gms_new(const struct gms_setup *setup, struct gms **gms)
{
    struct gms *made = calloc(1, sizeof *made);

    if (!made)
        return -ENOMEM;
    made->setup = *setup;
    int error = make_rpc(made);
    if (error)
        free(made);
    else
        *gms = made;
    return error;
}

void gms_free(struct gms *gms)
{
    if (!gms)
        return;
    gms->ending = true; /* the keeper ends too, with all that it holds */
    rpc_free(gms->rpc);
    idvec_free_items(&gms->kept);
    for (struct kept *next, *kept = gms->to_drop; kept; kept = next) {
        next = kept->next;
        free(kept);
    }
    free(gms);
}

/* ---- the connections of the last worker ----------------------------------------------------- */

static int restore_note(void *context, const struct journal_entry *entry)
{
    struct gms *gms = context;

    if (entry->type == TRANSACTION_CONNECTION)
        rpc_restore_note(gms->rpc, entry->bytes, entry->size);
    return 0;
}

static int resume_connection(struct gms *gms, uint64_t id, int fd)
{
    uint64_t refused = atomic_load(&gms->setup.ledger->refused);

    return rpc_take_over(gms->rpc, id, fd, fs_is_at_connection(refused, id));
}

static void take_over(struct gms *gms, const struct service_kept *connection)
{
    uint64_t id = connection->id & ~WIRE_CONNECTION;

    if (!enter(gms, id))
        close(connection->fd); /* the keeper holds it until the mount ends */
    else if (resume_connection(gms, id, connection->fd))
        host_drop(gms, id);
}

void gms_resume(struct gms *gms, const struct journal *journal, const struct service_kept *kept,
                size_t count)
{
    struct failure failure;

    if (journal_read(journal, restore_note, gms, &failure))
        log_error("%s: %s", gms->setup.mountpoint, failure.text);
    for (size_t i = 0; i < count; i++)
        take_over(gms, &kept[i]);
    rpc_resume(gms->rpc);
}

bool gms_has_file(const struct gms *gms, uint64_t file)
{
    return gms && rpc_has_file(gms->rpc, file);
}

void gms_note_all(struct gms *gms)
{
    if (gms)
        rpc_note_all(gms->rpc);
}

int gms_listen(struct gms *gms, uint64_t domain, uint64_t protocol, int listen_fd)
{
    if (domain < RPC_DOMAIN_COUNT && protocol <= MESSAGE_V1)
        return rpc_listen(gms->rpc, (enum rpc_domain)domain, (enum message_protocol)protocol,
                          listen_fd);
    close(listen_fd);
    return -EPROTO;
}

void gms_close_listeners(struct gms *gms)
{
    if (gms)
        rpc_close_listeners(gms->rpc);
}

bool gms_on_tick(struct gms *gms, uint64_t now_ms)
{
    bool has_dropped, has_rested;

    if (!gms)
        return false;
    has_dropped = drop_again(gms);
    has_rested = rpc_on_tick(gms->rpc, now_ms);
    return has_dropped || has_rested;
}
