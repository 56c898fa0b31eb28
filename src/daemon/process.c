/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/process.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* `Tgid:` stands in the first 300 bytes of status, and a name in stat has 64 bytes at most. */
#define PROCESS_TEXT_BYTES 1024u
/* Fields of stat, counted as in proc(5). */
#define STAT_PARENT 4u
#define STAT_START  22u

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

int process_parse_stat(const char *text, size_t bytes, struct process_stat *stat)
{
    const char *open = memchr(text, '(', bytes);
    const char *close = memrchr(text, ')', bytes); /* a name may hold any number of them */

    if (!open || !close || close < open || close[1] != ' ')
        return -EINVAL;
    size_t comm_bytes = (size_t)(close - open - 1);
    if (comm_bytes >= sizeof stat->comm)
        comm_bytes = sizeof stat->comm - 1;
    memset(stat->comm, 0, sizeof stat->comm);
    memcpy(stat->comm, open + 1, comm_bytes);

    const char *at = close + 2; /* field 3 */
    for (unsigned field = 3; field < STAT_START; field++) {
        if (field == STAT_PARENT && parse_number(at, &stat->parent))
            return -EINVAL;
        at = strchr(at, ' ');
        if (!at)
            return -EINVAL;
        at++;
    }
    return parse_number(at, &stat->start);
}

int process_parse_tgid(const char *text, size_t bytes, uint64_t *tgid)
{
    static const char KEY[] = "\nTgid:\t"; /* a newline in the name is written as \n */
    const char *at = memmem(text, bytes, KEY, sizeof KEY - 1);

    if (!at || parse_number(at + sizeof KEY - 1, tgid) || *tgid == 0)
        return -EINVAL;
    return 0;
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

int process_read_stat(uint64_t pid, struct process_stat *stat)
{
    char text[PROCESS_TEXT_BYTES];
    ssize_t bytes = read_proc(pid, "stat", text);

    if (bytes < 0)
        return (int)bytes;
    return process_parse_stat(text, (size_t)bytes, stat);
}

static int read_tgid(uint32_t tid, uint64_t *tgid)
{
    char text[PROCESS_TEXT_BYTES];
    ssize_t bytes = read_proc(tid, "status", text);

    if (bytes < 0)
        return (int)bytes;
    return process_parse_tgid(text, (size_t)bytes, tgid);
}

void process_resolve(uint32_t tid, struct service_caller *caller)
{
    struct process_stat stat;
    uint64_t pid = 0;
    size_t count = 0;

    caller->process_count = 0;
    memset(caller->comm, 0, sizeof caller->comm);
    if (tid == 0 || read_tgid(tid, &pid))
        return;
    while (count < SERVICE_MAX_ANCESTORS && (pid > 1 || (count == 0 && pid == 1))) {
        if (process_read_stat(pid, &stat))
            break;
        /* A parent is older than its child; a younger one has got the number of a dead parent. */
        if (count > 0 && stat.start > caller->processes[count - 1].start)
            break;
        if (count == 0)
            memcpy(caller->comm, stat.comm, sizeof caller->comm);
        caller->processes[count++] = (struct core_process){.pid = pid, .start = stat.start};
        pid = stat.parent;
    }
    caller->process_count = count;
}
