/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service_fixture - a service over host memory, with a host that does all at once, and clients of
 * it
 *
 * For tests of the service without a daemon. in_step(call) makes the call in a step of a loop and
 * ends the step; then its jobs run, each in a step of its own, or (defers) wait for run_deferred.
 * Time advances only when a test advances it. Included once by a program.
 */
#ifndef GMSFS_TESTS_UNIT_SERVICE_FIXTURE_H
#define GMSFS_TESTS_UNIT_SERVICE_FIXTURE_H

#include "record_bytes.h"
#include "service/allocations.h"
#include "service/host.h"
#include "service/metadata.h"
#include "service/sessions.h"
#include "tap.h"
#include "vmm/vmm_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIXTURE_GRAIN 65536u
#define FIXTURE_BYTES (1u << 20)
#define FIXTURE_GONE  666u /* a pid that exits the moment that it is watched */

static struct vmm *vmm;
static struct service *service;
static uint64_t fixture_now_ms, fixture_timer_ms;
static bool fixture_idle; /* service_on_idle is wanted */
static unsigned fixture_watches;
static bool defers;
static struct job *queued_jobs, **last_job = &queued_jobs; /* submitted, and not run yet */
static unsigned submitted[SERVICE_POOL_COUNT];             /* jobs, since service_start */
static struct service_kept kept[256];                      /* the keeper's items, by number */
static size_t kept_count;
static uint64_t unwatchable;          /* a pid for which there is no descriptor; 0: none */
static int (*fixture_on_admit)(void); /* NULL: any descriptor is admitted */
static uint64_t
    fixture_host_bytes; /* of a host tier, and stores leave the device for it; 0: none */
static uint64_t fixture_host_grain; /* its unit; 0: the device's */

struct client {
    struct service_request request; /* first */
    unsigned answers;
    int error;
    uint64_t ctl, session;
    struct service_answer answer;
    struct service_caller caller;
};

static uint64_t host_now(void *context)
{
    (void)context;
    return fixture_now_ms;
}

static int host_random(void *context, void *bytes, size_t size)
{
    static uint8_t next[2];

    (void)context;
    memset(bytes, ++next[0], size);
    next[1] += next[0] == 0;
    ((uint8_t *)bytes)[0] = next[1];
    return 0;
}

static bool journal_is_full; /* no record can be written */

static int host_record(void *context, const struct record *record, size_t *mark)
{
    (void)context;
    (void)record;
    *mark = 0;
    return journal_is_full ? -ENOMEM : 0;
}

static void host_publish(void *context)
{
    (void)context;
}

static void host_unrecord(void *context, size_t mark)
{
    (void)context;
    (void)mark;
}

static int host_submit(void *context, enum service_pool pool, struct job *job)
{
    (void)context;
    submitted[pool]++;
    job->next = NULL;
    *last_job = job;
    last_job = &job->next;
    return 0;
}

static void host_set_timer(void *context, uint64_t at_ms)
{
    (void)context;
    fixture_timer_ms = at_ms;
}

static bool fixture_has_unread; /* requests wait in the kernel */

static bool host_has_unread(void *context)
{
    (void)context;
    return fixture_has_unread;
}

static void host_set_idle(void *context)
{
    (void)context;
    fixture_idle = true;
}

static int host_watch(void *context, struct core_process process)
{
    (void)context;
    if (process.pid == FIXTURE_GONE)
        return -ESRCH;
    if (process.pid == unwatchable)
        return -ENFILE;
    fixture_watches++;
    return 0;
}

static void host_unwatch(void *context, struct core_process process)
{
    (void)context;
    (void)process;
    fixture_watches--;
}

static int host_admit(void *context, int fd)
{
    (void)context;
    (void)fd;
    return fixture_on_admit ? fixture_on_admit() : 0;
}

static int host_keep(void *context, const struct service_memory *memories, size_t count)
{
    (void)context;
    for (size_t i = 0; i < count; i++) {
        int fd = fcntl(memories[i].fd, F_DUPFD_CLOEXEC, 0);
        size_t at = kept_count++;
        require(fd >= 0 && kept_count <= sizeof kept / sizeof kept[0]);
        for (; at > 0 && kept[at - 1].id > memories[i].id; at--)
            kept[at] = kept[at - 1];
        kept[at] = (struct service_kept){.id = memories[i].id, .fd = fd};
    }
    return 0;
}

