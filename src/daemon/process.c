/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/process.h"

#include "base/file_io.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* The fields of status that are read stand in its first 400 bytes; stat is shorter than this. */
#define PROCESS_TEXT_BYTES 1024u
/* The number of a field of stat, counted as in proc(5). */
#define STAT_START          22u
#define PROCESS_PIDFS_MAGIC 0x50494446

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; older headers do not have it */
#endif

/* Parses a decimal number that a terminator follows. */
static int parse_number(const char *text, uint64_t *value)
{
    uint64_t number = 0;

    if (!isdigit((unsigned char)*text))
        return -EINVAL;
    for (; isdigit((unsigned char)*text); text++) {
        if (number > (UINT64_MAX - 9) / 10)
            return -EINVAL;
        number = number * 10 + (uint64_t)(*text - '0');
    }
    if (*text != '\0' && !isspace((unsigned char)*text))
        return -EINVAL;
    *value = number;
    return 0;
}

/* Returns the value after "\nKEY:\t"; NULL if there is none. A newline in a name is written as
 * \n. */
static const char *find_field(const char *text, size_t bytes, const char *key)
{
    const char *at = memmem(text, bytes, key, strlen(key));

    return at ? at + strlen(key) : NULL;
}

/* "Name:" has escapes for newline and backslash only. */
static void parse_name(const char *at, char comm[CORE_COMM_BYTES])
{
    size_t bytes = 0;

    memset(comm, 0, CORE_COMM_BYTES);
    for (; *at != '\n' && *at != '\0' && bytes < CORE_COMM_BYTES - 1; at++) {
        if (at[0] == '\\' && (at[1] == 'n' || at[1] == '\\'))
            comm[bytes++] = *++at == 'n' ? '\n' : '\\';
        else
            comm[bytes++] = *at;
    }
}

int process_parse_status(const char *text, size_t bytes, struct process_status *status)
{
    const char *tgid = find_field(text, bytes, "\nTgid:\t");
    const char *parent = find_field(text, bytes, "\nPPid:\t");

    if (bytes < 6 || memcmp(text, "Name:\t", 6) != 0 || !tgid || !parent ||
        parse_number(tgid, &status->pid) || parse_number(parent, &status->parent) ||
        status->pid == 0)
        return -EINVAL;
    parse_name(text + 6, status->comm);
    return 0;
}

int process_parse_start(const char *text, size_t bytes, uint64_t *start)
{
    const char *close = memrchr(text, ')', bytes); /* a name may contain any number of these */

    if (!close || close[1] != ' ')
        return -EINVAL;
    const char *at = close + 2; /* field 3 */
    for (unsigned field = 3; field < STAT_START; field++) {
        at = strchr(at, ' ');
        if (!at)
            return -EINVAL;
        at++;
    }
    return parse_number(at, start);
}

/* Returns the number of bytes read, terminated by NUL; or a negative errno. */
static ssize_t read_proc(uint64_t pid, const char *file, char text[PROCESS_TEXT_BYTES])
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%" PRIu64 "/%s", pid, file);
    SCOPED_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    ssize_t got = read(fd, text, PROCESS_TEXT_BYTES - 1);
    if (got < 0)
        got = -errno;
    else
        text[got] = '\0';
    return got;
}

static int read_status(uint64_t tid, struct process_status *status)
{
    char text[PROCESS_TEXT_BYTES];
    ssize_t bytes = read_proc(tid, "status", text);

    if (bytes < 0)
        return (int)bytes;
    return process_parse_status(text, (size_t)bytes, status);
}

int process_open(uint64_t pid, int *pidfd)
{
    if (pid == 0 || pid > INT_MAX)
        return -ESRCH;
    int fd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (fd < 0)
        return -errno;
    *pidfd = fd;
    return 0;
}

/* Asks the kernel once: the answer never changes. */
static int has_pidfs(int pidfd, bool *has)
{
    static int known; /* 1 if it has, -1 if not */
    struct statfs fs;

    if (!known) {
        if (fstatfs(pidfd, &fs) != 0)
            return -errno;
        known = fs.f_type == PROCESS_PIDFS_MAGIC ? 1 : -1;
    }
    *has = known > 0;
    return 0;
}

