/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web_yield - the process beside nginx
 *
 * A process of nginx reads many files of a store at once, and all of them are one session: each
 * further open joins it, also while a writer waits, so one slow client is enough to keep the
 * lock. A reload (SIGHUP) starts new processes, whose opens queue behind the writer, and gives the
 * answers under way WEB_CUT_AFTER_S. Where nginx is killed, its processes would serve on, without
 * this rule and without an end, so they are ended. Where this process is killed, nginx ends
 * (web_start.c).
 */
#include "base/child.h"
#include "base/file_io.h"
#include "cli/cli.h"
#include "cli/ui.h"
#include "cli/web_start.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOK_EVERY_MS 3000
#define TICK_MS       100 /* between two looks for new processes of nginx */
#define LOOK_MS       2000
#define MAX_STORES    512u              /* answers at a time, as config.c bounds them */
#define MAX_WORKERS   (4 * WEB_WORKERS) /* those of two reloads, and more */
#define MOST_BYTES    (16u << 20)

/* The processes of nginx; pidfds, because a number would soon be another process's. */
struct yield_workers {
    char list[512]; /* their numbers, as the kernel lists them */
    pid_t pids[MAX_WORKERS];
    int fds[MAX_WORKERS];
    size_t count;
};

/* Paths of the texts `sessions` of the stores that nginx reads, and their mounts. */
struct yield_stores {
    char *paths[MAX_STORES];
    const struct web_mount *mounts[MAX_STORES];
    size_t count;
};

/* ---- stores that nginx reads ---------------------------------------------------------------- */

/* Keeps the processes as they were once nginx has ended: then its list is empty. */
static void yield_note_workers(struct yield_workers *workers, pid_t nginx)
{
    char path[64], list[sizeof(workers->list)] = "", *at = list, *end;
    SCOPED_CLOSE int children = -1;
    long pid;

    snprintf(path, sizeof(path), "/proc/%ld/task/%ld/children", (long)nginx, (long)nginx);
    children = open(path, O_RDONLY | O_CLOEXEC);
    if (children < 0 || read(children, list, sizeof(list) - 1) <= 0 || getppid() != nginx ||
        strcmp(list, workers->list) == 0)
        return;
    memcpy(workers->list, list, sizeof(list));
    while (workers->count > 0)
        close(workers->fds[--workers->count]);
    for (; workers->count < MAX_WORKERS && (pid = strtol(at, &end, 10)) > 0; at = end) {
        int fd = pid == getpid() ? -1 : (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);

        if (fd < 0)
            continue;
        workers->pids[workers->count] = (pid_t)pid;
        workers->fds[workers->count++] = fd;
    }
}

/* Adds the store of an open file, if it is one of a mount. */
static void yield_note_store(struct yield_stores *stores, const struct web *web, const char *file)
{
    for (size_t i = 0; i < web->mount_count && stores->count < MAX_STORES; i++) {
        size_t bytes = strlen(web->mounts[i].path), name;
        char *path;

        if (strncmp(file, web->mounts[i].path, bytes) != 0 || file[bytes] != '/')
            continue;
        name = strcspn(file + bytes + 1, "/");
        if (!file[bytes + 1 + name] || /* a text of the mount, which has no lock */
            asprintf(&path, "%.*s/sessions", (int)(bytes + 1 + name), file) < 0)
            continue;
        for (size_t at = 0; path && at < stores->count; at++)
            if (strcmp(path, stores->paths[at]) == 0) {
                free(path);
                path = NULL;
            }
        if (path) {
            stores->mounts[stores->count] = &web->mounts[i];
            stores->paths[stores->count++] = path;
        }
    }
}

/* Adds the stores that a process reads. -EACCES: its files cannot be seen. */
static int yield_note_stores(struct yield_stores *stores, const struct web *web, pid_t pid)
{
    char path[64], file[PATH_MAX];
    struct dirent *entry;
    ssize_t bytes;
    int error = 0;

    snprintf(path, sizeof(path), "/proc/%ld/fd", (long)pid);
    SCOPED_DIR DIR *fds = opendir(path);
    if (!fds)
        return -errno;
    while ((entry = readdir(fds))) {
        bytes = readlinkat(dirfd(fds), entry->d_name, file, sizeof(file) - 1);
        file[bytes > 0 ? bytes : 0] = '\0';
        if (bytes > 0)
            yield_note_store(stores, web, file);
        else if (errno == EACCES)
            error = -EACCES;
    }
    return error;
}

/* ---- writers that wait ---------------------------------------------------------------------- */

/* A look at the stores of one mount. */
struct yield_look {
    const struct yield_stores *stores;
    const struct web_mount *mount;
    uid_t uid;
    struct child *child; /* NULL: none was started */
    int from;
};

static bool yield_waits(const char *path, uid_t uid)
{
    SCOPED_FILE FILE *in = fopen(path, "re");
    SCOPED_FREE char *text = malloc(MOST_BYTES + 1);

    if (!in || !text)
        return false;
    text[fread(text, 1, MOST_BYTES, in)] = '\0';
    return web_is_in_the_way(text, uid);
}

/* Writes 1 if a writer waits for this server; runs in a child, which may hang in the mount. */
static void yield_look(const void *context, int to)
{
    const struct yield_look *look = context;
    int found = 0;

    for (size_t i = 0; !found && i < look->stores->count; i++)
        found = look->stores->mounts[i] == look->mount &&
                yield_waits(look->stores->paths[i], look->uid);
    if (write(to, &found, sizeof(found)) != sizeof(found))
        _exit(EXIT_FAILURE);
}

static bool yield_has_mount(const struct yield_stores *stores, const struct web_mount *mount)
{
    for (size_t i = 0; i < stores->count; i++)
        if (stores->mounts[i] == mount)
            return true;
    return false;
}

