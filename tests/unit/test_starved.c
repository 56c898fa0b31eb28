/* SPDX-License-Identifier: Apache-2.0 */
/* Workers that the kernel killed for want of memory: which they are, and that they count as no
 * others do. */
#include "daemon/keeper_internal.h"
#include "tap.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define ENDED (1 << 8) /* as waitpid tells exit status 1 */

TAP_TEST(a_kill_is_for_want_of_memory_only_if_the_kernel_counted_one)
{
    check(keeper_is_starved(SIGKILL, 4, 5));
    check(keeper_is_starved(SIGKILL, 0, 3));
    check(!keeper_is_starved(SIGKILL, 4, 4));
    check(!keeper_is_starved(SIGKILL, 4, 0)); /* it cannot be read any more */
}

TAP_TEST(another_end_is_not_though_the_kernel_killed_somebody_meanwhile)
{
    check(!keeper_is_starved(SIGSEGV, 4, 5));
    check(!keeper_is_starved(SIGTERM, 4, 5));
    check(!keeper_is_starved(ENDED, 4, 5));
    check(!keeper_is_starved(0, 4, 5));
}

TAP_TEST(whatever_starved_workers_were_at_is_refused_to_nobody)
{
    static struct keeper_setup setup = {.mountpoint = "/mount"};
    struct keeper *keeper = calloc(1, sizeof *keeper);

    keeper->setup = &setup;
    require(fs_ledger_make(&keeper->ledger_fd, &keeper->ledger) == 0);
    keeper->restarts.was_starved = true;
    keeper->restarts.in_vain = 1;
    keeper->worker_status = SIGKILL;
    for (int i = 0; i < 50; i++) {
        atomic_store(&keeper->ledger->at[0], 100);
        keeper_refuse_poison(keeper);
    }
    check_int((long long)keeper->ledger->refused, 0);
    close(keeper->ledger_fd);
    free(keeper);
}
