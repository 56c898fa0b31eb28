/* SPDX-License-Identifier: Apache-2.0 */
/* Tests when a snapshot of the state is tried, when again after a failure, and that a helper frees
 * a large former one. */
#include "daemon/snapshot.h"

#include "tap.h"

#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct journal_files files;
static struct journal *journal;
static struct loop *loop;
static struct core *core;
static struct snapshot snapshot;
static struct helpers *helpers;
static struct fs_ledger *ledger;
static unsigned forks;
static bool forks_well;

/* In place of the library's: mostly no process can be started. */
pid_t fork(void)
{
    forks++;
    if (forks_well)
        return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    errno = ENOMEM;
    return -1;
}

static bool on_tick(void *context, uint64_t now_ms)
{
    (void)context;
    (void)now_ms;
    return false;
}

static void publish_much(void)
{
    static const char bytes[JOURNAL_SNAPSHOT_BYTES];
    const struct iovec part = {(void *)(uintptr_t)bytes, sizeof bytes};

    require(journal_reserve(journal, journal_entry_room(sizeof bytes)) == 0);
    journal_add(journal, 1, &part, 1);
    journal_publish(journal);
}

static void begin(void)
{
    const struct loop_calls calls = {.on_tick = on_tick};
    const struct core_options options = {.granularity_bytes = 4096};
    struct failure failure;

    require(journal_make_files(&files) == 0 && journal_open(&files, &journal, &failure) == 0);
    require(loop_new(&calls, &loop) == 0 && core_new(&options, &core) == 0);
    ledger = calloc(1, sizeof *ledger);
    require(ledger && helpers_new(loop, ledger, &helpers) == 0);
    helpers_bound(helpers, SERVICE_POOL_FREE, 1);
    helpers_bound(helpers, SERVICE_POOL_COMPUTE, 1);
    snapshot_init(&snapshot, loop, helpers, journal, NULL);
    forks = 0;
    forks_well = false;
}

/* Each step makes a snapshot worthwhile. */
static void step(void)
{
    publish_much();
    check(!snapshot_step(&snapshot, core, false));
}

static void end(void)
{
    core_free(core);
    helpers_free(helpers);
    free(ledger);
    loop_free(loop);
    journal_close(journal);
    journal_close_files(&files);
}

TAP_AFTER_EACH(end)

TAP_TEST(a_fork_that_failed_is_not_tried_again_at_once)
{
    begin();
    step();
    for (unsigned i = 0; i < 4; i++) {
        snapshot.retry_ms += 60000; /* however long the steps take */
        step();
    }
    check_int(forks, 1);
}

TAP_TEST(a_document_is_applied_first_up_to_twice_the_bytes)
{
    begin();
    publish_much();
    check(!snapshot_step(&snapshot, core, true));
    check_int(forks, 0);
    publish_much();
    check(!snapshot_step(&snapshot, core, true));
    check_int(forks, 1);
    end();

    begin();
    publish_much();
    check(!snapshot_step(&snapshot, core, true));
    check(!snapshot_step(&snapshot, core, false));
    check_int(forks, 1);
}

TAP_TEST(each_failure_in_a_row_has_the_next_try_wait_longer)
{
    static const uint64_t pauses_ms[] = {1000, 2000, 4000, 8000, 10000, 10000};

    begin();
    for (unsigned i = 0; i < sizeof pauses_ms / sizeof *pauses_ms; i++) {
        uint64_t before_ms = loop_now_ms();
        snapshot.retry_ms = 0; /* the wait is over */
        step();
        check_int(forks, i + 1);
        check(snapshot.retry_ms >= before_ms + pauses_ms[i]);
        check(snapshot.retry_ms <= loop_now_ms() + pauses_ms[i]);
    }
}

/* ---- memory of a former snapshot ------------------------------------------------------- */

#define KEPT_BYTES (UINT64_C(64) << 20)

static uint64_t memory_of(int fd)
{
    struct stat stat;

    require(fstat(fd, &stat) == 0);
    return (uint64_t)stat.st_blocks * 512;
}

static sem_t gate;
static bool is_through;

static void run_at_gate(struct job *job)
{
    (void)job;
    sem_wait(&gate);
}

static void pass_gate(struct job *job)
{
    (void)job;
    is_through = true;
}

/* Makes a snapshot that replaces more than these bytes while the only thread of the pool is held up
 * by this job. */
static void begin_behind(enum service_pool pool, struct job *before, uint64_t bytes)
{
    *before = (struct job){.run = run_at_gate, .done = pass_gate};
    is_through = false;
    begin();
    require(sem_init(&gate, 0, 0) == 0);
    require(helpers_submit(helpers, pool, before) == 0);
    forks_well = true;
    while (journal_get_numbers(journal).bytes <= bytes)
        publish_much();
    check(snapshot_step(&snapshot, core, false));
    forks_well = false;
    while (journal_get_numbers(journal).snapshots == 0)
        loop_turn(loop, 1000);
}

TAP_TEST(a_helper_frees_the_former_snapshot_before_the_next_one_begins)
{
    struct job before;

    begin_behind(SERVICE_POOL_COMPUTE, &before, KEPT_BYTES + JOURNAL_SNAPSHOT_BYTES);
    check(memory_of(files.transactions[0]) > KEPT_BYTES);
    step();
    check_int(forks, 1);
    sem_post(&gate);
    while (!is_through || snapshot.is_freeing)
        loop_turn(loop, 1000);
    check_int(memory_of(files.transactions[0]), KEPT_BYTES);
    step();
    check_int(forks, 2);
    sem_destroy(&gate);
}

TAP_TEST(a_small_former_snapshot_is_freed_without_a_helper)
{
    struct job before;

    begin_behind(SERVICE_POOL_COMPUTE, &before, KEPT_BYTES);
    check(!snapshot.is_freeing && !is_through);
    check_int(memory_of(files.transactions[0]), KEPT_BYTES);
    sem_post(&gate);
    while (!is_through)
        loop_turn(loop, 1000);
    sem_destroy(&gate);
}

TAP_TEST(a_hung_job_that_frees_memory_holds_up_no_snapshot)
{
    struct job hung;

    begin_behind(SERVICE_POOL_FREE, &hung, KEPT_BYTES + JOURNAL_SNAPSHOT_BYTES);
    for (unsigned turns = 0; snapshot.is_freeing && turns < 10; turns++)
        loop_turn(loop, 1000);
    check(!snapshot.is_freeing && !is_through);
    publish_much();
    step();
    check_int(forks, 2);
    sem_post(&gate);
    while (!is_through)
        loop_turn(loop, 1000);
    sem_destroy(&gate);
}
