/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's functions for the service and the file system. */
#include "daemon/worker_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/test_hooks.h"
#include "daemon/at_work.h"
#include "daemon/foreign.h"
#include "daemon/process.h"
#include "daemon/wire.h"
#include "fs/deaths.h"
#include "fs/fs.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- struct service_host ----------------------------------------------------------------- */

static uint64_t host_now_ms(void *context)
{
    (void)context;
    return loop_now_ms();
}

static uint64_t host_wall_ms(void *context)
{
    (void)context;
    return clock_wall_ms();
}

static int read_random(uint8_t *to, size_t size)
{
    while (size > 0) {
        ssize_t got = getrandom(to, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        to += got;
        size -= (size_t)got;
    }
    return 0;
}

/* Asks the kernel for many bytes at a time, because each lock needs some. No byte is given out
 * twice, nor kept after it was given out. */
static int host_get_random(void *context, void *bytes, size_t size)
{
    struct worker_random *random = &((struct worker *)context)->random;

    assert(size <= sizeof random->bytes);
    if (random->left < size) {
        int error = read_random(random->bytes, sizeof random->bytes);
        if (error)
            return error;
        random->left = sizeof random->bytes;
    }
    random->left -= size;
    memcpy(bytes, random->bytes + random->left, size);
    explicit_bzero(random->bytes + random->left, size);
    return 0;
}

static int host_record(void *context, const struct record *record, size_t *mark)
{
    struct worker *worker = context;

    return transaction_record(&worker->transaction, record, mark);
}

static void host_unrecord(void *context, size_t mark)
{
    struct worker *worker = context;

    journal_rewind(worker->journal, mark);
}

static void host_publish(void *context)
{
    struct worker *worker = context;

    transaction_end(&worker->transaction);
}

static int host_submit(void *context, enum service_pool pool, struct job *job)
{
    struct worker *worker = context;

    return transaction_submit(&worker->transaction, pool, job);
}

static uint64_t host_work_for(void *context, uint64_t request)
{
    struct worker *worker = context;

    return at_work_set(worker->setup->ledger, request);
}

static void host_set_timer(void *context, uint64_t at_ms)
{
    struct worker *worker = context;

    loop_set_timeout(worker->loop, &worker->timeout, at_ms);
}

static bool host_has_unread(void *context)
{
    const struct worker *worker = context;

    return hook_has_file("GMSFS_UNREAD") || (worker->fs && fs_has_unread(worker->fs));
}

static void host_set_idle(void *context)
{
    struct worker *worker = context;

    loop_set_idle(worker->loop);
}

static int host_watch_process(void *context, struct core_process process)
{
    struct worker *worker = context;

    return exits_watch(&worker->exits, process);
}

static void host_unwatch_process(void *context, struct core_process process)
{
    struct worker *worker = context;

    exits_unwatch(&worker->exits, process);
}

static int host_admit_descriptor(void *context, int fd)
{
    static atomic_bool told;
    struct worker *worker = context;

    if (descriptors_admit(&worker->descriptors, fd, loop_count_watches(worker->loop)))
        return 0;
    if (!atomic_exchange(&told, true))
        log_warning("no more allocations: the limit of %llu open files is reached; raise it before "
                    "the mount (ulimit -Hn, LimitNOFILE=)",
                    (unsigned long long)worker->descriptors.limit);
    return -ENOSPC;
}

static int host_keep(void *context, const struct service_memory *memories, size_t count)
{
    struct worker *worker = context;

    int error = keep_add(&worker->keep, memories, count);
    if (error == -EPIPE) /* the keeper has gone: no client must see a failure that did not happen */
        _exit(1);
    return error;
}

static void host_drop(void *context, const uint64_t *memories, size_t count)
{
    struct worker *worker = context;

    keep_drop(&worker->keep, memories, count);
}

static int host_back(void *context, uint64_t memory, uint32_t *number)
{
    struct worker *worker = context;

    if (!worker->keeper_backs)
        return -EPERM;
    return number ? keep_back(&worker->keep, memory, number) : keep_end_back(&worker->keep, memory);
}

_Static_assert(sizeof(struct worker_counts) <= JOURNAL_COUNTS_BYTES, "the journal keeps them");

struct service_host worker_service_host(struct worker *worker)
{
    struct worker_counts *counts = journal_get_counts(worker->journal);

    return (struct service_host){
        .context = worker,
        .now_ms = host_now_ms,
        .wall_ms = host_wall_ms,
        .get_random = host_get_random,
        .record = host_record,
        .unrecord = host_unrecord,
        .publish = host_publish,
        .submit = host_submit,
        .work_for = host_work_for,
        .set_timer = host_set_timer,
        .has_unread = host_has_unread,
        .set_idle = host_set_idle,
        .watch_process = host_watch_process,
        .unwatch_process = host_unwatch_process,
        .admit_descriptor = host_admit_descriptor,
        .keep = host_keep,
        .drop = host_drop,
        .back = host_back,
        .room = &worker->room,
        .counts = &counts->service,
    };
}

void worker_end_step(struct worker *worker)
{
    /* An answer that the kernel rejects, and a client that continues in its turn, make records
     * too. */
    do {
        if (worker->service)
            service_end_step(worker->service);
        transaction_end(&worker->transaction);
    } while (worker->service && service_is_unsettled(worker->service));
}

/* ---- struct fs_host ---------------------------------------------------------------------- */

static int host_resolve(void *context, uint32_t tid, size_t max, struct service_caller *caller)
{
    (void)context;
    return process_resolve(tid, max, caller);
}

void worker_tell_keeper(struct worker *worker, const struct wire_message *message, int fd)
{
    int error = wire_send(worker->setup->control_fd, message, fd);

    if (error)
        log_error("cannot reach the keeper: %s", strerror(-error));
}

static void host_end_step(void *context)
{
    worker_end_step(context);
}

static void host_introduce(void *context, uint32_t op, int fd)
{
    struct worker *worker = context;
    struct wire_message message = {.type = WIRE_VISITOR, .id = op};

    fs_die_if_told("GMSFS_DIE_PASSING");
    int error = wire_send(worker->setup->control_fd, &message, fd);
    if (error)
        log_error("cannot pass a client on to the keeper: %s", strerror(-error));
    hook_stop_at("GMSFS_PASSING_STOP", "passed");
}

static void host_request_unmount(void *context)
{
    struct worker *worker = context;
    struct wire_message message = {.type = WIRE_UNMOUNT};

    /* The socket may keep the mount busy, so it closes first. */
    fs_set_listener(worker->fs, -1);
    worker_tell_keeper(worker, &message, -1);
}

static bool host_get_audit(void *context, uint64_t *written, uint64_t *dropped)
{
    struct worker *worker = context;

    if (!worker->audit)
        return false;
    struct audit_numbers numbers = audit_get_numbers(worker->audit);
    *written = numbers.written;
    *dropped = numbers.dropped;
    return true;
}

static void host_set_log_level(void *context, enum log_level level)
{
    struct worker *worker = context;
    struct worker_own *own = journal_get_own(worker->journal);

    atomic_store(&own->log_level, (uint32_t)level + 1);
    log_set_level(level);
}

static ssize_t host_answer(void *context, int fd, const struct iovec *parts, int count,
                           uint64_t file)
{
    struct worker *worker = context;

    return transaction_answer(&worker->transaction, fd, parts, count, file);
}

static int host_note(void *context, const struct iovec *parts, int count)
{
    struct worker *worker = context;

    return transaction_note(&worker->transaction, TRANSACTION_NOTE, parts, count);
}

static bool host_hold(void *context, struct event_held *held)
{
    struct worker *worker = context;

    return transaction_hold(&worker->transaction, held);
}

static void host_unhold(void *context, struct event_held *held)
{
    struct worker *worker = context;

    transaction_unhold(&worker->transaction, held);
}

static bool host_keep_unread(void *context, uint64_t id, int fd)
{
    struct worker *worker = context;
    const struct service_memory connection = {.id = WIRE_UNREAD | id, .fd = fd};

    return keep_add_ahead(&worker->keep, &connection);
}

static bool host_drop_unread(void *context, uint64_t id)
{
    struct worker *worker = context;

    return keep_drop_ahead(&worker->keep, WIRE_UNREAD | id);
}

static void host_session_over(void *context, int error)
{
    struct worker *worker = context;

    if (error && error != -ENODEV)
        log_warning("%s: the connection to the kernel ended: %s", worker->setup->mountpoint,
                    strerror(error < 0 ? -error : error));
    loop_stop(worker->loop);
}

static void host_session_ready(void *context)
{
    struct worker *worker = context;
    struct wire_message message = {.type = WIRE_READY};

    worker_tell_keeper(worker, &message, -1);
}

static void host_session_resumed(void *context)
{
    struct worker *worker = context;
    struct wire_message message = {.type = WIRE_RESUMED,
                                   .value = clock_now_us() - worker->began_us};
    struct fs_recovery *recovery = &worker->setup->ledger->recovery;

    uint64_t took_us = clock_now_us() - recovery->noticed_us;
    timeline_end("recovery", "recovery", recovery->noticed_us, recovery->cause);
    service_end_restore(worker->service, recovery->cause, took_us);
    worker_end_step(worker);
    atomic_store(&worker->setup->ledger->refused, 0);
    recovery->took_us = took_us; /* until this it is the next worker's recovery too */
    worker_tell_keeper(worker, &message, -1);
    if (hook_has_file("GMSFS_DIE_RESUMED"))
        _exit(1);
}

struct fs_host worker_fs_host(struct worker *worker)
{
    return (struct fs_host){
        .context = worker,
        .loop = loop_get_calls(worker->loop),
        .resolve = host_resolve,
        .request_unmount = host_request_unmount,
        .introduce = host_introduce,
        .get_audit = host_get_audit,
        .set_log_level = host_set_log_level,
        .answer = host_answer,
        .note = host_note,
        .hold = host_hold,
        .unhold = host_unhold,
        .keep_unread = host_keep_unread,
        .drop_unread = host_drop_unread,
        .end_step = host_end_step,
        .session_over = host_session_over,
        .session_ready = host_session_ready,
        .session_resumed = host_session_resumed,
        .may_take = foreign_may_take,
        .close_foreign = foreign_close,
    };
}
