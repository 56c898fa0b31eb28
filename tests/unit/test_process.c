/* SPDX-License-Identifier: Apache-2.0 */
/* Tests the daemon's reading of /proc: processes, the mount table, the kernel's bounds. */
#include "daemon/mountinfo.h"
#include "daemon/process.h"
#include "daemon/timeouts.h"
#include "tap.h"

#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int parse_status(const char *text, struct process_status *status)
{
    return process_parse_status(text, strlen(text), status);
}

static int parse_start(const char *text, uint64_t *start)
{
    return process_parse_start(text, strlen(text), start);
}

#define STAT_REST " S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 123456 23 24\n"

TAP_TEST(status_tells_process_parent_and_name)
{
    struct process_status status;

    check_int(parse_status("Name:\tpython3\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t4711\n"
                           "Ngid:\t0\nPid:\t4712\nPPid:\t1\n",
                           &status),
              0);
    check_int(status.pid, 4711);
    check_int(status.parent, 1);
    check_str(status.comm, "python3");
}

TAP_TEST(a_name_cannot_forge_the_fields_of_status)
{
    struct process_status status;

    /* The kernel writes a newline in a name as \n. */
    check_int(parse_status("Name:\ta\\nTgid:\t1\\\\\nTgid:\t9\nPPid:\t8\n", &status), 0);
    check_int(status.pid, 9);
    check_int(status.parent, 8);
    check_str(status.comm, "a\nTgid:\t1\\");
    check_int(parse_status("Name:\t0123456789abcdefXYZ\nTgid:\t9\nPPid:\t8\n", &status), 0);
    check_str(status.comm, "0123456789abcde");
}

TAP_TEST(malformed_status_is_refused)
{
    struct process_status status;

    check_int(parse_status("", &status), -EINVAL);
    check_int(parse_status("Name:\tx\n", &status), -EINVAL);
    check_int(parse_status("Name:\tx\nTgid:\t5\n", &status), -EINVAL);
    check_int(parse_status("Name:\tx\nTgid:\t0\nPPid:\t1\n", &status), -EINVAL);
    check_int(parse_status("Name:\tx\nTgid:\t-5\nPPid:\t1\n", &status), -EINVAL);
    check_int(parse_status("Name:\tx\nTgid:\t5x\nPPid:\t1\n", &status), -EINVAL);
    check_int(parse_status("Name:\tx\nTgid:\t99999999999999999999999\nPPid:\t1\n", &status),
              -EINVAL);
}

TAP_TEST(start_stands_behind_the_last_parenthesis)
{
    uint64_t start = 0;

    check_int(parse_start("1 (sh)" STAT_REST, &start), 0);
    check_int(start, 123456);
    start = 0;
    check_int(parse_start("1 (a) S 1 2 3 (b ) (("
                          ")" STAT_REST,
                          &start),
              0);
    check_int(start, 123456);
    check_int(parse_start("1 ()" STAT_REST, &start), 0);
    check_int(parse_start("1 (sh) S 4 5\n", &start), -EINVAL);
    check_int(parse_start("1 sh S 4 5\n", &start), -EINVAL);
    check_int(parse_start("1 (sh)", &start), -EINVAL);
    check_int(parse_start("", &start), -EINVAL);
}

TAP_TEST(this_process_and_its_ancestors_are_found)
{
    struct service_caller caller = {.uid = 5};

    process_resolve((uint32_t)getpid(), SERVICE_MAX_ANCESTORS, &caller);
    check(caller.process_count >= 1);
    check_int(caller.processes[0].pid, getpid());
    if (caller.process_count > 1)
        check_int(caller.processes[1].pid, getppid());
    for (size_t i = 1; i < caller.process_count; i++)
        check(caller.processes[i].pid > 1 &&
              caller.processes[i].start <= caller.processes[i - 1].start);
    check(strncmp(caller.comm, "test_process", 12) == 0);
    check_int(caller.uid, 5);
}

/* A connection made by a child, which has ended and is reaped unless it stays; *child is its
 * pid. */
static int connect_from_child(bool stays, pid_t *child)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof address;
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    require(bind(listener, (struct sockaddr *)&address, sizeof address.sun_family) == 0);
    require(listen(listener, 1) == 0);
    require(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
    *child = fork();
    require(*child >= 0);
    if (*child == 0) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, size) != 0)
            _exit(1);
        if (stays)
            pause();
        _exit(0);
    }
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    require(fd >= 0);
    close(listener);
    if (!stays)
        waitpid(*child, NULL, 0);
    return fd;
}

TAP_TEST(a_peer_is_found_by_its_connection)
{
    struct service_caller caller = {.uid = 5};
    pid_t child;
    auto_fd fd = connect_from_child(true, &child);

    check_int(process_resolve_peer(fd, SERVICE_MAX_ANCESTORS, &caller), 0);
    check(caller.process_count >= 2);
    check_int(caller.processes[0].pid, child);
    check_int(caller.processes[1].pid, getpid());
    check(strncmp(caller.comm, "test_process", 12) == 0);
    check_int(caller.uid, 5);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    check_int(process_resolve_peer(fd, 1, &caller), 0);
    check_int(caller.process_count, 0);
    check_str(caller.comm, "");
}

