/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs umount - ends a mount and its daemon
 *
 * Root unmounts as umount(8) does. In a mount of an ordinary user the daemon itself keeps the mount
 * busy by its socket, so this command first asks it, through that socket, to unmount.
 */
#include "base/file_io.h"
#include "base/size.h"
#include "cli/cli.h"
#include "cli/daemon_ask.h"
#include "cli/daemon_watch.h"
#include "cli/mount_look.h"
#include "cli/mounts.h"
#include "cli/output.h"
#include "cli/ui.h"
#include "gmsfs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GONE_TIMEOUT_MS  10000u
#define END_TIMEOUT_MS   60000u
#define COPIES_MS        500u /* an unmounted daemon ends at once; after this, look for copies */
#define FUSERMOUNT_FAILS 127
#define FUSERMOUNT_NAME  "fusermount3: "
#define WORDS_BYTES      512

/* ---- copies of the mount -------------------------------------------------------------------- */

/*
 * Other mounts of its file system. A bind mount, or the same mount in another mount namespace,
 * keeps the daemon running after the unmount here. They are noted before unmounting and shown after
 * it: the kernel reuses the number of an ended file system, so only mounts that had it before are
 * copies. Reads only /proc.
 */

#define MOUNT_COPIES_MAX 64u /* copies that are noted, and so can be shown */

struct mount_copies {
    uint64_t ids[MOUNT_COPIES_MAX]; /* of mounts, as the kernel counts them for all namespaces */
    size_t count;
};

#define SHOWN      8u
#define PATH_BYTES 64

/* Receives one copy; false ends the walk. */
typedef bool (*copies_visit)(void *context, const struct mount *copy, pid_t pid);

static bool has_id(const struct mount_copies *copies, uint64_t id)
{
    for (size_t i = 0; i < copies->count; i++)
        if (copies->ids[i] == id)
            return true;
    return false;
}

/* Visits the copies among the mounts that one process sees. */
static bool visit_process(const struct mount *mount, pid_t pid, copies_visit visit, void *context)
{
    SCOPED_MOUNTS struct mounts mounts = {0};
    bool goes_on = true;

    mounts_read_of(pid, &mounts);
    for (size_t i = 0; i < mounts.count && goes_on; i++)
        if (mounts.list[i].device == mount->device && mounts.list[i].id != mount->id)
            goes_on = visit(context, &mounts.list[i], pid);
    return goes_on;
}

/* True if it is in the mount namespace of this process, so it sees no other mounts. */
static bool is_beside_us(pid_t pid)
{
    char path[PATH_BYTES];
    struct stat its, ours;

    snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
    return stat(path, &its) == 0 && stat("/proc/self/ns/mnt", &ours) == 0 &&
           its.st_ino == ours.st_ino;
}

static void visit_all(const struct mount *mount, copies_visit visit, void *context)
{
    bool goes_on = visit_process(mount, getpid(), visit, context);
    SCOPED_DIR DIR *processes = opendir("/proc");
    struct dirent *entry;

    while (goes_on && processes && (entry = readdir(processes))) {
        pid_t pid = isdigit((unsigned char)entry->d_name[0]) ? atoi(entry->d_name) : 0;
        if (pid && !is_beside_us(pid))
            goes_on = visit_process(mount, pid, visit, context);
    }
}

static bool note_one(void *context, const struct mount *copy, pid_t pid)
{
    struct mount_copies *copies = context;

    (void)pid;
    if (!has_id(copies, copy->id))
        copies->ids[copies->count++] = copy->id;
    return copies->count < MOUNT_COPIES_MAX;
}

/* Notes the copies that any readable process sees; skips unreadable processes. */
static void mount_copies_note(struct mount_copies *copies, const struct mount *mount)
{
    copies->count = 0;
    visit_all(mount, note_one, copies);
}

struct shown {
    const struct mount_copies *known;
    struct mount_copies seen;
    struct ui_table table;
};

