/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/worker.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/file_io.h"
#include "base/log.h"
#include "base/test_hooks.h"
#include "base/thread.h"
#include "base/timeline.h"
#include "daemon/at_work.h"
#include "daemon/lifeline.h"
#include "daemon/privileges.h"
#include "daemon/replay.h"
#include "daemon/signals.h"
#include "daemon/swap.h"
#include "daemon/timeouts.h"
#include "daemon/wire.h"
#include "daemon/worker_internal.h"
#include "fs/deaths.h"
#include "fs/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#ifndef GMSFS_VERSION
#define GMSFS_VERSION "unknown"
#endif

#define WORKER_ENDING_MS         5000u /* for running jobs */
#define WORKER_MIN_ALLOC_THREADS 4u
/* Size that the kernel's table of our descriptors gets at the start. Once there are threads each
 * doubling of it waits for all processors: 50 ms in all for the first 3,435 pieces. */
#define WORKER_TABLE_DESCRIPTORS 8192u

/* ---- the loop's calls -------------------------------------------------------------------- */

static void on_timeout(struct event_timeout *timeout)
{
    struct worker *worker = CONTAINER_OF(timeout, struct worker, timeout);

    service_on_timer(worker->service);
}

static void on_idle(void *context)
{
    struct worker *worker = context;

    service_on_idle(worker->service);
}

static void on_job(void *context, uint64_t request)
{
    struct worker *worker = context;

    at_work_set(worker->setup->ledger, request);
    if (request)
        fs_die_if_told("GMSFS_DIE_DONE");
}

static void on_step(void *context)
{
    struct worker *worker = context;

    worker_end_step(worker);
    at_work_set(worker->setup->ledger, 0);
    audit_release(worker->audit);
    if (!worker->fs || !snapshot_step(&worker->snapshot, service_get_core(worker->service),
                                      service_has_slices(worker->service)))
        return;
    fs_note_all(worker->fs);
    gms_note_all(worker->gms);
    worker_end_step(worker);
    journal_count_from_here(worker->journal);
}

static void on_unwanted(void *context, uint64_t file)
{
    struct worker *worker = context;

    fs_on_unwanted(worker->fs, file);
}

static bool on_tick(void *context, uint64_t now_ms)
{
    struct worker *worker = context;
    bool waits = gms_on_tick(worker->gms, now_ms);

    waits |= worker->fs && fs_on_tick(worker->fs, now_ms);
    return snapshot_on_tick(&worker->snapshot, service_get_core(worker->service), now_ms) || waits;
}

/* Posts news of the device's health from any thread to the loop's. */
static void on_news(void *context)
{
    struct worker *worker = context;

    loop_post(worker->loop, &worker->health);
}

static void on_health(struct job *job)
{
    struct worker *worker = CONTAINER_OF(job, struct worker, health);

    service_on_health(worker->service);
}

/* Posts from any thread to the loop's that a measurement has ended. Several that have ended are
 * posted once. */
static void on_measurement(void *context)
{
    struct worker *worker = context;

    if (!atomic_exchange(&worker->measurement_posted, true))
        loop_post(worker->loop, &worker->measurement);
}

static void on_measured(struct job *job)
{
    struct worker *worker = CONTAINER_OF(job, struct worker, measurement);

    atomic_store(&worker->measurement_posted, false);
    service_on_measurement(worker->service);
}

static void on_exit_of(void *context, struct core_process process)
{
    struct worker *worker = context;

    service_on_exit(worker->service, process);
}

/* ---- messages of the keeper ----------------------------------------------------------------- */

/* Returns true if there is a tier to move to, and no option forbids it. */
static bool evicts(const struct daemon_options *options)
{
    return !options->evicts_none && (options->vmm.host_bytes > 0 || options->vmm.spill_bytes > 0);
}

_Static_assert(sizeof(struct worker_own) <= JOURNAL_OWN_BYTES, "the journal keeps it");

static struct worker_own *get_own(const struct worker *worker)
{
    return journal_get_own(worker->journal);
}