static void forget_kept(size_t at)
{
    close(kept[at].fd);
    memmove(&kept[at], &kept[at + 1], (--kept_count - at) * sizeof kept[0]);
}

static void drop_kept(uint64_t id)
{
    size_t at = 0;

    while (at < kept_count && kept[at].id != id)
        at++;
    if (at < kept_count)
        forget_kept(at);
}

/* Drops memories together with their read-only descriptors, as the keeper does. */
static void host_drop(void *context, const uint64_t *memories, size_t count)
{
    (void)context;
    for (size_t i = 0; i < count; i++) {
        drop_kept(memories[i]);
        drop_kept(memories[i] | SERVICE_MEMORY_READONLY);
    }
}

static uint64_t backed;        /* memory whose file is registered; 0: none */
static int fixture_back_error; /* of the next calls; 0: they succeed */

static int host_back(void *context, uint64_t memory, uint32_t *number)
{
    (void)context;
    if (fixture_back_error)
        return fixture_back_error;
    backed = number ? memory : 0;
    if (number)
        *number = 1;
    return 0;
}

static void on_answer(struct service_request *request, int error,
                      const struct service_answer *answer)
{
    struct client *client = (struct client *)request;

    client->answers++;
    client->error = error;
    client->answer = *answer;
    client->session = answer->session;
    client->ctl = client->ctl ? client->ctl : answer->file;
}

#define FIXTURE_ADMIN 500u

static struct service_host fixture_host = {
    .now_ms = host_now,
    .wall_ms = host_now,
    .get_random = host_random,
    .record = host_record,
    .unrecord = host_unrecord,
    .publish = host_publish,
    .submit = host_submit,
    .set_timer = host_set_timer,
    .has_unread = host_has_unread,
    .set_idle = host_set_idle,
    .watch_process = host_watch,
    .unwatch_process = host_unwatch,
    .admit_descriptor = host_admit,
    .keep = host_keep,
    .drop = host_drop,
    .back = host_back,
};

static struct service_options fixture_options(void)
{
    return (struct service_options){.patience_ms = 1000,
                                    .spool_max_bytes = FIXTURE_BYTES,
                                    .admin_uid = FIXTURE_ADMIN,
                                    .max_connections = 64,
                                    .max_watches = 64,
                                    .evicts = fixture_host_bytes > 0,
                                    .alloc_timeout_ms = fixture_host_bytes > 0 ? 1000 : 0};
}

static void open_memory(void)
{
    struct vmm_options memory = {.backend = "host",
                                 .size_bytes = FIXTURE_BYTES,
                                 .granularity_bytes = FIXTURE_GRAIN,
                                 .host_bytes = fixture_host_bytes};
    char error[256];

    require(vmm_open(&memory, &vmm, error, sizeof error) == 0);
    if (fixture_host_grain) /* as with huge pages, which a machine may not have */
        vmm->beside[VMM_TIER_HOST].granularity_bytes = fixture_host_grain;
}

static void do_job(struct job *job)
{
    job->run(job);
    job->done(job);
}

/* Runs the job that was submitted first, in a step of its own. */
static void run_first_job(void)
{
    struct job *job = queued_jobs;

    queued_jobs = job->next;
    last_job = queued_jobs ? last_job : &queued_jobs;
    do_job(job);
    service_end_step(service);
}

/* Runs all submitted jobs, each in a step of its own, and the jobs that they submit. */
static void run_jobs(void)
{
    while (queued_jobs)
        run_first_job();
}

/* The end of a step of the loop. */
static void settle_step(void)
{
    service_end_step(service);
    if (!defers)
        run_jobs();
}

#define in_step(call)                             \
    __extension__({                               \
        __typeof__(call) result_of_step = (call); \
        settle_step();                            \
        result_of_step;                           \
    })

__attribute__((unused)) static void close_file(uint64_t file)
{
    service_close(service, file);
    settle_step();
}

