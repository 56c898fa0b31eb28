/* SPDX-License-Identifier: Apache-2.0 */
/* Tests which tasks of dead workers are refused, and after how many deaths. */
#include "daemon/keeper_internal.h"

#include "base/clock.h"
#include "tap.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define ENDED  (1 << 8) /* exit status 1, as waitpid reports it */
#define KILLED SIGKILL

static struct keeper_setup setup = {.mountpoint = "/mount"};

static struct keeper *begin(void)
{
    struct keeper *keeper = calloc(1, sizeof *keeper);

    keeper->setup = &setup;
    if (fs_ledger_make(&keeper->ledger_fd, &keeper->ledger))
        abort();
    return keeper;
}

static void end(struct keeper *keeper)
{
    close(keeper->ledger_fd);
    free(keeper);
}

/* A worker ends this way during these tasks; 0: no more. */
static void die(struct keeper *keeper, int status, uint64_t first, uint64_t second)
{
    atomic_store(&keeper->ledger->at[0], first);
    atomic_store(&keeper->ledger->at[1], second);
    keeper->worker_status = status;
    keeper_refuse_poison(keeper);
}

static bool refuses_asker(const struct keeper *keeper, uint64_t asker)
{
    for (unsigned i = 0; i < FS_REFUSED_ASKERS; i++)
        if (keeper->ledger->refused_askers[i].what == asker &&
            keeper->ledger->refused_askers[i].until_ms > clock_now_ms() + 50000)
            return true;
    return false;
}

TAP_TEST(a_request_is_refused_after_three_that_ended_of_themselves)
{
    struct keeper *keeper = begin();

    die(keeper, ENDED, 100, 0);
    die(keeper, ENDED, 100, 0);
    check_int((long long)keeper->ledger->refused, 0);
    die(keeper, ENDED, 100, 0);
    check_int((long long)keeper->ledger->refused, 100);
    end(keeper);
}

TAP_TEST(it_has_to_be_in_a_row)
{
    struct keeper *keeper = begin();

    for (int i = 0; i < 5; i++) {
        die(keeper, ENDED, 100, 0);
        die(keeper, ENDED, i % 2 ? 102 : 104, 0);
    }
    check_int((long long)keeper->ledger->refused, 0);
    end(keeper);
}

TAP_TEST(killed_before_they_served_counts_to_five_and_after_that_for_a_minute)
{
    struct keeper *keeper = begin();

    for (int i = 0; i < 20; i++)
        die(keeper, KILLED, 100, 0);
    check_int((long long)keeper->ledger->refused, 0);
    end(keeper);
    keeper = begin();
    keeper->restarts.unserved = 1;
    for (int i = 0; i < 5; i++) {
        check_int((long long)keeper->ledger->refused, 0);
        die(keeper, KILLED, 100, 0);
    }
    check_int((long long)keeper->ledger->refused, 100);
    end(keeper);
}

TAP_TEST(of_several_the_one_that_came_last_is_refused)
{
    struct keeper *keeper = begin();

    die(keeper, ENDED, 100, 0);
    die(keeper, ENDED, 100, 102);
    die(keeper, ENDED, 102, 100);
    check_int((long long)keeper->ledger->refused, 100); /* the other one was at two */
    die(keeper, ENDED, 100, 102);
    check_int((long long)keeper->ledger->refused, 102);
    end(keeper);
}

TAP_TEST(a_gms_client_that_works_on_is_let_go_after_ten)
{
    struct keeper *keeper = begin();

    for (uint64_t frame = 1; frame <= 10; frame++) {
        check_int((long long)keeper->ledger->refused, 0);
        die(keeper, ENDED, fs_at_connection(7, frame), 0);
    }
    check(fs_is_at_connection(keeper->ledger->refused, 7));
    check(!fs_is_at_connection(keeper->ledger->refused, 8));
    end(keeper);
}

TAP_TEST(requests_of_a_process_on_fds_are_refused_after_three)
{
    struct keeper *keeper = begin();
    uint64_t asker = fs_at_asker(1000, 4711, 11);

    for (int i = 0; i < 3; i++) {
        check(!refuses_asker(keeper, asker));
        die(keeper, ENDED, asker, 0);
    }
    check(refuses_asker(keeper, asker));
    check(!refuses_asker(keeper, fs_at_asker(1000, 4711, 1)));
    check(!refuses_asker(keeper, fs_at_asker(1000, 4712, 11)));
    check(!refuses_asker(keeper, fs_at_any_asker(1000)));
    check_int((long long)keeper->ledger->refused, 0);
    end(keeper);
}

/* More would end the mount (KEEPER_MAX_IN_ROW). */
TAP_TEST(a_user_whose_processes_ask_one_after_the_other_is_refused_after_ten)
{
    struct keeper *keeper = begin();

    for (uint32_t pid = 1; pid <= 10; pid++) {
        check(!refuses_asker(keeper, fs_at_any_asker(1000)));
        die(keeper, ENDED, fs_at_asker(1000, pid / 3, pid), 0);
    }
    check(refuses_asker(keeper, fs_at_any_asker(1000)));
    check(!refuses_asker(keeper, fs_at_any_asker(0)));
    end(keeper);
}

TAP_TEST(refusing_one_process_after_the_other_comes_to_the_same)
{
    struct keeper *keeper = begin();

    for (uint32_t i = 0; i < 10; i++)
        die(keeper, ENDED, fs_at_asker(1000, 1 + i / 3, 11), 0);
    check(refuses_asker(keeper, fs_at_asker(1000, 3, 11)));
    check(refuses_asker(keeper, fs_at_any_asker(1000)));
    end(keeper);
}

TAP_TEST(the_longest_refused_gives_its_place)
{
    struct keeper *keeper = begin();
    uint64_t last = 0;

    for (uint32_t user = 1; user <= FS_REFUSED_ASKERS + 3; user++)
        for (int i = 0; i < 3; i++)
            die(keeper, ENDED, last = fs_at_asker(user, 5, 1), 0);
    check(refuses_asker(keeper, last));
    end(keeper);
}
