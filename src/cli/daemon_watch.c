/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/daemon_watch.h"

#include "base/array.h"
#include "base/child.h"
#include "base/file_io.h"
#include "cli/cli.h"
#include "cli/daemon_ask.h"
#include "cli/mappers.h"
#include "cli/store_file.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define ASK_MS      2000
#define OPENS       5 /* workers that are asked, where one ends after the other */
#define MEMORY_NAME "/memfd:gmsfs (deleted)" /* as /proc shows it */
#define PATH_BYTES  64

/* ---- finding it ---------------------------------------------------------------------------- */

static void ask_in_child(const void *mount, int to)
{
    int worker = daemon_ask_pid(mount);
    ssize_t put = write(to, &worker, sizeof(worker));

    (void)put;
}

/* The pid of the process that serves, or a negative errno. */
static int ask_worker(const char *mount)
{
    int worker = 0, error = child_ask(ask_in_child, mount, ASK_MS, &worker);

    if (error)
        return error;
    return worker ? worker : -ESRCH;
}

/* From /proc/PID/status; "" and 0 where there is none. */
static void read_status(pid_t pid, char name[32], pid_t *parent)
{
    char path[PATH_BYTES], *text = NULL, *line;

    name[0] = '\0';
    *parent = 0;
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    if (store_read_text(path, &text) != 0)
        return;
    sscanf(text, "Name:\t%31[^\n]", name);
    line = strstr(text, "\nPPid:");
    if (line)
        *parent = (pid_t)strtol(line + strlen("\nPPid:"), NULL, 10);
    free(text);
}

/* Returns the worker's parent, if the worker's name begins with the parent's; else the worker, as
 * its keeper has died and another process has adopted it. */
static pid_t find_keeper(pid_t worker)
{
    char name[32], above[32];
    pid_t keeper, other;

    read_status(worker, name, &keeper);
    if (keeper <= 0)
        return worker;
    read_status(keeper, above, &other);
    return *above && strncmp(name, above, strlen(above)) == 0 ? keeper : worker;
}

/* ---- its memory ---------------------------------------------------------------------------- */

static int compare_inodes(const void *left, const void *right)
{
    ino_t a = *(const ino_t *)left, b = *(const ino_t *)right;

    return (a > b) - (a < b);
}

static void note_memory(struct daemon_watch *watch, int dir_fd, const char *name)
{
    char target[sizeof(MEMORY_NAME)];
    struct stat known;
    ssize_t length = readlinkat(dir_fd, name, target, sizeof(target));

    if (length != sizeof(MEMORY_NAME) - 1 || memcmp(target, MEMORY_NAME, (size_t)length) != 0 ||
        fstatat(dir_fd, name, &known, 0) < 0)
        return;
    if (ARRAY_RESERVE(watch->memory, watch->memory_room, watch->memory_count + 1) != 0)
        cli_out_of_memory();
    watch->memory[watch->memory_count++] = known.st_ino;
}

/* Finds the keeper's memory files; without permission finds none, which is no failure. */
static void find_memory(struct daemon_watch *watch)
{
    char path[PATH_BYTES];
    struct dirent *entry;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)watch->keeper);
    SCOPED_DIR DIR *dir = opendir(path);
    while (dir && (entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            note_memory(watch, dirfd(dir), entry->d_name);
    if (watch->memory_count)
        qsort(watch->memory, watch->memory_count, sizeof(*watch->memory), compare_inodes);
}

/* -ECHILD: the worker that was asked has ended, and another one may serve by now. */
static int open_once(struct daemon_watch *watch, const char *mount)
{
    int worker = ask_worker(mount);

    *watch = (struct daemon_watch){.pidfd = -1};
    if (worker < 0)
        return worker;
    watch->keeper = find_keeper(worker);
    watch->pidfd = (int)syscall(SYS_pidfd_open, watch->keeper, 0);
    if (watch->pidfd < 0)
        return errno == ESRCH ? -ECHILD : -errno;
    if (find_keeper(worker) != watch->keeper) { /* it ended just now: the number may be another's */
        daemon_watch_close(watch);
        return -ECHILD;
    }
    find_memory(watch);
    return 0;
}

int daemon_watch_open(struct daemon_watch *watch, const char *mount)
{
    int error;

    for (int i = 0; i < OPENS; i++) {
        error = open_once(watch, mount);
        if (error != -ECHILD)
            return error;
    }
    return -ESRCH;
}

void daemon_watch_close(struct daemon_watch *watch)
{
    if (watch->pidfd >= 0)
        close(watch->pidfd);
    free(watch->memory);
    *watch = (struct daemon_watch){.pidfd = -1};
}

/* ---- the end ------------------------------------------------------------------------------- */

int daemon_watch_end(const struct daemon_watch *watch, uint64_t timeout_ms)
{
    struct pollfd over = {.fd = watch->pidfd, .events = POLLIN};
    uint64_t start_ms = clock_now_ms(), left_ms;

    do {
        left_ms = cli_left_ms(start_ms, timeout_ms);
        if (poll(&over, 1, left_ms < INT_MAX ? (int)left_ms : INT_MAX) > 0)
            return 0;
    } while (left_ms > 0);
    return -ETIMEDOUT;
}

/* ---- processes that map its memory --------------------------------------------------------- */

/* Returns the bytes of the memory that a line of /proc/PID/maps maps. */
static uint64_t count_line(const void *context, const char *line)
{
    const struct daemon_watch *watch = context;
    uint64_t begin, end, inode;

    if (!strstr(line, MEMORY_NAME) ||
        sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %*s %*s %" SCNu64, &begin, &end, &inode) != 3)
        return 0;
    ino_t wanted = (ino_t)inode;
    return bsearch(&wanted, watch->memory, watch->memory_count, sizeof(wanted), compare_inodes)
               ? end - begin
               : 0;
}

static void add_client(void *context, pid_t pid, uint64_t bytes)
{
    struct daemon_watch_clients *clients = context;
    struct daemon_watch_client *added;
    pid_t parent;

    clients->list = cli_need(realloc(clients->list, (clients->count + 1) * sizeof(*added)));
    added = &clients->list[clients->count++];
    *added = (struct daemon_watch_client){.pid = pid, .bytes = bytes};
    read_status(pid, added->comm, &parent);
}

struct daemon_watch_clients daemon_watch_list(const struct daemon_watch *watch)
{
    struct daemon_watch_clients found = {0};

    if (watch->memory_count)
        mappers_list(count_line, watch, add_client, &found);
    return found;
}