/* Starts a waiting process with this pid; -1 if pids cannot be chosen. */
static pid_t fork_as(pid_t number)
{
    struct clone_args args = {
        .exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&number, .set_tid_size = 1};
    pid_t child = (pid_t)syscall(SYS_clone3, &args, sizeof args);

    if (child == 0) {
        pause();
        _exit(0);
    }
    return child;
}

TAP_TEST(a_peer_that_is_gone_is_not_found_even_if_its_number_is_used_again)
{
    struct service_caller caller = {.process_count = 7, .comm = "before"};
    pid_t child, other;
    auto_fd fd = connect_from_child(false, &child);

    check_int(process_resolve_peer(fd, 1, &caller), 0);
    check_int(caller.process_count, 0);
    check_str(caller.comm, "");
    other = fork_as(child);
    if (other < 0) {
        fprintf(stderr, "# the number of a process cannot be chosen here: %s\n", strerror(errno));
    } else {
        check_int(other, child);
        check_int(process_resolve((uint32_t)other, 1, &caller), 0);
        check_int(caller.process_count, 1);
        check_int(process_resolve_peer(fd, 1, &caller), 0);
        check_int(caller.process_count, 0);
        check_str(caller.comm, "");
        kill(other, SIGKILL);
        waitpid(other, NULL, 0);
    }
}

static void *resolve_thread(void *argument)
{
    process_resolve((uint32_t)syscall(SYS_gettid), SERVICE_MAX_ANCESTORS, argument);
    return NULL;
}

TAP_TEST(a_thread_is_its_process)
{
    struct service_caller caller = {.uid = 0};
    pthread_t thread;

    require(pthread_create(&thread, NULL, resolve_thread, &caller) == 0);
    pthread_join(thread, NULL);
    require(caller.process_count >= 1);
    check_int(caller.processes[0].pid, getpid());
}

TAP_TEST(a_missing_process_is_not_found)
{
    struct service_caller caller = {.process_count = 3};
    int fd = -1;
    pid_t child = fork();

    if (child == 0)
        _exit(0);
    require(child > 0);
    waitpid(child, NULL, 0);
    process_resolve((uint32_t)child, SERVICE_MAX_ANCESTORS, &caller);
    check_int(caller.process_count, 0);
    process_resolve(0, SERVICE_MAX_ANCESTORS, &caller);
    check_int(caller.process_count, 0);
    check_int(process_open(0, &fd), -ESRCH);
    check_int(process_open(UINT64_MAX, &fd), -ESRCH);
    check_int(process_open((uint64_t)child, &fd), -ESRCH);
}

TAP_TEST(two_processes_have_different_starts)
{
    struct service_caller caller, again;
    pid_t child = fork();

    if (child == 0) {
        pause();
        _exit(0);
    }
    require(child > 0);
    process_resolve((uint32_t)child, SERVICE_MAX_ANCESTORS, &caller);
    process_resolve((uint32_t)child, SERVICE_MAX_ANCESTORS, &again);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    require(caller.process_count >= 2 && again.process_count >= 2);
    check_int(caller.processes[0].pid, child);
    check_int(caller.processes[0].start, again.processes[0].start);
    check_int(caller.processes[1].pid, getpid());
    check(caller.processes[0].start >= caller.processes[1].start);
}

TAP_TEST(lines_of_mountinfo)
{
    struct mountinfo mount;

    check_int(mountinfo_parse_line("41 27 0:45 / /mnt/a\\040b\\134c rw,nosuid shared:7 master:1 - "
                                   "fuse.gmsfs gmsfs(host) rw,user_id=1000,group_id=100\n",
                                   &mount),
              0);
    check_int(mount.uid, 1000);
    check_int(mount.gid, 100);
    check_int(mount.id, 41);
    check_int(mount.major, 0);
    check_int(mount.minor, 45);
    check_str(mount.path, "/mnt/a b\\c");
    check_str(mount.type, "fuse.gmsfs");
    check_int(mountinfo_parse_line("41 27 0:45 / /mnt rw - tmpfs t rw", &mount), 0);
    check_int(mount.uid, 0);
    check_int(mountinfo_parse_line("41 27 0:45 / /mnt rw shared:7", &mount), -EINVAL);
    check_int(mountinfo_parse_line("41 27", &mount), -EINVAL);
    check_int(mountinfo_parse_line("", &mount), -EINVAL);
    check_int(mountinfo_find_path("/proc", &mount), 0);
    check(mountinfo_has(&mount));
    mount.id = -1;
    check(!mountinfo_has(&mount));
    check_int(mountinfo_find_path("/no/such/mount", &mount), -ENOENT);
}

TAP_TEST(parking_stays_below_half_of_the_kernels_bound)
{
    check_int(timeouts_get_parking_ms(0, 0), UINT64_MAX);
    check_int(timeouts_get_parking_ms(60, 0), 29000);
    check_int(timeouts_get_parking_ms(0, 60), 29000);
    check_int(timeouts_get_parking_ms(600, 60), 29000);
    check_int(timeouts_get_parking_ms(30, 60), 14000);
    for (uint64_t bound_s = 1; bound_s < 100; bound_s++)
        check(timeouts_get_parking_ms(bound_s, 0) < bound_s * 500);
}
