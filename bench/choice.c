/* SPDX-License-Identifier: Apache-2.0 */
/*
 * choice - the service's time to choose and evict victims, among 4,096 stores
 *
 * A service in this process, over host memory: all stores are on the device, which is full, and
 * have a spare on the host. The time covers the look at all of them and the eviction of some;
 * evict.c measures the choice alone. The floor is one qsort(3) of as many rows, which takes 0.37 ms
 * where a millisecond is the goal: hence the limit.
 */
#include "bench.h"
#include "core/evict.h"
#include "service/moves.h"
#include "service/plan.h"
#include "service/sessions.h"

#include "service/allocations.h"

#define STORES 4096u
#define GRAIN  65536u
#define LIMIT  2.7
#define ASKER  "weights" /* a store of every mount */
#define JOBS   64u

static struct vmm *vmm;
static struct service *service;
static uint64_t now_ms = 1000;
static struct evict_row rows[STORES];
static struct job *jobs[JOBS];
static size_t job_count;

struct client {
    struct service_request request; /* first */
    struct service_caller caller;
    uint64_t file;
    int error;
};

/* ---- a host that runs its jobs in settle() ------------------------------------------------- */

static uint64_t host_now(void *context)
{
    (void)context;
    return now_ms;
}

static int host_random(void *context, void *bytes, size_t size)
{
    static uint64_t next;

    (void)context;
    memset(bytes, 0, size);
    next++;
    memcpy(bytes, &next, size < sizeof next ? size : sizeof next);
    return 0;
}

/* Stands for a mount's journal: bench/recorded.c measures its cost. */
static int host_record(void *context, const struct record *record, size_t *mark)
{
    (void)context;
    (void)record;
    *mark = 0;
    return 0;
}

static void host_unrecord(void *context, size_t mark)
{
    (void)context;
    (void)mark;
}

static void host_publish(void *context)
{
    (void)context;
}

static int host_submit(void *context, enum service_pool pool, struct job *job)
{
    (void)context;
    (void)pool;
    if (job_count == JOBS)
        return -EAGAIN;
    jobs[job_count++] = job;
    return 0;
}

/* Ends all jobs one after the other, and the jobs that they begin. */
static void settle(void)
{
    service_end_step(service);
    while (job_count > 0) {
        struct job *job = jobs[--job_count];

        job->run(job);
        job->done(job);
        service_end_step(service);
    }
}

static void host_set_timer(void *context, uint64_t at_ms)
{
    (void)context;
    (void)at_ms;
}

static bool host_has_unread(void *context)
{
    (void)context;
    return false;
}

static void host_set_idle(void *context)
{
    (void)context;
}

static int host_watch(void *context, struct core_process process)
{
    (void)context;
    (void)process;
    return 0;
}

static void host_unwatch(void *context, struct core_process process)
{
    (void)context;
    (void)process;
}

