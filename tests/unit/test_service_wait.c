/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits for a lock is there to be answered, whatever happens while its request is served.
 *
 * A service on host memory with a host that does jobs at once and says of some processes that they
 * have ended already.
 */
#include "service/service.h"

#include "tap.h"

#include <errno.h>
#include <string.h>

#define GRAIN ((uint64_t)64 << 10)
#define TOTAL (4 * GRAIN)
#define GONE  77 /* a process that has ended */

static struct vmm *vmm;
static struct service *service;

struct client {
    struct service_request request; /* first */
    int answers, error;
    uint64_t ctl, session;
    struct service_caller caller;
};

/* ---- a host -------------------------------------------------------------------------------- */

static uint64_t host_now(void *context)
{
    (void)context;
    return 1000;
}

static int host_random(void *context, void *bytes, size_t size)
{
    static uint8_t next;
    (void)context;
    memset(bytes, ++next, size);
    return 0;
}

static bool defers; /* jobs are done by run_deferred */
static struct job *deferred[16];
static size_t deferred_count;

static void do_job(struct job *job)
{
    job->run(job);
    job->done(job);
}

static int host_submit(void *context, enum service_pool pool, struct job *job)
{
    (void)context;
    (void)pool;
    if (!defers)
        do_job(job);
    else if (deferred_count == sizeof deferred / sizeof deferred[0])
        return -EAGAIN;
    else
        deferred[deferred_count++] = job;
    return 0;
}

static void run_deferred(void)
{
    defers = false;
    while (deferred_count > 0)
        do_job(deferred[--deferred_count]);
}

static void host_set_timer(void *context, uint64_t at_ms)
{
    (void)context;
    (void)at_ms;
}

static void host_nothing(void *context)
{
    (void)context;
}

static int host_watch(void *context, struct core_process process, uint64_t session)
{
    (void)context;
    (void)session;
    return process.pid == GONE ? -ESRCH : 0;
}

static void host_number(void *context, uint64_t number)
{
    (void)context;
    (void)number;
}

static unsigned admitted, interrupt_at; /* the piece with which the client goes away; 0: never */
static struct service_request *interrupted;

static int host_admit(void *context, int fd)
{
    (void)context;
    (void)fd;
    if (++admitted == interrupt_at)
        service_interrupt(service, interrupted);
    return 0;
}

static int host_keep(void *context, const struct service_memory *memories, size_t count)
{
    (void)context;
    (void)memories;
    (void)count;
    return 0;
}

static void host_drop(void *context, const uint64_t *memories, size_t count)
{
    (void)context;
    (void)memories;
    (void)count;
}

static const struct service_host host = {
    .now_ms = host_now,
    .wall_ms = host_now,
    .get_random = host_random,
    .submit = host_submit,
    .set_timer = host_set_timer,
    .set_idle = host_nothing,
    .watch_process = host_watch,
    .unwatch_process = host_number,
    .admit_descriptor = host_admit,
    .keep = host_keep,
    .drop = host_drop,
    .on_state = host_number,
    .on_event = host_nothing,
};

/* ---- clients ------------------------------------------------------------------------------- */

static void on_answer(struct service_request *request, int error,
                      const struct service_answer *answer)
{
    struct client *client = (struct client *)request;

    client->answers++;
    client->error = error;
    client->session = answer->session;
    client->ctl = client->ctl ? client->ctl : answer->file;
}

static void start(void)
{
    struct vmm_options memory = {
        .backend = "host", .size_bytes = TOTAL, .granularity_bytes = GRAIN};
    struct service_options options = {.patience_ms = 1000, .parking_max_ms = UINT64_MAX};
    char error[256];

    require(vmm_open(&memory, &vmm, error, sizeof error) == 0);
    require(service_new(vmm, &options, &host, &service) == 0);
}

static void end(void)
{
    service_free(service);
    vmm_close(vmm);
}

/* A `ctl` of the store `weights`, opened by this process. */
static void open_ctl(struct client *client, uint64_t pid)
{
    const struct core_store *store = core_find_store_name(service_get_core(service), "weights");
    struct service_open open = {
        .store = store->id, .kind = CORE_KIND_CTL, .read = true, .write = true};

    *client =
        (struct client){.request.done = on_answer,
                        .caller = {.processes = {{.pid = pid, .start = 1}}, .process_count = 1}};
    require(service_open(service, &open, &client->caller, &client->request) == 0);
    require(client->answers == 1 && client->error == 0 && client->ctl != 0);
    client->answers = 0;
}

static void ask(struct client *client, uint64_t reserve_bytes)
{
    struct service_acquire acquire = {
        .wish = LOCK_WISH_RW, .timeout_ms = 1000000, .reserve_bytes = reserve_bytes};

    check_int(service_acquire(service, client->ctl, &acquire, &client->caller, &client->request),
              0);
}

/* ---- tests --------------------------------------------------------------------------------- */

TAP_TEST(a_waiter_is_parked_and_answered_when_the_lock_is_free)
{
    struct client first, second;

    start();
    open_ctl(&first, 1);
    open_ctl(&second, 2);
    ask(&first, 0);
    check_int(first.answers, 1);
    ask(&second, 0);
    check_int(second.answers, 0);
    check(second.request.parked != NULL);
    service_close(service, first.ctl);
    check_int(second.answers, 1);
    check_int(second.error, 0);
    end();
}

/* Memory is free again that nobody was told of. The first that waited for it gets the lock because
 * the second asks, has ended already, and so the second can have it: while it is being served. */
TAP_TEST(a_waiter_that_is_granted_by_what_its_own_request_causes_is_answered)
{
    struct client first, second;

    start();
    require(vmm_reserve(vmm, GRAIN) == 0);
    open_ctl(&first, GONE);
    open_ctl(&second, 2);
    ask(&first, TOTAL);
    check_int(first.answers, 0);
    vmm_unreserve(vmm, GRAIN);
    ask(&second, 0);
    check_int(first.answers, 1);
    check_int(second.answers, 1);
    check_int(second.error, 0);
    check(core_find_session(service_get_core(service), second.session) != NULL);
    check(second.request.parked == NULL);
    end();
}

/* ---- memory that is being made -------------------------------------------------------------- */

static uint64_t used_bytes(void)
{
    struct vmm_info info;

    vmm_get_info(vmm, &info);
    return info.used_bytes;
}

/* The client goes away while piece number `at` is made. */
static struct client allocate_interrupted(unsigned at)
{
    struct service_alloc alloc = {.size_bytes = GRAIN, .count = 4, .name = "", .tag = ""};
    struct client client;

    start();
    open_ctl(&client, 1);
    ask(&client, 0);
    require(client.answers == 1 && client.error == 0);
    client.answers = 0;
    admitted = 0;
    interrupt_at = at;
    interrupted = &client.request;
    defers = true;
    check_int(service_alloc(service, client.session, &alloc, &client.request), 0);
    run_deferred();
    interrupt_at = 0;
    return client;
}

TAP_TEST(alloc_that_nobody_waits_for_ends_between_two_pieces)
{
    struct client client = allocate_interrupted(2);

    check_int(client.answers, 1);
    check_int(client.error, -EINTR);
    check_int(admitted, 2);
    check_int(used_bytes(), 0);
    end();
}

TAP_TEST(alloc_that_is_interrupted_at_its_last_piece_is_done)
{
    struct client client = allocate_interrupted(4);

    check_int(client.answers, 1);
    check_int(client.error, 0);
    check_int(used_bytes(), TOTAL);
    end();
}
