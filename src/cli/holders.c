/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/holders.h"

#include "base/failure.h"
#include "base/scope.h"
#include "cli/cli.h"
#include "cli/daemon_ask.h"
#include "cli/mount_look.h"
#include "cli/store_file.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PATH_BYTES 64

json_t *holders_read(const char *path)
{
    SCOPED_FREE char *text = NULL;
    json_t *rows = NULL;

    if (store_read_file(path, "sessions", &text) == 0)
        rows = mount_look_parse_sessions(text);
    for (size_t i = rows ? json_array_size(rows) : 0; i > 0; i--) {
        if (strcmp(json_get_text(json_array_get(rows, i - 1), "status"), "held") != 0)
            json_array_remove(rows, i - 1);
    }
    return rows;
}

/* A line of a file of /proc/PID, behind `label`; free(3). NULL: there is none. */
static char *read_line(long long pid, const char *file, const char *label)
{
    SCOPED_FREE char *text = NULL;
    char path[PATH_BYTES], *at;

    snprintf(path, sizeof(path), "/proc/%lld/%s", pid, file);
    if (store_read_text(path, &text) != 0 || !(at = strstr(text, label)))
        return NULL;
    at += strlen(label);
    at[strcspn(at, "\n")] = '\0';
    return strdup(at);
}

/* The daemon has the same numbers for processes: its own has one name, from here on down. */
static bool counts_as_we_do(const char *mount)
{
    int pid = daemon_ask_pid(mount);
    SCOPED_FREE char *names = pid > 0 ? read_line(pid, "status", "\nNSpid:") : NULL;
    char *end;

    return names && strtoll(names, &end, 10) == pid && end[strspn(end, " \t")] == '\0';
}

/* When it began, in seconds since 1970; 0: not to be had. */
static long long read_start(long long pid)
{
    char *stat_line = read_line(pid, "stat", ""), *boot = NULL, *text = NULL, *at;
    unsigned long long ticks = 0;
    long long start = 0;

    at = stat_line ? strrchr(stat_line, ')')
                   : NULL; /* a process name may contain the same characters */
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (at)
        ticks = strtoull(at, NULL, 10);
    if (at && store_read_text("/proc/stat", &text) == 0)
        boot = strstr(text, "\nbtime ");
    if (boot)
        start = strtoll(boot + strlen("\nbtime "), NULL, 10) +
                (long long)(ticks / (unsigned long long)sysconf(_SC_CLK_TCK));
    free(text);
    free(stat_line);
    return start;
}

/* Both clocks are told in whole seconds. */
static bool is_as_old(const json_t *row, long long pid)
{
    struct tm parts = {0};
    long long start = read_start(pid);

    return start > 0 && strptime(json_get_text(row, "since"), "%Y-%m-%dT%H:%M:%SZ", &parts) &&
           start <= (long long)timegm(&parts) + 1;
}

static bool is_users(const json_t *row, long long pid)
{
    char path[PATH_BYTES];
    struct stat info;

    snprintf(path, sizeof(path), "/proc/%lld", pid);
    return stat(path, &info) == 0 && info.st_uid == json_get_number(row, "uid");
}

/* Why not; NULL: it is to be killed. */
static const char *find_doubt(const json_t *row, long long pid)
{
    if (pid <= 0)
        return "the daemon cannot see it";
    if (pid == getpid() || pid == getppid())
        return "it runs this command";
    if (!is_users(row, pid) || !is_as_old(row, pid))
        return "its number is another process's by now";
    return NULL;
}

static int kill_row(const json_t *row)
{
    long long pid = (long long)json_get_number(row, "pid");
    int fd = pid > 0 ? pidfd_open((pid_t)pid, 0) : -1, error = fd < 0 ? errno : 0;
    const char *doubt = pid > 0 && error ? NULL : find_doubt(row, pid);

    if (!doubt && !error && pidfd_send_signal(fd, SIGKILL, NULL, 0) < 0)
        error = errno;
    if (fd >= 0)
        close(fd);
    if (error == ESRCH)
        return 0; /* its session is about to end */
    if (!doubt && !error)
        return 0;
    cli_error("cannot kill process %lld (%s) of session %s: %s", pid, json_get_text(row, "comm"),
              json_get_text(row, "id"), doubt ? doubt : failure_reason(-error));
    return -1;
}

int holders_kill(const char *mount, const char *path)
{
    json_t *rows, *row;
    int failed = 0;
    size_t i;

    if (!counts_as_we_do(mount)) {
        cli_error("%s: its daemon cannot be seen from here, or has other numbers for processes; "
                  "run this where the daemon runs, or use --revoke",
                  path);
        return -1;
    }
    rows = holders_read(path);
    json_array_foreach (rows, i, row) {
        failed |= kill_row(row);
    }
    json_decref(rows);
    return failed;
}