/* Reads the look's answer, if it is there by that time. */
static bool yield_finish(struct yield_look *look, uint64_t until_ms)
{
    struct pollfd said = {.fd = look->from, .events = POLLIN};
    uint64_t now_ms = clock_now_ms();
    int found = 0;

    if (!look->child)
        return false;
    if (poll(&said, 1, now_ms < until_ms ? (int)(until_ms - now_ms) : 0) <= 0 ||
        read(look->from, &found, sizeof(found)) != sizeof(found))
        found = 0;
    close(look->from);
    child_end(look->child);
    return found != 0;
}

/* Looks at all mounts at the same time, so that one that hangs keeps no other waiting. */
static bool yield_look_at_all(const struct web *web, const struct yield_stores *stores, uid_t uid)
{
    SCOPED_FREE struct yield_look *looks = calloc(web->mount_count, sizeof(*looks));
    uint64_t until_ms = clock_now_ms() + LOOK_MS;
    bool is_found = false;

    for (size_t i = 0; looks && i < web->mount_count; i++) {
        looks[i] =
            (struct yield_look){.stores = stores, .mount = &web->mounts[i], .uid = uid, .from = -1};
        if (!yield_has_mount(stores, looks[i].mount) ||
            child_start(&looks[i].child, yield_look, &looks[i], &looks[i].from) != 0)
            looks[i].child = NULL;
    }
    for (size_t i = 0; looks && i < web->mount_count; i++)
        is_found = yield_finish(&looks[i], until_ms) || is_found;
    return is_found;
}

/* True if a writer waits for a store that nginx reads. */
static bool yield_is_in_the_way(const struct web *web, const struct yield_workers *workers,
                                uid_t uid)
{
    static bool has_told;
    struct yield_stores stores = {.count = 0};
    bool is_in_the_way;

    for (size_t i = 0; i < workers->count; i++) {
        if (yield_note_stores(&stores, web, workers->pids[i]) != -EACCES || has_told)
            continue;
        cli_error(
            "the files that nginx reads cannot be seen (root without CAP_SYS_PTRACE), so slow "
            "clients can keep writers waiting; start the server as its own user");
        has_told = true;
    }
    is_in_the_way = yield_look_at_all(web, &stores, uid);
    for (size_t i = 0; i < stores.count; i++)
        free(stores.paths[i]);
    return is_in_the_way;
}

/* ---- the end -------------------------------------------------------------------------------- */

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
    SCOPED_CLOSE int fd = open(directory, O_DIRECTORY | O_NOFOLLOW | O_RDONLY | O_CLOEXEC);

    for (size_t i = 0; fd >= 0 && i < sizeof(files) / sizeof(files[0]); i++)
        unlinkat(fd, files[i], 0);
    for (size_t i = 0; fd >= 0 && i < sizeof(directories) / sizeof(directories[0]); i++)
        unlinkat(fd, directories[i], AT_REMOVEDIR);
    rmdir(directory);
}

/* True once nginx has written its number, by when it listens and handles signals. */
static bool yield_has_begun(const char *directory)
{
    SCOPED_CLOSE int fd = open(directory, O_DIRECTORY | O_NOFOLLOW | O_RDONLY | O_CLOEXEC);

    return fd >= 0 && faccessat(fd, "nginx.pid", F_OK, 0) == 0;
}

/* Tells where the mounts are: the kernel accepts connections once nginx has begun. */
static void yield_tell(const struct web *web)
{
    for (size_t i = 0; i < web->mount_count; i++)
        ui_line(stdout, "gmsfs web: %s is %s://%s/%s/", web->mounts[i].path,
                web->cert ? "https" : "http", web->listen, web->mounts[i].name);
    if (!web->pages)
        ui_line(stdout, "gmsfs web: no pages lie beside this program, so /" WEB_PAGES "/ has none; "
                        "name their directory with --pages");
    fflush(stdout);
}

/* Waits that long, and notes new processes meanwhile; true if nginx has ended. */
static bool yield_wait(struct yield_workers *workers, pid_t nginx, unsigned time_ms)
{
    struct timespec tick = {.tv_nsec = TICK_MS * 1000000};
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGUSR2);
    for (unsigned ticks = time_ms / TICK_MS; ticks > 0 && getppid() == nginx; ticks--) {
        sigtimedwait(&signals, NULL, &tick);
        yield_note_workers(workers, nginx);
    }
    return getppid() != nginx;
}

void web_stand_beside(const struct web *web, const char *directory, uid_t uid, pid_t nginx)
{
    struct yield_workers workers = {.count = 0};
    bool is_in_the_way = false, was_in_the_way;
    sigset_t signals;

    /* It ends when nginx ends; a terminal sends Ctrl-C to both. */
    sigfillset(&signals);
    sigprocmask(SIG_SETMASK, &signals, NULL);
    prctl(PR_SET_PDEATHSIG, SIGUSR2);
    prctl(PR_SET_NAME, "gmsfs-web");
    while (!yield_has_begun(directory) && !yield_wait(&workers, nginx, TICK_MS))
        ;
    if (getppid() == nginx)
        yield_tell(web);
    while (!yield_wait(&workers, nginx, LOOK_EVERY_MS)) {
        was_in_the_way = is_in_the_way;
        is_in_the_way = yield_is_in_the_way(web, &workers, uid);
        if (!is_in_the_way || !was_in_the_way || getppid() != nginx)
            continue;
        kill(nginx, SIGHUP);
        if (yield_wait(&workers, nginx, WEB_CUT_AFTER_S * 1000))
            break;
    }
    yield_end_workers(&workers);
    yield_clean(directory);
    _exit(EXIT_SUCCESS);
}
