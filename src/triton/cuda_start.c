/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/cuda_start.h"

#include "base/child.h"
#include "cuda/driver.h"
#include "triton/cuda_message.h"
#include "triton/groups.h"
#include "triton/triton.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MAX_VARIABLES   64u
#define PROBE_MS        5000
#define SELF_EXECUTABLE "/proc/self/exe"

extern char **environ;

struct user {
    uint32_t uid;
    struct groups groups;
    bool is_own;
    char *chosen[MAX_VARIABLES + 1];
};

/* Chooses the variables that the driver and tests need: the other user may read the process's
 * environment. */
static void choose_environment(struct user *user)
{
    static const char *const passed[] = {"LD_LIBRARY_PATH=", "CUDA_",         "NVIDIA_",
                                         "GMSFS_",           "ASAN_OPTIONS=", "UBSAN_OPTIONS="};
    size_t count = 0;

    for (char **variable = environ; *variable && count < MAX_VARIABLES; variable++) {
        bool is_passed = false;
        for (size_t i = 0; !is_passed && i < sizeof passed / sizeof *passed; i++)
            is_passed = strncmp(*variable, passed[i], strlen(passed[i])) == 0;
        if (is_passed)
            user->chosen[count++] = *variable;
    }
    user->chosen[count] = NULL;
}

/* 0 or a negative errno */
static int describe(uint32_t uid, struct user *user)
{
    *user = (struct user){.uid = uid, .is_own = uid == geteuid()};
    choose_environment(user);
    int error = user->is_own ? 0 : groups_find(uid, &user->groups);
    if (error == -ENOENT) /* a number without a name */
        user->groups.gid = uid;
    return error == -ENOENT ? 0 : error;
}

/* Runs in the child: drops all descriptors, the terminal and our rights. */
static bool become(const struct user *user)
{
    int nothing = open("/dev/null", O_RDWR);

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if ((fd < STDERR_FILENO || !user->is_own) && dup2(nothing, fd) < 0)
            return false;
    }
    setsid();
    if (user->is_own)
        return true;
    gid_t gid = user->groups.gid;
    return setgroups(user->groups.count, user->groups.list) == 0 && setresgid(gid, gid, gid) == 0 &&
           setresuid(user->uid, user->uid, user->uid) == 0;
}

static void run(struct user *user, int socket)
{
    char program[] = "gmsfs", command[] = TRITON_CUDA_COMMAND;
    char *argv[] = {program, command, NULL};
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (socket != CUDA_HELPER_FD && dup2(socket, CUDA_HELPER_FD) < 0)
        _exit(1);
    fcntl(CUDA_HELPER_FD, F_SETFD, 0);
    syscall(SYS_close_range, CUDA_HELPER_FD + 1, ~0u,
            0); /* in an old kernel this fails, but all close on exec */
    if (become(user) && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0)
        execve(SELF_EXECUTABLE, argv, user->is_own ? environ : user->chosen);
    _exit(1);
}

int cuda_start(uint32_t uid, pid_t *pid, int *socket)
{
    struct user user;
    int pair[2], error = describe(uid, &user);

    if (!error && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        error = -errno;
    if (error) {
        groups_free(&user.groups);
        return error;
    }
    *pid = fork();
    if (*pid == 0)
        run(&user, pair[1]);
    error = *pid < 0 ? -errno : fcntl(pair[0], F_SETFL, O_NONBLOCK) < 0 ? -errno : 0;
    groups_free(&user.groups);
    close(pair[1]);
    if (error)
        close(pair[0]); /* which ends the child */
    else
        *socket = pair[0];
    return error;
}

static void look(const void *context, int to)
{
    const struct drv *driver;
    int count = 0;

    (void)context;
    if (drv_open(&driver, NULL, 0) == 0 && driver->cuDeviceGetCount(&count) == DRV_SUCCESS &&
        count > 0 && write(to, "1", 1) < 0)
        _exit(1);
    _exit(0);
}

bool cuda_is_there(void)
{
    struct child *child;
    int from;
    char said;

    if (child_start(&child, look, NULL, &from) != 0)
        return false;
    struct pollfd polled = {.fd = from, .events = POLLIN};
    bool is_there = poll(&polled, 1, PROBE_MS) == 1 && read(from, &said, 1) == 1;
    close(from);
    child_end(child);
    return is_there;
}