static bool show_one(void *context, const struct mount *copy, pid_t pid)
{
    struct shown *shown = context;
    char number[24];

    if (!has_id(shown->known, copy->id) || has_id(&shown->seen, copy->id))
        return true;
    shown->seen.ids[shown->seen.count++] = copy->id;
    snprintf(number, sizeof(number), "pid %d", (int)pid);
    ui_table_add(&shown->table, (const char *[]){copy->path, "as seen by", number});
    return shown->seen.count < SHOWN;
}

/* True if some of the copies are still mounted; prints them, with the way out. */
static bool mount_copies_show(const struct mount_copies *copies, const struct mount *mount)
{
    struct shown shown = {.known = copies};

    if (copies->count == 0)
        return false;
    ui_table_begin(&shown.table, "lll");
    visit_all(mount, show_one, &shown);
    if (shown.seen.count == 0)
        return false;
    cli_error("%s: unmounted here, but copies of the mount keep its daemon, and all of its memory:",
              mount->path);
    ui_table_end(&shown.table, stderr, 2);
    fputs(
        "Unmount those too, in another mount namespace by 'nsenter -t PID -m umount PATH', or end "
        "its processes.\n",
        stderr);
    return true;
}

static const char usage[] =
    "Usage: gmsfs umount [-l] [--timeout S] MOUNT...\n"
    "\n"
    "Unmounts, which ends the daemon and gives back all memory that no client has mapped; waits\n"
    "for that, and lists the processes that still map some, with bytes. Refuses while clients "
    "hold\n"
    "files of the mount, and names them.\n";

static const char ending[] =
    "Exit status: 0 unmounted, and the daemons have ended; 1 failure, also where a copy of the\n"
    "mount, in another mount namespace or elsewhere, keeps the daemon; 2 usage; 3 unmounted, but\n"
    "the memory was not back in time.\n";

struct umount {
    bool lazy;
    uint64_t timeout_ms;
};

/* ---- ways to unmount ----------------------------------------------------------------------- */

static int umount_by_daemon(const struct mount *mount)
{
    int error = daemon_ask_unmount(mount->path);

    return error ? error : mounts_wait_gone(mount->id, GONE_TIMEOUT_MS);
}

static int umount_start_fusermount(const char *path, bool lazy, pid_t *child, int *words_fd)
{
    int ends[2], error = 0;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    *child = fork();
    if (*child == 0) {
        output_restore_signals();
        dup2(ends[1], STDERR_FILENO);
        execlp("fusermount3", "fusermount3", lazy ? "-uz" : "-u", "--", path, NULL);
        _exit(FUSERMOUNT_FAILS);
    }
    if (*child < 0)
        error = -errno;
    close(ends[1]);
    if (error)
        close(ends[0]);
    *words_fd = ends[0];
    return error;
}

/* Reads its last line, without its name: the error. */
static void umount_read_words(int fd, char *words, int room)
{
    size_t name_bytes = strlen(FUSERMOUNT_NAME);
    FILE *from = fdopen(fd, "r");

    words[0] = '\0';
    while (from && fgets(words, room, from))
        ;
    words[strcspn(words, "\n")] = '\0';
    if (strncmp(words, FUSERMOUNT_NAME, name_bytes) == 0)
        memmove(words, words + name_bytes, strlen(words) - name_bytes + 1);
    if (from)
        fclose(from);
    else
        close(fd);
}

/* -EPERM: another user mounted it; -ECANCELED: failed, and the error was printed. */
static int umount_by_fusermount(const struct mount *mount, bool lazy)
{
    char words[WORDS_BYTES];
    int status, fd = -1;
    pid_t child = -1;
    int error = umount_start_fusermount(mount->path, lazy, &child, &fd);

    if (error)
        return error;
    umount_read_words(fd, words, sizeof(words));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == FUSERMOUNT_FAILS)
        cli_error("%s: cannot run fusermount3, which an ordinary user needs to unmount; install "
                  "fuse3",
                  mount->path);
    else if (mount->owner == geteuid())
        cli_error("%s: fusermount3 cannot unmount it: %s", mount->path, words);
    else
        return -EPERM;
    return -ECANCELED;
}

