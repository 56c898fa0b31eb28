/* SPDX-License-Identifier: Apache-2.0 */
/* Tests workers that the kernel killed for lack of memory: which they are, and that their tasks do
 * not count. */
#include "daemon/keeper_internal.h"
#include "tap.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define ENDED (1 << 8) /* exit status 1, as waitpid reports it */

TAP_TEST(a_kill_is_for_want_of_memory_only_if_the_kernel_counted_one)
{
    check(keeper_is_starved(SIGKILL, 4, 5));
    check(keeper_is_starved(SIGKILL, 0, 3));
    check(!keeper_is_starved(SIGKILL, 4, 4));
    check(!keeper_is_starved(SIGKILL, 4, 0)); /* the count cannot be read any more */
}

TAP_TEST(another_end_is_not_though_the_kernel_killed_a_process_meanwhile)
{
    check(!keeper_is_starved(SIGSEGV, 4, 5));
    check(!keeper_is_starved(SIGTERM, 4, 5));
    check(!keeper_is_starved(ENDED, 4, 5));
    check(!keeper_is_starved(0, 4, 5));
}

TAP_TEST(tasks_of_starved_workers_are_not_refused)
{
    static struct keeper_setup setup = {.mountpoint = "/mount"};
    auto_free struct keeper *keeper = calloc(1, sizeof *keeper);

    keeper->setup = &setup;
    require(fs_ledger_make(&keeper->ledger_fd, &keeper->ledger) == 0);
    keeper->restarts.was_starved = true;
    keeper->restarts.unserved = 1;
    keeper->worker_status = SIGKILL;
    for (int i = 0; i < 50; i++) {
        atomic_store(&keeper->ledger->at[0], 100);
        keeper_refuse_poison(keeper);
    }
    check_int((long long)keeper->ledger->refused, 0);
    close(keeper->ledger_fd);
}