static struct worker_counts *get_counts(const struct worker *worker)
{
    return journal_get_counts(worker->journal);
}

/* Returns why mapped files do not share the memory of stores; NULL: they do if the kernel can. */
static const char *get_unshared_reason(const struct worker *worker)
{
    if (!vmm_can_finish(worker->vmm))
        return "the memory of this device cannot be mapped as a file";
    if (worker->setup->options->vmm.hugepage_bytes)
        return "huge pages cannot be shared: mount without hugepages=";
    if (!vmm_tells_holders(worker->vmm))
        return "the kernel does not tell which processes map memory: set sysctl "
               "fs.leases-enable=1, and mount anew";
    if (!worker->keeper_backs)
        return "the daemon lacks CAP_SYS_ADMIN: root has to mount";
    return NULL;
}

_Static_assert(RPC_KINDS <= FS_GMS_KINDS, "every kind of GMS requests has a count");

static int serve_fuse(struct worker *worker, int fuse_fd)
{
    struct fs_options options = {
        .ledger = worker->setup->ledger,
        .counts = &get_counts(worker)->fs,
        .get_gms_kind = rpc_kind_name,
        .fuse_fd = fuse_fd,
        .mountpoint = worker->setup->mountpoint,
        .allow_other = worker->setup->allow_other,
        .debug = worker->setup->options->debug,
        .owner_uid = geteuid(),
        .wait_max_ms = timeouts_read_parking_ms(),
        .version = GMSFS_VERSION,
        .keeper_pid = worker->setup->keeper,
        .resumes = worker->resumes,
        .evicts = evicts(worker->setup->options),
        .min_stay_ms = worker->setup->options->min_stay_ms,
        .unshared_reason = get_unshared_reason(worker),
    };
    struct fs_host host = worker_fs_host(worker);
    int error = fs_new(worker->service, &options, &host, &worker->fs);

    return !error && worker->resumes ? worker_resume_fuse(worker) : error;
}

static void end_in_order(struct worker *worker)
{
    struct wire_message message = {.type = WIRE_ENDED,
                                   .id = service_count_open_files(worker->service)};

    if (worker->fs)
        fs_set_listener(worker->fs, -1);
    worker_tell_keeper(worker, &message, -1);
    loop_stop(worker->loop);
}

/* Ends between two steps, when the records are published and the answers sent. Nothing is waited
 * for or cleaned up: the rest is as after any other end, and the next worker starts it again. */
static void yield(struct worker *worker)
{
    worker_end_step(worker);
    snapshot_stop(&worker->snapshot);
    _exit(WORKER_YIELDED);
}

static void on_detached(struct worker *worker)
{
    gms_close_listeners(worker->gms);
    if (worker->fs) {
        fs_set_listener(worker->fs, -1); /* it would keep the mount busy for good */
        fs_on_detached(worker->fs);
    }
}

/* Takes the descriptor. */
static int serve_message(struct worker *worker, const struct wire_message *message, int fd)
{
    int error = 0;

    if (message->type == WIRE_FUSE && fd >= 0 && !worker->fs) {
        worker->keeper_backs = message->value == 1;
        error = serve_fuse(worker, fd);
    } else if (message->type == WIRE_AUDIT && fd >= 0 && !worker->audit) {
        error = audit_new(worker->service, fd, &get_own(worker)->audit, &get_counts(worker)->audit,
                          &worker->audit);
    } else if (message->type == WIRE_AUDIT && fd >= 0) {
        audit_reopen(worker->audit, fd);
    } else if (message->type == WIRE_TRACE && fd >= 0) {
        error = worker_take_trace(worker, fd);
    } else if (message->type == WIRE_LISTENER && fd >= 0 && worker->fs) {
        fs_set_listener(worker->fs, fd);
    } else if (message->type == WIRE_GMS && fd >= 0 && worker->gms) {
        error = gms_listen(worker->gms, message->id, message->value, fd);
    } else {
        file_close_fd(&fd);
        if (message->type == WIRE_DETACHED)
            on_detached(worker);
        if (message->type == WIRE_END)
            end_in_order(worker);
        if (message->type == WIRE_YIELD)
            yield(worker);
    }
    return error;
}

