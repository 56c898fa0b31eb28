/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run.h"

#include "cli/cli.h"
#include "cli/output.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <jansson.h>

#define CANNOT_RUN 126
#define NOT_FOUND  127

static void run_get_signals(sigset_t *set)
{
    static const int numbers[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,
                                  SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD};

    sigemptyset(set);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaddset(set, numbers[i]);
}

static void run_exec(char **command, const sigset_t *mask)
{
    sigprocmask(SIG_SETMASK, mask, NULL);
    output_restore_signals();
    execvp(command[0], command);
    int error = errno;
    cli_error("cannot run '%s': %s", command[0], strerror(error));
    _exit(error == ENOENT ? NOT_FOUND : CANNOT_RUN);
}

static int run_status(int status)
{
    return WIFSIGNALED(status) ? CLI_SIGNALED + WTERMSIG(status) : WEXITSTATUS(status);
}

/* True for a signal of the terminal, which the command gets too, as it is in the same process
 * group. */
static bool run_is_from_terminal(const siginfo_t *info)
{
    return info->si_code == SI_KERNEL && (info->si_signo == SIGINT || info->si_signo == SIGQUIT);
}

static int run_wait_for(pid_t child, const sigset_t *signals)
{
    siginfo_t info;
    int status;

    for (;;) {
        if (waitpid(child, &status, WNOHANG) == child)
            return run_status(status);
        if (sigwaitinfo(signals, &info) < 0)
            continue;
        if (info.si_signo != SIGCHLD && !run_is_from_terminal(&info))
            kill(child, info.si_signo);
    }
}

int run_command(char **command)
{
    sigset_t signals, before;

    fflush(stdout);
    fflush(stderr);
    signal(SIGCHLD, SIG_DFL); /* ignored, it would lose us the exit status */
    run_get_signals(&signals);
    sigprocmask(SIG_BLOCK, &signals, &before);
    pid_t child = fork();
    if (child == 0)
        run_exec(command, &before);
    if (child < 0) {
        cli_error("cannot run '%s': %s", command[0], strerror(errno));
        return CANNOT_RUN;
    }
    return run_wait_for(child, &signals);
}

/* ---- texts --------------------------------------------------------------------------------- */

bool run_lists_session(const char *sessions, uint64_t session)
{
    unsigned long long id;
    char mode[8], status[16];

    while (*sessions) {
        if (sscanf(sessions, "%llu %7s %15s", &id, mode, status) == 3 && id == session &&
            strcmp(status, "held") == 0)
            return true;
        sessions += strcspn(sessions, "\n");
        sessions += *sessions == '\n';
    }
    return false;
}

static bool run_is_commit(const char *line, size_t length, uint64_t session)
{
    json_auto_t *event = json_loadb(line, length, 0, NULL);
    const char *name = json_string_value(json_object_get(event, "event"));
    json_int_t id = json_integer_value(json_object_get(event, "session"));

    return name && (strcmp(name, "committed") == 0 || strcmp(name, "layout_committed") == 0) &&
           id > 0 && (uint64_t)id == session;
}

bool run_has_commit(const char *events, uint64_t session)
{
    while (*events) {
        size_t length = strcspn(events, "\n");
        if (run_is_commit(events, length, session))
            return true;
        events += length;
        events += *events == '\n';
    }
    return false;
}