static int umount_by_kernel(const struct mount *mount, bool lazy)
{
    return umount2(mount->path, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) < 0 ? -errno : 0;
}

static int umount_busy(const struct mount *mount)
{
    SCOPED_FREE char *holders = mount_look_holders(mount);

    if (*holders)
        cli_error("%s is busy: clients hold files of it:", mount->path);
    else
        cli_error("%s is busy: a process has a file or a working directory in it; 'fuser -m %s' "
                  "names them",
                  mount->path, mount->path);
    fputs(holders, stderr);
    ui_line(stderr, "End them, or use 'gmsfs umount -l %s'.", mount->path);
    return CLI_FAILURE;
}

/* Asks the daemon if the kernel may say busy only because of the daemon's own files, as it does in
 * a mount of an ordinary user. */
static int umount_gently(const struct mount *mount)
{
    int error = -EPERM;

    if (geteuid() == 0)
        error = umount_by_kernel(mount, false);
    if (error == -EPERM || (error == -EBUSY && mount->owner != 0))
        error = umount_by_daemon(mount);
    if (error == 0 || error == -EBUSY || error == -ETIMEDOUT)
        return error;
    if (geteuid() == 0)
        return umount_by_kernel(mount, false);
    return umount_by_fusermount(mount, false);
}

static int umount_lazily(const struct mount *mount)
{
    int error = -EPERM;

    if (geteuid() == 0)
        error = umount_by_kernel(mount, true);
    return error == -EPERM ? umount_by_fusermount(mount, true) : error;
}

/* ---- until the memory is back -------------------------------------------------------------- */

/* Prints the clients that still map memory; not a failure, as it comes back when they unmap it. */
static void umount_show_clients(const struct mount *mount, const struct daemon_watch *watch)
{
    struct daemon_watch_clients clients = daemon_watch_list(watch);
    struct ui_table table;

    if (clients.count == 0)
        return;
    ui_table_begin(&table, "lrll");
    for (size_t i = 0; i < clients.count; i++) {
        const struct daemon_watch_client *client = &clients.list[i];
        char pid[24], bytes[24], size[SIZE_TEXT_BYTES + 2];
        snprintf(pid, sizeof(pid), "pid %d", (int)client->pid);
        snprintf(bytes, sizeof(bytes), "%" PRIu64 " bytes", client->bytes);
        size_format(client->bytes, size);
        ui_table_add(&table, (const char *[]){pid, bytes, size, client->comm});
    }
    ui_line(stderr,
            "%s is unmounted; memory that clients map comes back when they unmap it or end:",
            mount->path);
    ui_table_end(&table, stderr, 2);
    free(clients.list);
}

static int umount_wait_end(const struct mount *mount, const struct daemon_watch *watch,
                           const struct mount_copies *copies, uint64_t timeout_ms)
{
    uint64_t start_ms = clock_now_ms();
    int error = daemon_watch_end(watch, timeout_ms < COPIES_MS ? timeout_ms : COPIES_MS);

    if (error && mount_copies_show(copies, mount))
        return CLI_FAILURE;
    if (error)
        error = daemon_watch_end(watch, cli_left_ms(start_ms, timeout_ms));
    if (error) {
        cli_error("%s: unmounted, but its daemon (process %d) has not given the memory back in the "
                  "time given; its log may tell why",
                  mount->path, (int)watch->keeper);
        return CLI_TIMEOUT;
    }
    umount_show_clients(mount, watch);
    return CLI_OK;
}