__attribute__((unused)) static void exit_process(struct core_process process)
{
    service_on_exit(service, process);
    settle_step();
}

__attribute__((unused)) static void run_deferred(void)
{
    defers = false;
    run_jobs();
}

__attribute__((unused)) static void run_timer(void)
{
    service_on_timer(service);
    settle_step();
}

/* Lets the time of the timer come. */
__attribute__((unused)) static void run_next_timer(void)
{
    fixture_now_ms = fixture_timer_ms;
    run_timer();
}

/* The client has had one answer, with this error. */
__attribute__((unused)) static void check_answer(const struct client *client, int error)
{
    check_int(client->answers, 1);
    check_int(client->error, error);
}

__attribute__((unused)) static void service_start(void)
{
    struct service_options options = fixture_options();

    fixture_now_ms = 1000;
    fixture_timer_ms = UINT64_MAX;
    fixture_idle = defers = false;
    fixture_watches = 0;
    memset(submitted, 0, sizeof submitted);
    unwatchable = 0;
    open_memory();
    require(in_step(service_new(vmm, &options, &fixture_host, &service)) == 0);
}

__attribute__((unused)) static void service_end(void)
{
    service_free(service);
    vmm_close(vmm);
    while (kept_count > 0)
        forget_kept(kept_count - 1);
    check_int(fixture_watches, 0);
}

static struct core *copy_core(void)
{
    struct failure failure;
    struct core *copy = NULL;
    uint8_t *bytes = NULL;
    size_t size = 0;

    require(core_encode(service_get_core(service), &bytes, &size) == 0);
    require(core_decode(bytes, size, &copy, &failure) == 0);
    free(bytes);
    return copy;
}

/* Starts a second service from the state and the keeper's items. Deferred jobs do nothing. */
__attribute__((unused)) static void service_restart(void)
{
    struct service_options options = fixture_options();
    struct service_kept taken[sizeof kept / sizeof kept[0]];
    struct core *core = copy_core();
    size_t count = kept_count;
    bool deferring = defers;

    for (size_t i = 0; i < count; i++)
        taken[i] =
            (struct service_kept){.id = kept[i].id, .fd = fcntl(kept[i].fd, F_DUPFD_CLOEXEC, 0)};
    service_stop(service);
    settle_step();
    run_deferred();
    defers = deferring;
    service_free(service);
    vmm_close(vmm);
    fixture_watches = 0;
    open_memory();
    require(service_restore(vmm, &options, &fixture_host, core, taken, count, &service) == 0);
    settle_step();
    for (size_t i = 0; i < count; i++) {
        if (taken[i].fd >= 0)
            close(taken[i].fd);
    }
}

__attribute__((unused)) static uint64_t store_id(void)
{
    return core_find_store_name(service_get_core(service), "weights")->id;
}

/* Not yet with a file. */
static struct client new_client(uint64_t pid, uint32_t uid)
{
    return (struct client){
        .request.done = on_answer,
        .caller = {
            .processes = {{.pid = pid, .start = 1}}, .process_count = 1, .uid = uid, .gid = uid}};
}

/* A file of the store `weights`: 0, or why not. */
static int open_as(struct client *client, enum core_kind kind, bool read, bool write)
{
    struct service_open open = {.store = store_id(), .kind = kind, .read = read, .write = write};

    client->answers = 0;
    client->ctl = 0;
    require(in_step(service_open(service, &open, &client->caller, &client->request)) == 0);
    require(client->answers == 1);
    client->answers = 0;
    return client->error;
}

__attribute__((unused)) static void open_ctl(struct client *client, uint64_t pid)
{
    *client = new_client(pid, 0);
    require(open_as(client, CORE_KIND_CTL, true, true) == 0 && client->ctl != 0);
}

__attribute__((unused)) static void acquire(struct client *client, enum lock_wish wish,
                                            uint64_t reserve_bytes)
{
    struct service_acquire wanted = {
        .wish = wish, .timeout_ms = 1000000, .reserve_bytes = reserve_bytes, .owned = true};

    check_int(
        in_step(service_acquire(service, client->ctl, &wanted, &client->caller, &client->request)),
        0);
}

#endif
