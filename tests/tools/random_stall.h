/* SPDX-License-Identifier: Apache-2.0 */
/*
 * random_stall - writes down everything about a run of random_ops that makes no progress
 *
 * First /proc of the clients and the daemons (state, wait channel, stack, system call, open files,
 * of each thread), then the files of the mounts. A mount may hang, so its files are read by a
 * process that is left behind after a while. Included by random_ops.c alone.
 */
#ifndef GMSFS_TESTS_TOOLS_RANDOM_STALL_H
#define GMSFS_TESTS_TOOLS_RANDOM_STALL_H

#include "random_clients.h"
#include "random_targets.h"

#include <signal.h>
#include <sys/wait.h>

#define STALL_READ_MS 3000u

static inline void dump_text(FILE *to, const char *path)
{
    static char text[1 << 20];
    ssize_t n = tool_read_text(path, text, sizeof(text));

    fprintf(to, "--- %s%s%s\n%s%s", path, n < 0 ? ": " : "", n < 0 ? strerror((int)-n) : "",
            n < 0 ? "" : text, n > 0 && text[n - 1] != '\n' ? "\n" : "");
}

static inline void dump_thread(FILE *to, pid_t pid, const char *tid)
{
    static const char *const names[] = {"comm", "status", "wchan", "syscall", "stack"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        dump_text(to, tool_path("/proc/%d/task/%s/%s", (int)pid, tid, names[i]).text);
}

static inline void dump_files(FILE *to, pid_t pid)
{
    DIR *stream = opendir(tool_path("/proc/%d/fd", (int)pid).text);
    struct dirent *entry;
    char link[PATH_MAX];

    fprintf(to, "--- /proc/%d/fd%s\n", (int)pid, stream ? "" : ": cannot be read");
    while (stream && (entry = readdir(stream)) != NULL) {
        ssize_t n = readlinkat(dirfd(stream), entry->d_name, link, sizeof(link) - 1);

        if (n > 0)
            fprintf(to, "%s -> %.*s\n", entry->d_name, (int)n, link);
    }
    if (stream)
        closedir(stream);
}

static inline void dump_process(FILE *to, const char *what, pid_t pid)
{
    DIR *stream = opendir(tool_path("/proc/%d/task", (int)pid).text);
    struct dirent *entry;

    fprintf(to, "=== %s: process %d%s\n", what, (int)pid, stream ? "" : ", which is gone");
    while (stream && (entry = readdir(stream)) != NULL)
        if (entry->d_name[0] != '.')
            dump_thread(to, pid, entry->d_name);
    if (stream)
        closedir(stream);
    dump_files(to, pid);
}

/* By another process: a mount that does not answer would block this one for good. */
static inline void dump_served(FILE *to, const char *path)
{
    uint64_t end_ms = tool_now_ms() + STALL_READ_MS * tool_slow();
    pid_t pid, got;

    fflush(to);
    pid = fork();
    if (pid == 0) {
        dump_text(to, path);
        fflush(to);
        _exit(0);
    }
    while ((got = waitpid(pid, NULL, WNOHANG)) == 0 && tool_now_ms() < end_ms)
        tool_pause_us(1000);
    if (got == 0) {
        kill(pid, SIGKILL);
        fprintf(to, "--- %s: does not answer\n", path);
        dump_process(to, "its reader", pid);
    }
}

static inline void dump_mounts(FILE *to)
{
    static const char *const of_mount[] = {"device", "metrics", "events"};
    static const char *const of_store[] = {"state", "sessions", "info"};

    for (int i = 0; i < target_count; i++) {
        for (size_t n = 0; n < 3; n++)
            dump_served(to, tool_path("%s/%s", targets[i].path.text, of_store[n]).text);
        for (size_t n = 0; n < 3 && is_first_of_mount(i); n++)
            dump_served(to, tool_path("%s/%s", targets[i].mount.text, of_mount[n]).text);
    }
}

/* To `path`, or to standard error when it is NULL or cannot be written. */
static inline void dump_stall(const char *path, const char *why, const pid_t *clients, int count)
{
    FILE *file = path ? fopen(path, "we") : NULL, *to = file ? file : stderr;
    uint64_t now_ms = tool_now_ms();

    fprintf(to, "%s\n", why);
    for (int i = 0; i < count; i++) {
        const struct place *place = &shared->places[i];
        uint64_t since_ms = atomic_load(&place->since_ms);
        struct tool_path what = tool_path("client, '%s' on %s for %" PRIu64 " ms",
                                          operations[atomic_load(&place->operation)].name,
                                          targets[atomic_load(&place->target)].path.text,
                                          since_ms ? now_ms - since_ms : 0);

        dump_process(to, what.text, clients[i]);
    }
    for (int i = 0; i < keeper_count; i++) {
        pid_t worker = worker_of(keepers[i]);

        dump_process(to, "keeper", keepers[i]);
        if (worker)
            dump_process(to, "worker", worker);
    }
    dump_mounts(to);
    fflush(to);
    if (file)
        fclose(file);
}

#endif