static void on_control(struct event_watch *watch, uint32_t events)
{
    struct worker *worker = CONTAINER_OF(watch, struct worker, control);
    struct wire_message message;
    int fd;
    int error = wire_receive(watch->fd, &message, &fd);

    (void)events;
    if (!error)
        error = serve_message(worker, &message, fd);
    if (!error || error == -EAGAIN)
        return;
    if (error == -EPIPE) /* the keeper has gone, and SIGKILL follows: nothing is cleaned up */
        _exit(1);
    log_error("%s: the worker cannot serve: %s", worker->setup->mountpoint, strerror(-error));
    worker->status = 1;
    loop_stop(worker->loop);
}

/* ---- beginning and end ------------------------------------------------------------------- */

/* Locks the journal as long as this process lives (keeper_fence). Locks a byte of its own, because
 * a dead worker that cannot be reaped may still have its lock (keeper_dead.c). */
static void hold_journal(const struct worker_setup *setup)
{
    const struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = getpid(), .l_len = 1};

    if (fcntl(setup->journal.head, F_SETLK, &lock) != 0)
        log_warning("%s: cannot lock the journal: %s", setup->mountpoint, strerror(errno));
}

static void begin_process(const struct worker_setup *setup)
{
    const struct vmm_options *memory = &setup->options->vmm;

    if (hook_has_file("GMSFS_LAST_WORKER"))
        _exit(1);
    hook_wait("GMSFS_HANG_WORKER");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "gmsfs-worker"); /* tells keeper and worker apart in ps -o comm */
    log_name_requests(at_work_name);
    madvise(setup->ledger, fs_ledger_bytes(setup->ledger), MADV_DONTFORK);
    hold_journal(setup);
    if (getppid() != setup->keeper)
        _exit(1);
    privileges_raise();
    vmm_prepare(memory);
    privileges_become_worker(*memory->spill);
    /* A service manager or a terminal signals both processes: the keeper decides. */
    signal(SIGPIPE, SIG_IGN);
    signals_block_others();
}

/* Call it before there is a thread. It fails if the limit is lower; then the table grows as
 * needed. */
static void grow_descriptor_table(const struct worker_setup *setup)
{
    SCOPED_CLOSE int fd =
        fcntl(setup->control_fd, F_DUPFD_CLOEXEC, (int)WORKER_TABLE_DESCRIPTORS - 1);
}

static int open_memory(struct worker *worker)
{
    const struct daemon_options *options = worker->setup->options;
    char text[512] = "";
    int error = worker_open_device(worker, text, sizeof text);
    struct vmm_info info;

    if (error) {
        log_error("%s", *text ? text : strerror(-error));
        return error;
    }
    swap_warn(&options->vmm);
    if (vmm_can_finish(worker->vmm) && !vmm_tells_holders(worker->vmm))
        log_warning("the kernel does not tell which processes map memory (fs.leases-enable, "
                    "fcntl(2) F_SETLEASE): files of immutable layouts are mapped from its cache");
    vmm_get_info(worker->vmm, &info);
    if (info.free_threads)
        helpers_bound(worker->helpers, SERVICE_POOL_FREE, info.free_threads);
    return 0;
}

/* Returns the number that the memory asks for; else one for each usable processor, and a few more
 * on a small machine, because these threads wait too. */
static unsigned choose_alloc_threads(const struct vmm *vmm)
{
    unsigned count = thread_count_processors();
    struct vmm_info info;

    vmm_get_info(vmm, &info);
    if (info.create_threads)
        return info.create_threads;
    return count < WORKER_MIN_ALLOC_THREADS ? WORKER_MIN_ALLOC_THREADS : count;
}

static struct service_options get_service_options(const struct worker *worker)
{
    const struct daemon_options *options = worker->setup->options;

