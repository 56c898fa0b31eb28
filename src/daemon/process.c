/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/process.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

/* What is wanted of status stands in its first 400 bytes; stat has less than this in all. */
#define PROCESS_TEXT_BYTES 1024u
/* A field of stat, counted as in proc(5). */
#define STAT_START          22u
#define PROCESS_PIDFS_MAGIC 0x50494446

/* A decimal number with something behind it that ends it. */
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

/* The value behind "\nKEY:\t"; NULL: there is none. A newline in a name is written as \n. */
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
    const char *close = memrchr(text, ')', bytes); /* a name may hold any number of them */

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

/* Bytes read, terminated; or a negative errno. */
static ssize_t read_proc(uint64_t pid, const char *file, char text[PROCESS_TEXT_BYTES])
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%" PRIu64 "/%s", pid, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    ssize_t got = read(fd, text, PROCESS_TEXT_BYTES - 1);
    if (got < 0)
        got = -errno;
    else
        text[got] = '\0';
    close(fd);
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

int process_read_start(uint64_t pid, int pidfd, uint64_t *start)
{
    char text[PROCESS_TEXT_BYTES];
    struct statfs fs;
    struct stat stat;

    if (fstatfs(pidfd, &fs) == 0 && fs.f_type == PROCESS_PIDFS_MAGIC && fstat(pidfd, &stat) == 0) {
        *start = stat.st_ino;
        return 0;
    }
    ssize_t bytes = read_proc(pid, "stat", text);
    return bytes < 0 ? (int)bytes : process_parse_start(text, (size_t)bytes, start);
}

/* The process `pid`, and who its parent is. */
static int identify(uint64_t pid, struct core_process *process, struct process_status *status)
{
    int fd = -1;
    int error = process_open(pid, &fd);

    if (error)
        return error;
    process->pid = pid;
    error = process_read_start(pid, fd, &process->start);
    if (!error)
        error = read_status(pid, status);
    close(fd);
    return error;
}

void process_resolve(uint32_t tid, struct service_caller *caller)
{
    struct process_status status;
    size_t count = 0;

    caller->process_count = 0;
    memset(caller->comm, 0, sizeof caller->comm);
    if (tid == 0 || read_status(tid, &status))
        return;
    uint64_t pid = status.pid;
    /* The caller is blocked; its ancestors may die meanwhile, and their numbers pass to others. But
     * those are younger, and both kinds of `start` grow. */
    while (count < SERVICE_MAX_ANCESTORS && (pid > 1 || (count == 0 && pid == 1))) {
        struct core_process *process = &caller->processes[count];
        if (identify(pid, process, &status))
            break;
        if (count > 0 && process->start > caller->processes[count - 1].start)
            break;
        if (count++ == 0)
            memcpy(caller->comm, status.comm, sizeof caller->comm);
        pid = status.parent;
    }
    caller->process_count = count;
}
