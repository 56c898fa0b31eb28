/* SPDX-License-Identifier: Apache-2.0 */
/* Tests child processes for calls that may hang. */
#include "base/child.h"

#include "tap.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 50

static void say_hello(const void *context, int to)
{
    check_int(write(to, context, 5), 5);
}

static void hang(const void *context, int to)
{
    (void)context;
    check_int(write(to, "h", 1), 1);
    for (;;)
        pause();
}

static size_t read_all(int fd, char *text, size_t room)
{
    size_t used = 0;
    ssize_t got;

    while ((got = read(fd, text + used, room - 1 - used)) > 0)
        used += (size_t)got;
    text[used] = '\0';
    close(fd);
    return used;
}

/* Returns true if it is neither running nor a zombie. */
static void check_no_children(void)
{
    check_int(waitpid(-1, NULL, WNOHANG), -1);
    check_int(errno, ECHILD);
}

TAP_AFTER_EACH(check_no_children)

TAP_TEST(the_output_of_a_child_is_read_and_nothing_of_it_stays)
{
    struct child *child;
    char text[16];
    int fd;

    for (int i = 0; i < MANY; i++) {
        require(child_start(&child, say_hello, "hello", &fd) == 0);
        read_all(fd, text, sizeof text);
        check(strcmp(text, "hello") == 0);
        child_end(child);
        check_no_children();
    }
}

TAP_TEST(a_child_that_hangs_is_ended)
{
    struct child *child;
    char byte;
    auto_fd fd = -1;

    require(child_start(&child, hang, NULL, &fd) == 0);
    check_int(read(fd, &byte, 1), 1);
    child_end(child);
    check_int(read(fd, &byte, 1), 0);
}

TAP_TEST(a_child_is_waited_for_where_its_starter_was_told_to_ignore_children)
{
    struct child *child;
    char text[16];
    int fd;

    signal(SIGCHLD, SIG_IGN);
    require(child_start(&child, say_hello, "hello", &fd) == 0);
    check_int(read_all(fd, text, sizeof text), 5);
    child_end(child);
    check_no_children();
    signal(SIGCHLD, SIG_DFL);
}

TAP_TEST(several_children_live_side_by_side)
{
    struct child *children[MANY];
    int fds[MANY];
    char byte;

    for (int i = 0; i < MANY; i++)
        require(child_start(&children[i], i % 2 ? hang : say_hello, "hello", &fds[i]) == 0);
    for (int i = 0; i < MANY; i++) {
        check_int(read(fds[i], &byte, 1), 1);
        child_end(children[i]);
        close(fds[i]);
    }
}

/* ---- one that cannot be ended --------------------------------------------------------------- */

static int kills_nobody;

int kill(pid_t pid, int signal)
{
    return kills_nobody ? 0 : (int)syscall(SYS_kill, pid, signal);
}

static void say_pid_and_hang(const void *context, int to)
{
    pid_t self = getpid();

    (void)context;
    check_int(write(to, &self, sizeof self), sizeof self);
    for (;;)
        pause();
}

/* As if it hung in a file system that does not answer: it outlives its end. */
static pid_t leave_one_behind(void)
{
    struct child *child;
    pid_t pid = 0;
    int fd;

    require(child_start(&child, say_pid_and_hang, NULL, &fd) == 0);
    check_int(read(fd, &pid, sizeof pid), sizeof pid);
    close(fd);
    kills_nobody = 1;
    child_end(child);
    kills_nobody = 0;
    require(pid > 0);
    check(child_is_left_behind(pid));
    return pid;
}

TAP_TEST(a_child_that_cannot_be_ended_yet_is_waited_for_later)
{
    pid_t pid = leave_one_behind();

    check_int(kill(pid, SIGKILL), 0);
    while (child_is_left_behind(pid))
        usleep(1000);
}

TAP_TEST(a_child_left_behind_can_be_forgotten_and_is_not_waited_for)
{
    int next = dup(STDERR_FILENO), after;
    pid_t pid = leave_one_behind();

    close(next);
    child_forget_left();
    after = dup(STDERR_FILENO);
    check_int(after, next); /* no descriptor of it is open */
    close(after);
    check(!child_is_left_behind(pid));
    check_int(kill(pid, SIGKILL), 0);
    child_end(NULL);
    check_int(waitpid(pid, NULL, 0), pid);
}

TAP_TEST(no_child_is_no_child)
{
    child_end(NULL);
}