    return (struct service_options){.patience_ms = options->patience_ms,
                                    .alloc_timeout_ms = options->alloc_timeout_ms,
                                    .spool_max_bytes = options->spool_max_bytes,
                                    .alloc_threads = choose_alloc_threads(worker->vmm),
                                    .uid = options->uid == OPTIONS_NO_ID ? geteuid() : options->uid,
                                    .gid = options->gid == OPTIONS_NO_ID ? getegid() : options->gid,
                                    .has_kv_cache = options->gms,
                                    .drops_copies = options->drops_copies,
                                    .evicts = evicts(options),
                                    .min_stay_ms = options->min_stay_ms,
                                    .admin_uid = geteuid(),
                                    .max_connections = worker->descriptors.connections,
                                    .max_watches = worker->descriptors.watches,
                                    .max_regions = worker->descriptors.regions,
                                    .max_requests =
                                        worker->setup->ledger->slots - FS_LEDGER_CLOSING - 2};
}

static int open_service(struct worker *worker)
{
    struct service_options options = get_service_options(worker);
    struct service_host host = worker_service_host(worker);
    struct core_options core_options;

    worker->resumes = !journal_is_new(worker->journal);
    if (worker->resumes)
        return worker_restore_service(worker, &options, &host);
    service_get_core_options(worker->vmm, &options, &core_options);
    int error = replay_begin(&worker->transaction, &core_options);
    return error ? error : service_new(worker->vmm, &options, &host, &worker->service);
}

static int open_gms(struct worker *worker)
{
    struct gms_setup setup = {
        .options = worker->setup->options,
        .mountpoint = worker->setup->mountpoint,
        .service = worker->service,
        .loop = worker->loop,
        .helpers = worker->helpers,
        .keep = &worker->keep,
        .transaction = &worker->transaction,
        .ledger = worker->setup->ledger,
        .counts = &get_counts(worker)->fs,
        .memory_fd = worker->setup->gms_memory_fd,
    };
    int error = setup.options->gms ? gms_new(&setup, &worker->gms) : 0;

    if (!error && worker->resumes)
        worker_resume_connections(worker);
    return error;
}

/* Restores the level that `gmsfs log` set, if any. */
static void take_log_level(const struct worker_own *own)
{
    uint32_t level = atomic_load(&own->log_level);

    if (level > 0 && level <= LOG_LEVEL_DEBUG + 1)
        log_set_level((enum log_level)(level - 1));
}

static int open_journal(struct worker *worker)
{
    struct failure failure;
    int error = journal_open(&worker->setup->journal, &worker->journal, &failure);

    if (error)
        log_error("%s: not mounted: %s", worker->setup->mountpoint, failure.text);
    transaction_init(&worker->transaction, worker->journal, worker->helpers);
    if (!error)
        worker_open_room(worker);
    if (!error)
        take_log_level(get_own(worker));
    worker->transaction.on_unwanted = on_unwanted;
    worker->transaction.context = worker;
    snapshot_init(&worker->snapshot, worker->loop, worker->helpers, worker->journal, &worker->room);
    return error;
}

static int report(const struct worker *worker, const char *part, int error)
{
    if (error)
        log_error("%s: not mounted: cannot start %s: %s", worker->setup->mountpoint, part,
                  strerror(-error));
    return error;
}

static uint64_t read_descriptor_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > INT_MAX)
        return INT_MAX;
    return limit.rlim_cur;
}

static void tell_prepared(struct worker *worker)
{
    struct wire_message message = {.type = WIRE_PREPARED};
    struct vmm_info info;

    vmm_get_info(worker->vmm, &info);
    wire_set_uuid(&message, info.uuid);
    worker_tell_keeper(worker, &message, worker->lifeline_fd);
    file_close_fd(&worker->lifeline_fd);
}