int process_read_start(uint64_t pid, int pidfd, uint64_t *start)
{
    char text[PROCESS_TEXT_BYTES];
    struct stat stat;

    bool has = false;
    int error = has_pidfs(pidfd, &has);

    if (error)
        return error;
    if (has) { /* if this fails, the other source is no replacement: its numbers differ */
        if (fstat(pidfd, &stat) != 0)
            return -errno;
        *start = stat.st_ino;
        return 0;
    }
    ssize_t bytes = read_proc(pid, "stat", text);
    return bytes < 0 ? (int)bytes : process_parse_start(text, (size_t)bytes, start);
}

/* struct pidfd_info of linux/pidfd.h as Linux 6.13 has it; older headers do not. */
struct process_info {
    uint64_t mask, cgroup;
    uint32_t pid, tgid, ppid;
    uint32_t ids[8];
    int32_t exit_code;
};

_Static_assert(sizeof(struct process_info) == 64, "PIDFD_INFO_SIZE_VER0");

#define PROCESS_GET_INFO _IOWR(0xff, 11, struct process_info)
#define PROCESS_INFO_PID 1u

/* Reads pid and parent through a pidfd of the process. -ENOTTY: this kernel cannot. */
static int read_info(int pidfd, struct process_status *status)
{
    struct process_info info = {.mask = PROCESS_INFO_PID};

    if (ioctl(pidfd, PROCESS_GET_INFO, &info) != 0)
        return -errno;
    if (!(info.mask & PROCESS_INFO_PID) || info.tgid == 0)
        return -ENOTTY;
    status->pid = info.tgid;
    status->parent = info.ppid;
    return 0;
}

/* Identifies the process `pid` and its parent. -ENOENT or -EINVAL: `pid` is a thread of another. */
static int identify(uint64_t pid, struct core_process *process, struct process_status *status)
{
    int fd = -1;
    int error = process_open(pid, &fd);

    if (error)
        return error;
    process->pid = pid;
    error = process_read_start(pid, fd, &process->start);
    if (!error && read_info(fd, status))
        error = read_status(pid, status);
    close(fd);
    return error;
}

/* Identifies the process of the thread `tid`; mostly `tid` is its number. */
static int identify_caller(uint32_t tid, struct core_process *process,
                           struct process_status *status)
{
    int error = identify(tid, process, status);

    if (error != -EINVAL && error != -ENOENT)
        return error;
    error = read_status(tid, status);
    return error ? error : identify(status->pid, process, status);
}

static void copy_comm(const char *text, ssize_t bytes, char comm[CORE_COMM_BYTES])
{
    if (bytes <= 0)
        return;
    bytes -= text[bytes - 1] == '\n';
    memcpy(comm, text, bytes < (ssize_t)CORE_COMM_BYTES ? (size_t)bytes : CORE_COMM_BYTES - 1);
}

/* The last caller, because it usually asks again. Its name may change, and is read each time
 * through a descriptor of this very process: after it was reaped the read fails (ESRCH), so a read
 * that succeeds proves that no other process has the number. Its parent is read only if the caller
 * wants it. */
static struct {
    uint32_t tid; /* 0 if none */
    int pidfd, comm_fd;
    struct core_process process;
} last_caller;

static bool recall_caller(uint32_t tid, bool wants_parent, struct service_caller *caller,
                          struct process_status *status)
{
    char text[PROCESS_TEXT_BYTES];

    *status = (struct process_status){.pid = tid};
    if (last_caller.tid != tid ||
        (wants_parent && (read_info(last_caller.pidfd, status) || status->pid != tid)))
        return false;
    ssize_t bytes = pread(last_caller.comm_fd, text, sizeof text, 0);
    if (bytes <= 0)
        return false;
    copy_comm(text, bytes, caller->comm);
    caller->processes[0] = last_caller.process;
    return true;
}

