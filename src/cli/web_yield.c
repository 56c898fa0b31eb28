/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web_yield - the process beside nginx
 *
 * A process of nginx reads many files of a store at once, and all of them are one session: each
 * further open joins it, also while a writer waits, so one slow client is enough to keep the
 * lock. A reload (SIGHUP) starts new processes, whose opens queue behind the writer, and gives the
 * answers under way WEB_CUT_AFTER_S. Where nginx is killed, its processes would serve on, without
 * this rule and without an end, so they are ended.
 */
#include "base/child.h"
#include "base/file_io.h"
#include "base/scope.h"
#include "cli/web_start.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY_S 3
#define LOOK_MS      2000
#define PATIENCE_MS  5000u
#define MOST_BYTES   (64u << 20)
#define MAX_WORKERS  (4 * WEB_WORKERS) /* those of two reloads, and more */

struct yield_look {
    const char *path;
    uid_t uid;
};

/* Reads a text to its end. free(3) it; NULL: it cannot be read. */
static char *yield_read(int directory, const char *path)
{
    SCOPED_CLOSE int fd = openat(directory, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    SCOPED_FILE FILE *in = fd < 0 ? NULL : fdopen(dup(fd), "re");
    char *text = NULL;
    size_t room = 0;

    if (in && getdelim(&text, &room, '\0', in) >= 0 && room <= MOST_BYTES)
        return text;
    free(text);
    return NULL;
}

static bool yield_finds(const struct yield_look *look)
{
    SCOPED_CLOSE int top = open(look->path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    SCOPED_FREE char *metrics = top < 0 ? NULL : yield_read(top, "metrics");
    const char *at = metrics;
    char name[WEB_STORE_BYTES];

    while (at && web_next_waiter(&at, PATIENCE_MS, name)) {
        char path[WEB_STORE_BYTES + 16];
        SCOPED_FREE char *sessions = NULL;

        snprintf(path, sizeof(path), "%s/sessions", name);
        sessions = yield_read(top, path);
        if (sessions && web_is_in_the_way(sessions, look->uid))
            return true;
    }
    return false;
}

/* Writes 1 if a writer waits for this server; runs in a child, which may hang in the mount. */
static void yield_look(const void *context, int to)
{
    int found = yield_finds(context);

    if (write(to, &found, sizeof(found)) != sizeof(found))
        _exit(EXIT_FAILURE);
}

static bool yield_is_due(const struct web *web, uid_t uid)
{
    for (size_t i = 0; i < web->mount_count; i++) {
        struct yield_look look = {.path = web->mounts[i].path, .uid = uid};
        int found = 0;

        if (child_ask(yield_look, &look, LOOK_MS, &found) == 0 && found)
            return true;
    }
    return false;
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The processes of nginx, by pidfds: a number would soon be another process's. */
struct yield_workers {
    int fds[MAX_WORKERS];
    size_t count;
};

static void yield_note_workers(struct yield_workers *workers, pid_t nginx)
{
    SCOPED_FILE FILE *children = NULL;
    char path[64];
    long pid;

    while (workers->count > 0)
        close(workers->fds[--workers->count]);
    snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", (long)nginx, (long)nginx);
    children = fopen(path, "re");
    while (children && workers->count < MAX_WORKERS && fscanf(children, "%ld", &pid) == 1) {
        int fd = pid == getpid() ? -1 : (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);

        if (fd >= 0)
            workers->fds[workers->count++] = fd;
    }
}

static void yield_end_workers(const struct yield_workers *workers)
{
    for (size_t i = 0; i < workers->count; i++)
        syscall(SYS_pidfd_send_signal, workers->fds[i], SIGTERM, NULL, 0);
}

/* Removes the files of nginx and of web_start(), and the directory. */
static void yield_clean(const char *directory)
{
    static const char *const files[] = {"nginx.conf", "nginx.pid"};
    static const char *const directories[] = {"body", "proxy", "fastcgi", "uwsgi", "scgi"};
    SCOPED_CLOSE int fd = open(directory, O_DIRECTORY | O_RDONLY | O_CLOEXEC);

    for (size_t i = 0; fd >= 0 && i < sizeof(files) / sizeof(files[0]); i++)
        unlinkat(fd, files[i], 0);
    for (size_t i = 0; fd >= 0 && i < sizeof(directories) / sizeof(directories[0]); i++)
        unlinkat(fd, directories[i], AT_REMOVEDIR);
    rmdir(directory);
}

/* True once nginx has written its number, by when it handles signals. */
static bool yield_has_begun(const char *directory)
{
    SCOPED_CLOSE int fd = open(directory, O_DIRECTORY | O_RDONLY | O_CLOEXEC);

    return fd >= 0 && faccessat(fd, "nginx.pid", F_OK, 0) == 0;
}

/* Waits that long; true if nginx has ended. */
static bool yield_wait(pid_t nginx, unsigned seconds)
{
    struct timespec time = {.tv_sec = seconds};
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR2);
    if (getppid() == nginx)
        sigtimedwait(&signals, NULL, &time);
    return getppid() != nginx;
}

void web_stand_beside(const struct web *web, const char *directory, uid_t uid, pid_t nginx)
{
    struct yield_workers workers = {.count = 0};
    sigset_t signals;

    /* Its end is that of nginx; a terminal sends Ctrl-C to both. */
    sigfillset(&signals);
    sigprocmask(SIG_SETMASK, &signals, NULL);
    prctl(PR_SET_PDEATHSIG, SIGUSR2);
    prctl(PR_SET_NAME, "gmsfs-web");
    while (!yield_wait(nginx, LOOK_EVERY_S)) {
        yield_note_workers(&workers, nginx);
        if (!yield_has_begun(directory) || !yield_is_due(web, uid) || getppid() != nginx)
            continue;
        kill(nginx, SIGHUP);
        if (yield_wait(nginx, WEB_CUT_AFTER_S))
            break;
    }
    yield_end_workers(&workers);
    yield_clean(directory);
    _exit(EXIT_SUCCESS);
}