static int begin(struct worker *worker)
{
    struct loop_calls calls = {.context = worker,
                               .on_idle = on_idle,
                               .on_job = on_job,
                               .on_step = on_step,
                               .on_tick = on_tick};
    int error = report(worker, "the event loop", loop_new(&calls, &worker->loop));

    if (error)
        return error;
    worker->timeout.expired = on_timeout;
    worker->descriptors = descriptors_divide(read_descriptor_limit());
    exits_init(&worker->exits, worker->loop, on_exit_of, worker);
    worker->control = (struct event_watch){.fd = worker->setup->control_fd, .ready = on_control};
    error = report(worker, "the helpers",
                   helpers_new(worker->loop, worker->setup->ledger, &worker->helpers));
    if (!error)
        error = open_journal(worker);
    if (!error)
        error = open_memory(worker);
    if (!error)
        error = report(worker, "the service", open_service(worker));
    if (!error)
        error = report(worker, "serving GMS clients", open_gms(worker));
    if (!error)
        error = report(worker, "the event loop",
                       loop_watch(worker->loop, &worker->control, EVENT_READ));
    if (error)
        return error;
    worker->health.done = on_health;
    vmm_on_health(worker->vmm, on_news, worker);
    worker->measurement.done = on_measured;
    vmm_on_measurement(worker->vmm, on_measurement, worker);
    tell_prepared(worker);
    return 0;
}

/* Lets running jobs finish, and their answers leave. Returns false if one hangs. */
static bool finish_jobs(struct worker *worker)
{
    uint64_t until_ms = loop_now_ms() + WORKER_ENDING_MS;

    loop_unwatch(worker->loop, &worker->control);
    for (;;) {
        bool busy = helpers_count_jobs(worker->helpers) > 0;
        if (loop_turn(worker->loop, busy ? 20 : 0))
            return false;
        if (!busy && helpers_count_jobs(worker->helpers) == 0)
            return true;
        if (loop_now_ms() > until_ms)
            return false;
    }
}

static void end(struct worker *worker)
{
    worker_end_step(worker);
    snapshot_stop(&worker->snapshot);
    if (worker->service && worker->status == 0)
        replay_check(service_get_core(worker->service), &worker->setup->journal);
    gms_close_listeners(worker->gms); /* a client that connects now would only make work */
    if (worker->service)
        service_end_moves(worker->service);
    if (worker->service && !finish_jobs(worker)) {
        log_warning("%s: transfers hang; the worker ends without them", worker->setup->mountpoint);
        _exit(worker->status);
    }
    if (worker->vmm) {
        vmm_on_health(worker->vmm, NULL, NULL);
        vmm_on_measurement(worker->vmm, NULL, NULL);
    }
    if (worker->service)
        service_stop(worker->service);
    worker_end_step(worker);
    helpers_free(worker->helpers);
    gms_free(worker->gms);
    fs_free(worker->fs);
    worker->fs = NULL;
    audit_free(worker->audit);
    timeline_stop();
    service_free(worker->service);
    exits_free(&worker->exits);
    if (worker->vmm)
        vmm_close(worker->vmm);
    transaction_free(&worker->transaction);
    journal_close(worker->journal);
    worker_close_room(worker);
    loop_free(worker->loop);
}

int worker_main(const struct worker_setup *setup)
{
    struct worker worker = {.setup = setup, .began_us = clock_now_us(), .lifeline_fd = -1};

    worker_bound_heap();
    begin_process(setup);
    thread_be_prompt();
    grow_descriptor_table(setup);
    worker.lifeline_fd = lifeline_start();
    fcntl(setup->control_fd, F_SETFL, O_NONBLOCK);
    keep_init(&worker.keep, setup->keep_fd);
    int error = begin(&worker);
    if (!error)
        error = loop_run(worker.loop);
    if (error) {
        log_debug("the worker ends: %s", strerror(-error));
        worker.status = 1;
    }
    if (error && worker.journal) /* the next worker has to find the same state as this one */
        journal_rewind(worker.journal, 0);
    if (error && worker.resumes) /* nothing that the next worker continues is cleaned up */
        _exit(1);
    if (worker.loop)
        end(&worker);
    keep_close(&worker.keep);
    close(setup->control_fd);
    return worker.status;
}
