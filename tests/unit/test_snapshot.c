/* SPDX-License-Identifier: Apache-2.0 */
/* Tests when a snapshot of the state is tried, and when again after a failure. */
#include "daemon/snapshot.h"

#include "tap.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct journal_files files;
static struct journal *journal;
static struct loop *loop;
static struct core *core;
static struct snapshot snapshot;
static unsigned forks;

/* In place of the library's: no process can be started. */
pid_t fork(void)
{
    forks++;
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
    snapshot_init(&snapshot, loop, journal, NULL);
    forks = 0;
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
    loop_free(loop);
    journal_close(journal);
    journal_close_files(&files);
}

TAP_TEST(a_fork_that_failed_is_not_tried_again_at_once)
{
    begin();
    step();
    for (unsigned i = 0; i < 4; i++) {
        snapshot.retry_ms += 60000; /* however long the steps take */
        step();
    }
    check_int(forks, 1);
    end();
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
    end();
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
    end();
}