static int host_admit(void *context, int fd)
{
    (void)context;
    (void)fd;
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

static void on_answer(struct service_request *request, int error,
                      const struct service_answer *answer)
{
    struct client *client = (struct client *)request;

    client->error = error;
    client->file = client->file ? client->file : answer->file;
}

static void start(void)
{
    static const struct service_host host = {.now_ms = host_now,
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
                                             .drop = host_drop};
    uint64_t bytes = (uint64_t)(STORES - 1) * GRAIN;
    struct vmm_options memory = {.backend = "host",
                                 .size_bytes = bytes,
                                 .granularity_bytes = GRAIN,
                                 .host_bytes = 2 * bytes};
    struct service_options options = {.patience_ms = 1000,
                                      .spool_max_bytes = bytes,
                                      .max_connections = 64,
                                      .max_watches = STORES,
                                      .evicts = true};
    char error[256];

    if (vmm_open(&memory, &vmm, error, sizeof error) < 0)
        bench_die(error, EIO);
    bench_check("a service", service_new(vmm, &options, &host, &service));
}

/* ---- stores -------------------------------------------------------------------------------- */

static struct client open_ctl(uint64_t store)
{
    struct client client = {.request.done = on_answer,
                            .caller = {.processes = {{.pid = 1, .start = 1}}, .process_count = 1}};
    struct service_open open = {.store = store, .kind = CORE_KIND_CTL, .read = true, .write = true};

    bench_check("open", service_open(service, &open, &client.caller, &client.request));
    bench_check("open", client.error);
    return client;
}

static uint64_t make_store(unsigned number)
{
    char name[16];
    struct record record = {.type = RECORD_STORE_CREATE, .name = name, .mode = 0755};
    struct outcome outcome;

    record.name_bytes = (size_t)snprintf(name, sizeof name, "s%u", number);
    memcpy(record.bytes16, &number, sizeof number);
    bench_check("a store", service_apply_record(service, &record, &outcome));
    return outcome.id;
}

static void fill_store(uint64_t store)
{
    struct client client = open_ctl(store);
    struct service_acquire wanted = {.wish = LOCK_WISH_RW, .owned = true};
    struct service_actor by = {.file = client.file};
    struct service_alloc alloc = {.size_bytes = GRAIN, .count = 1, .name = "", .tag = ""};
    struct record commit = {.type = RECORD_COMMIT};

    bench_check("acquire",
                service_acquire(service, client.file, &wanted, &client.caller, &client.request));
    bench_check("acquire", client.error);
    bench_check("alloc", service_alloc(service, &by, &alloc, &client.request));
    settle();
    bench_check("alloc", client.error);
    commit.session = core_find_file(service_get_core(service), client.file)->session;
    bench_check("commit", service_apply_record(service, &commit, NULL));
    service_close(service, client.file);
    settle();
}

static void make_spare(uint64_t store)
{
    struct record record = {.type = RECORD_MOVE_BEGIN,
                            .store = store,
                            .kind = CORE_PLACE_HOST,
                            .flags = CORE_MOVE_SPARE};

    bench_check("a spare", service_move_store(service, &record));
    settle();
}

static void drop_spare(uint64_t store)
{
    struct record record = {.type = RECORD_COPY_DROP, .store = store, .kind = CORE_PLACE_HOST};

    bench_check("no spare", service_apply_record(service, &record, NULL));
    settle();
}

static void pin(uint64_t store)
{
    struct record record = {.type = RECORD_STORE_PIN, .store = store, .flags = CORE_PIN_ON};

    bench_check("a pin", service_apply_record(service, &record, NULL));
    settle();
}

static void fill_device(void)
{
    uint64_t state = 1;

    for (unsigned i = 0; i < STORES - 1; i++) {
        uint64_t store = make_store(i);

        fill_store(store);
        make_spare(store);
        state = state * 6364136223846793005u + 1442695040888963407u;
        rows[i] = (struct evict_row){.store = store, .last_used_ms = state >> 20};
        now_ms++;
    }
}

/* ---- times --------------------------------------------------------------------------------- */

static int compare_use(const void *left, const void *right)
{
    uint64_t a = ((const struct evict_row *)left)->last_used_ms,
             b = ((const struct evict_row *)right)->last_used_ms;

    return (a > b) - (a < b);
}

static double time_sort(void)
{
    static struct evict_row sorted[STORES];
    double from;

    memcpy(sorted, rows, sizeof sorted);
    from = bench_now_us();
    qsort(sorted, STORES, sizeof *sorted, compare_use);
    return bench_now_us() - from;
}

/* Times a choice of `victims` stores; the store that needs the room is on the device already. */
static double time_choice(uint64_t victims, bool comes)
{
    const struct core_store *asker = core_find_store_name(service_get_core(service), ASKER);
    double from, took_us;

    now_ms += 1000; /* another choice than the last one */
    from = bench_now_us();
    if (service_evict_for(service, asker, vmm_get_free(vmm) + victims * GRAIN) != comes)
        bench_die("the choice", EINVAL);
    service_end_step(service); /* the records' effects */
    took_us = bench_now_us() - from;
    settle();
    return took_us;
}

static void compare(const char *label, uint64_t victims, bool comes, double limit)
{
    double ours[BENCH_ROUNDS], floor[BENCH_ROUNDS];

    for (size_t round = 0; round < BENCH_ROUNDS; round++) {
        /* The same choice is not repeated after it failed: each round asks for another count. */
        ours[round] = time_choice(comes ? victims : victims + round, comes);
        floor[round] = time_sort();
    }
    bench_row(label, bench_median(ours), bench_median(floor), limit, BENCH_AT_MOST);
}

int main(void)
{
    bench_raise_descriptors();
    start();
    fill_device();
    compare("a drop, chosen among 4,096 stores / a sort", 1, true, LIMIT);
    compare("16 drops, chosen among 4,096 stores / a sort", 16, true, 6); /* mostly their records */
    for (unsigned i = 1000; i < STORES - 1; i++)
        drop_spare(rows[i].store);
    for (unsigned i = 0; i < 1000; i++)
        pin(rows[i].store);
    compare("a copy, chosen among 4,096 stores / a sort", 1, true, LIMIT);
    compare("16 copies, chosen among 4,096 stores / a sort", 16, true, LIMIT);
    for (unsigned i = 1000; i < STORES - 1; i++)
        pin(rows[i].store);
    compare("a vain choice among 4,096 stores / a sort", 1, false, LIMIT);
    return 0;
}