/* Follows the daemon after the unmount; `asked` is the result of asking for its pid before. */
static int umount_follow(const struct mount *mount, const struct daemon_watch *watch,
                         const struct mount_copies *copies, int asked, uint64_t timeout_ms)
{
    if (asked == 0)
        return umount_wait_end(mount, watch, copies, timeout_ms);
    if (asked == -ENOTCONN || asked == -ECONNABORTED || asked == -ECONNREFUSED)
        return CLI_OK; /* the daemon had ended before */
    if (mount_copies_show(copies, mount))
        return CLI_FAILURE;
    if (asked != -ETIMEDOUT)
        return CLI_OK; /* its processes cannot be seen from here */
    cli_error("%s: unmounted, but its daemon did not answer before, so its memory may not be back; "
              "'pgrep -af gmsfs' shows whether it is still there",
              mount->path);
    return CLI_TIMEOUT;
}

static int umount_explain(const struct mount *mount, int error)
{
    if (error == -EBUSY)
        return umount_busy(mount);
    if (error == -ETIMEDOUT)
        return cli_error(
            "%s: the daemon tried, but the mount is still there: a process may have a working "
            "directory in it, which 'fuser -m %s' shows; 'gmsfs umount -l' detaches it",
            mount->path, mount->path);
    if (error == -EPERM)
        return cli_error("%s: cannot unmount: only root and the user that mounted it can; run this "
                         "as one of them",
                         mount->path);
    if (error != -ECANCELED)
        return cli_error("%s: cannot unmount: %s", mount->path, strerror(-error));
    return CLI_FAILURE;
}

static int umount_and_wait(const struct mount *mount, uint64_t timeout_ms)
{
    struct daemon_watch watch;
    struct mount_copies copies;
    int asked = daemon_watch_open(&watch, mount->path), error, status;

    mount_copies_note(&copies, mount);
    error = umount_gently(mount);
    if (error)
        status = umount_explain(mount, error);
    else
        status = umount_follow(mount, &watch, &copies, asked, timeout_ms);
    daemon_watch_close(&watch);
    return status;
}

/* ---- the command --------------------------------------------------------------------------- */

static int umount_one(const struct mounts *mounts, const char *path, const struct umount *umount)
{
    const struct mount *mount = mounts_find(mounts, path, false);

    if (!mount)
        return mounts_explain_no_mount(mounts, path);
    if (!umount->lazy)
        return umount_and_wait(mount, umount->timeout_ms);
    int error = umount_lazily(mount);
    return error ? umount_explain(mount, error) : CLI_OK;
}

static int umount_all(char **paths, int count, const struct umount *umount)
{
    int status = CLI_OK, one;

    for (int i = 0; i < count; i++) {
        SCOPED_MOUNTS struct mounts mounts = {0};
        int error = mounts_read(&mounts);
        if (error)
            return mounts_explain(error);
        one = umount_one(&mounts, paths[i], umount);
        if (one != CLI_OK && status != CLI_FAILURE)
            status = one;
    }
    return status;
}

static const struct cli_option options[] = {
    {"--lazy", 'l', NULL, cli_take_flag, offsetof(struct umount, lazy),
     "detach the mount now, also a dead one, and wait for nothing; clients go on\n"
     "with the files they have"},
    {"--timeout", 0, "S", cli_take_timeout, offsetof(struct umount, timeout_ms),
     "wait at most S seconds until the memory is back (default: 60)"},
    {0},
};

static int umount_run(int argc, char **argv)
{
    struct umount umount = {.timeout_ms = END_TIMEOUT_MS};

    cli_parse(argc, argv, &umount);
    int status = umount_all(argv + optind, argc - optind, &umount);
    if (status == CLI_OK)
        output_set_done();
    return status;
}

const struct cli_command cmd_umount = {
    .name = "umount",
    .summary = "unmount, which ends the daemon",
    .usage = usage,
    .options = options,
    .ending = ending,
    .least = 1,
    .needs = "a MOUNT is needed",
    .run = umount_run,
};
