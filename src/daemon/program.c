/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/program.h"

#include "base/child.h"
#include "base/clock.h"
#include "daemon/privileges.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ANSWER_BYTES 512u
#define ANSWER_MS    5000
#define DELETED      " (deleted)" /* the kernel appends this to the path of a replaced program */

int program_find(char *path, size_t room)
{
    ssize_t bytes = readlink("/proc/self/exe", path, room - 1);

    if (bytes < 0)
        return -errno;
    path[bytes] = '\0';
    size_t end = (size_t)bytes, word = sizeof DELETED - 1;
    if (end > word && strcmp(path + end - word, DELETED) == 0)
        path[end - word] = '\0';
    return 0;
}

int program_execute(int fd, char *const argv[])
{
    extern char **environ;

    syscall(SYS_execveat, fd, "", argv, environ, AT_EMPTY_PATH);
    return -errno;
}

struct question {
    int program_fd;
    const char *abi;
};

/* Runs in a child. */
static void ask(const void *context, int to)
{
    const struct question *question = context;
    char flag[sizeof PROGRAM_FOLLOW_FLAG + ABI_TEXT_BYTES];
    char *argv[] = {(char[]){"gmsfs"}, (char[]){"version"}, flag, NULL};
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    snprintf(flag, sizeof flag, PROGRAM_FOLLOW_FLAG "%s", question->abi);
    dup2(to, STDOUT_FILENO);
    privileges_become_worker(false);
    program_execute(question->program_fd, argv);
}

/* Reads the answer up to its end. Returns false if the program does not finish in time. */
static bool read_answer(int fd, char answer[ANSWER_BYTES])
{
    struct pollfd said = {.fd = fd, .events = POLLIN};
    uint64_t until_ms = clock_now_ms() + ANSWER_MS;
    size_t bytes = 0;

    for (;;) {
        uint64_t now_ms = clock_now_ms();
        int left_ms = now_ms < until_ms ? (int)(until_ms - now_ms) : 0;
        if (bytes == ANSWER_BYTES - 1 || poll(&said, 1, left_ms) <= 0)
            break;
        ssize_t got = read(fd, answer + bytes, ANSWER_BYTES - 1 - bytes);
        if (got <= 0) {
            answer[bytes] = '\0';
            answer[strcspn(answer, "\n")] = '\0';
            return got == 0;
        }
        bytes += (size_t)got;
    }
    return false;
}

static int converse(const struct question *question, char answer[ANSWER_BYTES])
{
    struct child *child = NULL;
    int fd, error = child_start(&child, ask, question, &fd);

    if (error)
        return error;
    if (!read_answer(fd, answer))
        error = -ETIMEDOUT;
    close(fd);
    child_end(child);
    return error;
}

int program_open(const char *path, const char *abi, int *fd, char own[ABI_TEXT_BYTES],
                 struct failure *failure)
{
    char answer[ANSWER_BYTES] = "";
    size_t word = strlen(PROGRAM_FOLLOWS);
    int program_fd = open(path, O_PATH | O_CLOEXEC);

    if (program_fd < 0)
        return failure_set(failure, -errno, "cannot open %s: %s", path, strerror(errno));
    int error = converse(&(struct question){program_fd, abi}, answer);
    if (error)
        failure_set(failure, error, "%s does not answer which mounts it can continue: %s", path,
                    strerror(-error));
    else if (strncmp(answer, PROGRAM_FOLLOWS, word) != 0 || strlen(answer + word) >= ABI_TEXT_BYTES)
        error = failure_set(failure, -EPROTONOSUPPORT, "%s cannot continue this mount: %s", path,
                            *answer ? answer : "it is not a gmsfs that can upgrade mounts");
    if (error) {
        close(program_fd);
        return error;
    }
    strcpy(own, answer + word);
    *fd = program_fd;
    return 0;
}
