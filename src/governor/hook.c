/* SPDX-License-Identifier: Apache-2.0 */
#include "governor/hook.h"

#include "base/child.h"
#include "base/clock.h"
#include "base/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_EVERY_MS 20 /* polling period if the kernel gives no pidfd */
#define SIGNALED      128
#define PIECE_BYTES   65536u
#define NOT_FOUND     127

/* ---- in the child --------------------------------------------------------------------------- */

static void run_shell(const void *context, int to)
{
    const struct hook *hook = context;
    int nothing = open("/dev/null", O_RDONLY);
    sigset_t none;

    setpgid(0, 0);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(to, STDOUT_FILENO) < 0 ||
        dup2(to, STDERR_FILENO) < 0)
        _exit(NOT_FOUND);
    close(nothing);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execl("/bin/sh", "sh", "-c", hook->command, (char *)NULL);
    dprintf(STDERR_FILENO, "/bin/sh: %s\n", strerror(errno));
    _exit(NOT_FOUND);
}

/* ---- start and end of a command -------------------------------------------------------------- */

static bool is_running(const struct hook *hook)
{
    return hook->child != NULL;
}

static void start(struct hook *hook)
{
    hook->error = child_start(&hook->child, run_shell, hook, &hook->from);
    if (hook->error) {
        hook->child = NULL;
        hook->from = -1;
        return;
    }
    fcntl(hook->from, F_SETFL, O_NONBLOCK);
}

static size_t get_room(const struct hook *hook)
{
    size_t most = hook->most_bytes ? hook->most_bytes : HOOK_OUTPUT_BYTES;

    return most - (hook->bytes < most ? hook->bytes : most);
}

/* Reads the available output, and drops the output beyond the room. */
static void gather(struct hook *hook)
{
    char piece[PIECE_BYTES], *grown;
    size_t taken;
    ssize_t got;

    while (hook->from >= 0 && (got = read(hook->from, piece, sizeof(piece))) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return;
        taken = (size_t)got < get_room(hook) ? (size_t)got : get_room(hook);
        grown = taken ? realloc(hook->output, hook->bytes + taken + 1) : NULL;
        if (!grown)
            continue;
        memcpy(grown + hook->bytes, piece, taken);
        hook->bytes += taken;
        grown[hook->bytes] = '\0';
        hook->output = grown;
    }
    if (hook->from >= 0)
        close(hook->from);
    hook->from = -1;
}

static void let_go(struct hook *hook)
{
    if (hook->from >= 0)
        close(hook->from);
    hook->from = -1;
    hook->child = NULL;
}

/* Returns true if it has ended; all its output is read then. */
static bool look(struct hook *hook)
{
    int status;

    gather(hook);
    if (!child_is_over(hook->child, &status))
        return false;
    gather(hook);
    hook->status = WIFSIGNALED(status) ? SIGNALED + WTERMSIG(status) : WEXITSTATUS(status);
    let_go(hook);
    return true;
}

static void give_up(struct hook *hook)
{
    if (look(hook))
        return;
    child_end_group(hook->child);
    hook->error = -ETIMEDOUT;
    let_go(hook);
}

/* ---- several commands ------------------------------------------------------------------------ */

/* Waits for output, or the end of a command before `end`. */
static void wait_for_news(const struct hook *hooks, size_t end, uint64_t left_ms)
{
    struct pollfd news[2 * HOOK_MAX_AT_ONCE];
    nfds_t count = 0;

    for (size_t i = 0; i < end; i++) {
        int pidfd = is_running(&hooks[i]) ? child_get_pidfd(hooks[i].child) : -1;

        if (!is_running(&hooks[i]))
            continue;
        news[count++] = (struct pollfd){.fd = hooks[i].from, .events = POLLIN};
        news[count++] = (struct pollfd){.fd = pidfd, .events = POLLIN};
        if (pidfd < 0 && left_ms > LOOK_EVERY_MS)
            left_ms = LOOK_EVERY_MS;
    }
    poll(news, count, left_ms > INT32_MAX ? INT32_MAX : (int)left_ms);
}

void hooks_run(struct hook *hooks, size_t count, uint64_t limit_ms)
{
    uint64_t begin_ms = clock_now_ms(), passed_ms = 0;
    size_t running = 0, begun = 0;

    for (size_t i = 0; i < count; i++)
        hooks[i] = (struct hook){
            .command = hooks[i].command, .most_bytes = hooks[i].most_bytes, .from = -1};
    while ((running > 0 || begun < count) && passed_ms < limit_ms) {
        for (; begun < count && running < HOOK_MAX_AT_ONCE; begun++) {
            start(&hooks[begun]);
            running += is_running(&hooks[begun]);
        }
        wait_for_news(hooks, begun, limit_ms - passed_ms);
        for (size_t i = 0; i < begun; i++)
            running -= is_running(&hooks[i]) && look(&hooks[i]);
        passed_ms = clock_now_ms() - begin_ms;
    }
    for (size_t i = 0; i < begun; i++)
        if (is_running(&hooks[i]))
            give_up(&hooks[i]);
    for (; begun < count; begun++)
        hooks[begun].error = -ETIMEDOUT;
}

void hooks_free(struct hook *hooks, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(hooks[i].output);
        hooks[i].output = NULL;
        hooks[i].bytes = 0;
    }
}

/* ---- results --------------------------------------------------------------------------------- */

/* Finds the last line that is not empty. */
static const char *find_last_line(const struct hook *hook, int *bytes)
{
    const char *begin = hook->output, *end = begin + hook->bytes, *at;

    while (end > begin && (end[-1] == '\n' || end[-1] == '\r' || end[-1] == ' '))
        end--;
    for (at = end; at > begin && at[-1] != '\n'; at--)
        ;
    *bytes = end - at > 1024 ? 1024 : (int)(end - at);
    return at;
}

int hook_check(const struct hook *hook, uint64_t limit_ms, struct failure *failure)
{
    int bytes = 0;
    const char *said = hook->output ? find_last_line(hook, &bytes) : "";
    const char *colon = bytes > 0 ? ": " : "";

    if (hook->error == -ETIMEDOUT)
        return failure_set(failure, -ETIMEDOUT, "did not end within %" PRIu64 " ms%s%.*s", limit_ms,
                           colon, bytes, said);
    if (hook->error)
        return failure_set(failure, hook->error, "cannot be started: %s", strerror(-hook->error));
    if (hook->status == 0)
        return 0;
    if (hook->status > SIGNALED)
        return failure_set(failure, -EIO, "was ended by signal %d%s%.*s", hook->status - SIGNALED,
                           colon, bytes, said);
    return failure_set(failure, -EIO, "failed with status %d%s%.*s", hook->status, colon, bytes,
                       said);
}