static void remember_caller(uint32_t tid, const struct service_caller *caller)
{
    struct process_status status;
    char path[64];

    if (last_caller.tid) {
        close(last_caller.pidfd);
        close(last_caller.comm_fd);
        last_caller.tid = 0;
    }
    if (caller->processes[0].pid != tid || process_open(tid, &last_caller.pidfd))
        return;
    snprintf(path, sizeof path, "/proc/%" PRIu32 "/comm", tid);
    last_caller.comm_fd = open(path, O_RDONLY | O_CLOEXEC);
    if (last_caller.comm_fd < 0 || read_info(last_caller.pidfd, &status)) {
        file_close_fd(&last_caller.comm_fd);
        close(last_caller.pidfd);
        return;
    }
    last_caller.process = caller->processes[0];
    last_caller.tid = tid;
}

/* Returns true if the process may exist and the means to look at it are missing. */
static bool is_shortage(int error)
{
    return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

static int find_caller(uint32_t tid, bool wants_parent, struct service_caller *caller,
                       struct process_status *status)
{
    char text[PROCESS_TEXT_BYTES];
    static uint32_t before; /* a caller is remembered at its second request */

    if (recall_caller(tid, wants_parent, caller, status))
        return 0;
    int error = identify_caller(tid, &caller->processes[0], status);
    if (error)
        return error;
    copy_comm(text, read_proc(status->pid, "comm", text), caller->comm);
    if (before == tid)
        remember_caller(tid, caller);
    before = tid;
    return 0;
}

static void forget_caller(struct service_caller *caller)
{
    caller->process_count = 0;
    memset(caller->comm, 0, sizeof caller->comm);
}

int process_resolve(uint32_t tid, size_t max, struct service_caller *caller)
{
    struct process_status status;
    size_t count = 0;

    forget_caller(caller);
    if (tid == 0 || max == 0)
        return 0;
    int error = find_caller(tid, max > 1, caller, &status);
    if (error)
        return is_shortage(error) ? error : 0;
    if (max > SERVICE_MAX_ANCESTORS)
        max = SERVICE_MAX_ANCESTORS;
    /* The caller is blocked; its ancestors may end meanwhile, and their numbers pass to other
     * processes. But those are younger, and both kinds of `start` grow. */
    for (count = 1; count < max && status.parent > 1; count++) {
        struct core_process *process = &caller->processes[count];
        error = identify(status.parent, process, &status);
        if (is_shortage(error))
            return error;
        if (error || process->start > caller->processes[count - 1].start)
            break;
    }
    caller->process_count = count;
    return 0;
}

/* Opens the peer's pidfd; -1 if it has ended or (*knows false) this kernel gives none. */
static int open_peer(int connection, int *pidfd, bool *knows)
{
    socklen_t size = sizeof *pidfd;

    *knows = true;
    if (getsockopt(connection, SOL_SOCKET, SO_PEERPIDFD, pidfd, &size) == 0)
        return 0;
    *pidfd = -1;
    *knows = errno != ENOPROTOOPT;
    return is_shortage(-errno) ? -errno : 0;
}

/* While it is not reaped, no other process has its number. */
static bool is_there(int pidfd)
{
    return syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0) == 0 || errno != ESRCH;
}

int process_resolve_peer(int connection, size_t max, struct service_caller *caller)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    SCOPED_CLOSE int pidfd = -1;
    bool knows;

    forget_caller(caller);
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return -errno;
    int error = open_peer(connection, &pidfd, &knows);
    if (error || peer.pid <= 0)
        return error;
    error = process_resolve((uint32_t)peer.pid, max, caller);
    /* It still exists: it had the number during the search. */
    if (knows && (pidfd < 0 || !is_there(pidfd)))
        forget_caller(caller);
    if (caller->process_count > 0 && caller->processes[0].pid != (uint64_t)peer.pid)
        forget_caller(caller); /* a thread has the number */
    return error;
}

bool process_has_exited(int pidfd)
{
    struct pollfd exit = {.fd = pidfd, .events = POLLIN};

    return poll(&exit, 1, 0) > 0;
}

bool process_peer_has_exited(int connection)
{
    SCOPED_CLOSE int pidfd = -1;
    bool knows;

    /* The kernel gives no pidfd of a process that has gone. */
    return !open_peer(connection, &pidfd, &knows) && knows &&
           (pidfd < 0 || process_has_exited(pidfd));
}
