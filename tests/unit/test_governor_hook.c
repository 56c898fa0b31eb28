/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the governor's commands: their output, and how they are ended. */
#include "governor/hook.h"

#include "base/failure.h"
#include "tap.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LONG_MS 20000u

static struct hook hook;
static struct failure failure;

static int run(const char *command, uint64_t limit_ms)
{
    hooks_free(&hook, 1);
    hook = (struct hook){.command = command};
    hooks_run(&hook, 1, limit_ms);
    memset(&failure, 0, sizeof failure);
    return hook_check(&hook, limit_ms, &failure);
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void check_no_children(void)
{
    check_int(waitpid(-1, NULL, WNOHANG), -1);
    check_int(errno, ECHILD);
}

TAP_AFTER_EACH(check_no_children)

TAP_TEST(both_outputs_of_a_command_are_kept)
{
    check_int(run("echo one; echo two >&2; cat", LONG_MS), 0);
    check_str(hook.output, "one\ntwo\n");
    check_int(hook.bytes, 8);
}

TAP_TEST(a_failure_is_reported_with_its_last_line)
{
    check_int(run("echo first; echo 'connection refused' >&2; exit 7", LONG_MS), -EIO);
    check_int(hook.status, 7);
    check_str(failure.text, "failed with status 7: connection refused");
    check_int(run("exit 3", LONG_MS), -EIO);
    check_str(failure.text, "failed with status 3");
    check_int(run("kill -TERM $$", LONG_MS), -EIO);
    check_str(failure.text, "was ended by signal 15");
}

TAP_TEST(a_late_command_is_killed_with_all_that_it_started)
{
    uint64_t begin_ms = now_ms();
    int ends[2];
    char byte;

    require(pipe(ends) == 0);
    check_int(run("sleep 600 & echo begun; sleep 600", 300), -ETIMEDOUT);
    check(now_ms() - begin_ms < 10000);
    check_str(failure.text, "did not end within 300 ms: begun");
    /* Both had the write end: it is closed when both are gone. */
    close(ends[1]);
    check_int(read(ends[0], &byte, 1), 0);
    close(ends[0]);
}

TAP_TEST(background_processes_go_on_and_are_not_waited_for)
{
    uint64_t begin_ms = now_ms();
    long pid;

    check_int(run("sleep 600 & echo $!", LONG_MS), 0);
    check(now_ms() - begin_ms < 10000);
    pid = strtol(hook.output, NULL, 10);
    require(pid > 1);
    check_int(kill((pid_t)pid, SIGKILL), 0);
}

TAP_TEST(many_run_side_by_side_within_one_time)
{
    static struct hook many[2 * HOOK_MAX_AT_ONCE];
    const size_t count = sizeof many / sizeof many[0];
    uint64_t begin_ms = now_ms();

    for (size_t i = 0; i < count; i++)
        many[i].command = i == 0 ? "sleep 600" : i == 1 ? "exit 5" : "echo hello";
    hooks_run(many, count, 3000);
    check(now_ms() - begin_ms < 10000);
    check_int(many[0].error, -ETIMEDOUT);
    check_int(many[1].status, 5);
    for (size_t i = 2; i < count; i++) {
        check_int(many[i].error, 0);
        check_str(many[i].output, "hello\n");
    }
    hooks_free(many, count);
}

TAP_TEST(a_command_without_a_turn_in_the_time_is_late_too)
{
    static struct hook many[HOOK_MAX_AT_ONCE + 1];

    for (size_t i = 0; i <= HOOK_MAX_AT_ONCE; i++)
        many[i].command = "sleep 600";
    hooks_run(many, HOOK_MAX_AT_ONCE + 1, 100);
    for (size_t i = 0; i <= HOOK_MAX_AT_ONCE; i++)
        check_int(many[i].error, -ETIMEDOUT);
    hooks_free(many, HOOK_MAX_AT_ONCE + 1);
}

TAP_TEST(output_is_bounded_and_a_command_with_more_is_not_delayed)
{
    hooks_free(&hook, 1);
    hook = (struct hook){.command = "head -c 300000 /dev/zero | tr '\\0' x; echo end >&2",
                         .most_bytes = 1000};
    hooks_run(&hook, 1, LONG_MS);
    check_int(hook.error, 0);
    check_int(hook.status, 0);
    check_int(hook.bytes, 1000);
    check_int(strlen(hook.output), 1000);
}

TAP_TEST(a_command_has_the_signals_of_any_program)
{
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    signal(SIGPIPE, SIG_IGN);
    check_int(run("kill -PIPE $$", LONG_MS), -EIO);
    check_str(failure.text, "was ended by signal 13");
    check_int(run("grep '^SigBlk' /proc/self/status", LONG_MS), 0);
    check_str(hook.output, "SigBlk:\t0000000000000000\n");
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    signal(SIGPIPE, SIG_DFL);
    hooks_free(&hook, 1);
}
