/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that a lifeline hangs up when its process is killed, even if others share its
 * descriptors. */
#include "daemon/lifeline.h"

#include "tap.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int channel[2];

static void pass(pid_t sharer, int fd)
{
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&sharer, sizeof sharer};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);

    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    if (sendmsg(channel[1], &message, 0) < 0)
        _exit(2);
    close(fd);
}

static int receive(pid_t *sharer)
{
    int fd = -1;
    char control[CMSG_SPACE(sizeof fd)];
    struct iovec part = {sharer, sizeof *sharer};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};

    if (recvmsg(channel[0], &message, 0) > 0 && CMSG_FIRSTHDR(&message))
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

/* A process that has the descriptors of this one, and outlives it. */
static pid_t share_descriptors(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_FILES | SIGCHLD, NULL, NULL, NULL, NULL);

    while (pid == 0)
        pause();
    return pid;
}

static _Noreturn void live(bool shares)
{
    int fd = lifeline_start();

    if (fd < 0)
        _exit(1);
    pass(shares ? share_descriptors() : 0, fd);
    for (;;)
        pause();
}

static bool hangs_up(int fd, int timeout_ms)
{
    struct pollfd end = {.fd = fd, .events = POLLIN};

    return poll(&end, 1, timeout_ms) == 1 && end.revents & POLLHUP;
}

static void check_lifeline(bool shares)
{
    pid_t sharer = 0;

    require(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channel) == 0);
    pid_t child = fork();
    if (child == 0)
        live(shares);
    int fd = receive(&sharer);
    require(fd >= 0);
    check(!hangs_up(fd, 0));
    kill(child, SIGKILL);
    check(hangs_up(fd, -1));
    check_int(waitpid(child, NULL, 0), child);
    if (sharer > 0) {
        kill(sharer, SIGKILL);
        check_int(waitpid(sharer, NULL, 0), sharer);
    }
    close(fd);
    close(channel[0]);
    close(channel[1]);
}

TAP_TEST(it_hangs_up_when_its_process_is_killed)
{
    check_lifeline(false);
}

TAP_TEST(it_hangs_up_though_another_process_has_the_same_descriptors)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    check_lifeline(true);
}
