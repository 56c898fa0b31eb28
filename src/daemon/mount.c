/* SPDX-License-Identifier: Apache-2.0 */
/* `gmsfs mount`: its arguments, the mount point, and the start in the background. */
#include "daemon/daemon.h"

#include "base/child.h"
#include "base/file_io.h"
#include "base/log.h"
#include "daemon/attach.h"
#include "daemon/fdstore.h"
#include "daemon/gms_dir.h"
#include "daemon/keeper.h"
#include "daemon/mountinfo.h"
#include "daemon/options.h"
#include "daemon/program.h"
#include "daemon/relay.h"
#include "daemon/worker.h"
#include "vmm/backends.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Takes the user's groups, as at a login; none for a user without a name. */
static int take_groups(uid_t uid, gid_t gid)
{
    const struct passwd *user = getpwuid(uid);
    int failed = user ? initgroups(user->pw_name, gid) : setgroups(0, NULL);

    return failed ? -errno : 0;
}

extern char **environ;

/* Returns true for variables of messages, of the service manager and of the GPU's libraries. A name
 * that ends with `=` is whole, another is a prefix. */
static bool is_kept(const char *variable)
{
    static const char *const kept[] = {
        "NOTIFY_SOCKET=", "LISTEN_", "FDSTORE=", "JOURNAL_STREAM=",  "GMSFS_",
        "PATH=",          "LANG=",   "LC_",      "LD_LIBRARY_PATH=", "CUDA_",
        "NVIDIA_",        "HIP_",    "ROCR_"};

    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++)
        if (strncmp(variable, kept[i], strlen(kept[i])) == 0)
            return true;
    return false;
}

/* Overwrites the rest of root's environment: it may hold secrets, and a process that reads this
 * process's memory would find them. */
static void drop_environment(void)
{
    char **left = environ;

    for (char **variable = environ; variable && *variable; variable++) {
        if (is_kept(*variable))
            *left++ = *variable;
        else
            explicit_bzero(*variable, strlen(*variable));
    }
    if (left)
        *left = NULL;
}

/* Returns true if this is root and the mount belongs to another user. */
static bool owner_is_another(const struct mountinfo *mount)
{
    return geteuid() == 0 && mount->uid != 0;
}

/* Changes the user for good; the working directory and most of the environment go. The caller has
 * to close the descriptors that this user must not have. Does nothing if this process is not root
 * or if the mount is root's. After a negative errno part of the change may be done, and the process
 * must end. */
static int owner_become(const struct mountinfo *mount)
{
    uid_t uid = mount->uid;
    gid_t gid = mount->gid;

    if (!owner_is_another(mount))
        return 0;
    if (chdir("/") != 0)
        return -errno;
    drop_environment();
    int error = take_groups(uid, gid);
    if (!error && (setresgid(gid, gid, gid) != 0 || setresuid(uid, uid, uid) != 0))
        error = -errno;
    /* Independent of the sysctl fs.suid_dumpable: a debugger of that user must not reach the things
     * that root's process still has, such as the terminal that messages go to. This process still
     * reads all that it needs in its own /proc/self; it only cannot have the kernel kill a
     * snapshot's process first when memory is short. */
    if (!error && prctl(PR_SET_DUMPABLE, 0) != 0)
        error = -errno;
    return error;
}

#ifndef GMSFS_VERSION
#define GMSFS_VERSION "unknown"
#endif

#define EXIT_WRONG_ARGUMENTS 2
#define MOUNT_PROBE_MS       3000
#define MOUNT_MAX_DEAD       16 /* dead mounts on top of each other */

static void print_backends(void)
{
    const struct backend *backend;

    for (size_t i = 0; (backend = backends_at(i)); i++)
        printf("  backend=%-14s %s%s\n", backend->name, backend->help, i == 0 ? " (default)" : "");
}

static void print_help(void)
{
    char backends[BACKENDS_TEXT_BYTES];

    printf(
        "Usage: gmsfs mount [-f] [-d] [-o OPTION,...] [SOURCE] DIRECTORY\n"
        "       gmsfs mount [-f] --takeover DIRECTORY\n"
        "\n"
        "Mounts the memory of a device at DIRECTORY and stays in the background.\n"
        "SOURCE is for fstab: %s, or any word.\n"
        "\n"
        "  -f, --foreground       stay in the foreground, messages on standard error\n"
        "  -d, --debug            -f, and show every request\n"
        "      --takeover         become the daemon of the mount that is there, with its options;\n"
        "                         the former one ends, clients see a pause\n"
        "  -h, --help             this text\n"
        "  -V, --version          the version\n"
        "\n"
        "Options (sizes as 256M, 4G, 1T):\n",
        backends_list(backends));
    print_backends();
    puts(
        "  device=WHICH           the GPU: an index (default 0), a GPU-UUID or a PCI id\n"
        "  size=SIZE              how much of its memory; default: all of a GPU, half of a\n"
        "                         machine\n"
        "  granularity=SIZE       allocations are rounded up to multiples of it; default 2M\n"
        "  hugepages=2M|1G        host: take huge pages from the kernel's pool\n"
        "  host_size=SIZE         host memory beside the device, for stores that are moved there;\n"
        "                         default: none\n"
        "  host_hugepages=2M|1G   take host_size from the kernel's pool of huge pages\n"
        "  spill=DIR              a disk beside the device, by files without names in DIR\n"
        "  spill_size=SIZE        how much of that disk\n"
        "  keep_copy=yes|no       keep the old copy when a store is moved back; default yes\n"
        "  evict=lru|none         whether unused stores leave the device for others; default lru\n"
        "  min_stay=SECONDS       how long a store stays on the device before it has to leave;\n"
        "                         default 10\n"
        "  uuid=UUID              host: of the device; default: from the machine's id\n"
        "  alloc_timeout=SECONDS  how long ALLOC waits for memory; default 60, 0: not at all\n"
        "  writer_patience=SECONDS\n"
        "                         how long a waiting writer holds new readers off; default 30\n"
        "  spool_max=SIZE         bound of a file written without a size; default 1T\n"
        "                         (GPUs: 8G)\n"
        "  copier_idle=SECONDS    how long the process that reads and writes a GPU's memory stays\n"
        "                         without transfers; default 10\n"
        "  allow_other, no_allow_other\n"
        "                         may other users enter? root: yes, as modes allow; an ordinary\n"
        "                         user: if user_allow_other is set in /etc/fuse.conf\n"
        "  audit=FILE             every event as a line of JSON, appended to this file; SIGHUP to\n"
        "                         the keeper opens it again (for logrotate)\n"
        "  trace=FILE             what takes time in the daemon, for ui.perfetto.dev: requests, "
        "jobs,\n"
        "                         moves, recoveries; at most 64 MiB, and as much in FILE.1\n"
        "  keep_journal=DIR       keep a copy of the journal in DIR when the mount ends by a "
        "failure;\n"
        "                         'gmsfs journal FILE' prints it\n"
        "  uid=N, gid=N           owner of `weights`; default: the mounting user\n"
        "  log=LEVEL              how much is logged: error, warning, info (default) or debug;\n"
        "                         'gmsfs log' changes it while the mount runs\n"
        "  debug                  as --debug\n"
        "  gms                    sockets for clients of the GPU Memory Service, on the stores\n"
        "                         `weights` and `kv_cache`; on host memory uuid=GPU-... is needed\n"
        "  gms_dir=DIR            where these sockets are; default: $GMS_SOCKET_DIR, else $TMPDIR, "
        "/tmp "
        "...\n"
        "  gms_ordinal=N          V1: the GPU's number as the clients see it; default:\n"
        "                         device= where that is an index, else 0\n"
        "  gms_mode=OCTAL         mode of the sockets; default 600\n"
        "  gms_keep               a client's writer begins with the committed contents");
}

/* ---- the mount point --------------------------------------------------------------------- */

/* Resolves a path like realpath(), even if its last component is a dead mount, which cannot be
 * looked at. */
static int resolve_path(const char *path, char resolved[PATH_MAX])
{
    char copy[PATH_MAX], parent[PATH_MAX];

    if (realpath(path, resolved))
        return 0;
    if (errno != ENOTCONN && errno != ECONNABORTED)
        return -errno;
    if (strlen(path) >= sizeof copy)
        return -ENAMETOOLONG;
    strcpy(copy, path);
    size_t end = strlen(copy);
    while (end > 1 && copy[end - 1] == '/')
        copy[--end] = '\0';
    char *slash = strrchr(copy, '/');
    const char *name = slash ? slash + 1 : copy;
    if (slash)
        *slash = '\0';
    if (!realpath(!slash ? "." : *copy ? copy : "/", parent))
        return -errno;
    int written =
        snprintf(resolved, PATH_MAX, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, name);
    return written >= PATH_MAX ? -ENAMETOOLONG : 0;
}

static void read_device(const void *path, int to)
{
    char file[PATH_MAX + 16], c;

    snprintf(file, sizeof file, "%s/device", (const char *)path);
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    int error = fd < 0 || read(fd, &c, 1) < 0 ? -errno : 0;
    ssize_t put = write(to, &error, sizeof error);
    (void)put;
}

/* Returns the error of reading the mount's `device`, from a child, because a mount that hangs would
 * hang this process. */
static int probe_mount(const char *path)
{
    int answer = 0;
    int error = child_ask(read_device, path, MOUNT_PROBE_MS, &answer);

    /* A child that ended without an answer was killed while it waited for the mount. */
    return error == -ESRCH ? -ETIMEDOUT : error ? error : answer;
}

static bool is_dead(int error)
{
    return error == -ENOTCONN || error == -ECONNABORTED || error == -ENODEV;
}

/* Detaches dead mounts; refuses a live gmsfs. */
static int clear_mountpoint(const char *path)
{
    struct mountinfo mount;

    for (int left = MOUNT_MAX_DEAD; left > 0; left--) {
        if (mountinfo_find_path(path, &mount) != 0 || strncmp(mount.type, "fuse", 4) != 0)
            return 0;
        bool is_ours = strcmp(mount.type, MOUNTINFO_TYPE) == 0;
        int error = probe_mount(path);
        if (is_dead(error)) {
            log_warning("%s: the mount there is dead; it is detached", path);
            if (!attach_detach(path))
                return -ENOTCONN;
            continue;
        }
        if (!is_ours)
            return 0;
        log_error("%s: a gmsfs is mounted there already%s", path,
                  error == -ETIMEDOUT ? ", and does not answer (end it: umount -l, then kill it)"
                                      : "; `gmsfs umount` ends it");
        return -EBUSY;
    }
    return -EBUSY;
}

/* Refuses a mount point in a gmsfs mount: it would hide a store there, and keep the mount around it
 * busy. */
static int refuse_inside(const char *given, dev_t device)
{
    struct mountinfo mount;

    if (mountinfo_find_device(device, &mount) != 0 || strcmp(mount.type, MOUNTINFO_TYPE) != 0)
        return 0;
    log_error("%s: cannot be a mount point: it lies in the gmsfs mount %s, whose directories are "
              "stores; choose another directory",
              given, mount.path);
    return -EBUSY;
}

/* Only /proc lists the mounts and the callers. */
static int check_proc(const char *given)
{
    if (access(MOUNTINFO_FILE, R_OK) == 0)
        return 0;
    int error = -errno;
    log_error("%s: cannot be served: " MOUNTINFO_FILE ": %s; mount /proc here, or call this where "
              "it is",
              given, strerror(-error));
    return error;
}

static int check_mountpoint(const char *given, char path[PATH_MAX])
{
    struct stat stat_;
    int error = check_proc(given);

    if (error)
        return error;
    error = resolve_path(given, path);
    if (error) {
        log_error("%s: cannot be a mount point: %s%s", given, strerror(-error),
                  error == -ENOENT ? " (create it: mkdir -p)" : "");
        return error;
    }
    error = clear_mountpoint(path);
    if (error)
        return error;
    if (stat(path, &stat_) != 0) {
        error = -errno;
        log_error("%s: cannot be a mount point: %s", given, strerror(-error));
        return error;
    }
    if (!S_ISDIR(stat_.st_mode)) {
        log_error("%s: cannot be a mount point: not a directory; name an empty one", given);
        return -ENOTDIR;
    }
    return refuse_inside(given, stat_.st_dev);
}

/* Checks a mount that this process is to take over. */
static int check_live_mount(const char *given, char path[PATH_MAX], struct mountinfo *mount)
{
    int error = check_proc(given);

    if (error)
        return error;
    error = resolve_path(given, path);
    if (!error)
        error = mountinfo_find_path(path, mount);
    if (!error && strcmp(mount->type, MOUNTINFO_TYPE) != 0)
        error = -ENOENT;
    if (error)
        log_error("%s: not taken over: %s", given,
                  error == -ENOENT ? "no gmsfs is mounted there; 'gmsfs status' lists the mounts"
                                   : strerror(-error));
    return error;
}

/* Call it before the mount is asked for anything. */
static int become_owner(const char *path, const struct mountinfo *mount)
{
    int error = owner_become(mount);

    if (error)
        log_error("%s: not taken over: cannot become user %u, which mounted it: %s", path,
                  mount->uid, strerror(-error));
    return error;
}

/* ---- the rights of other users -------------------------------------------------------------- */

static bool fuse_conf_allows_other(void)
{
    char line[256];
    bool allows = false;
    SCOPED_FILE FILE *conf = fopen("/etc/fuse.conf", "re");

    while (conf && !allows && fgets(line, sizeof line, conf)) {
        line[strcspn(line, " \t\r\n")] = '\0';
        allows = strcmp(line, "user_allow_other") == 0;
    }
    return allows;
}

static int decide_allow_other(const struct daemon_options *options, bool *allow_other)
{
    bool may = geteuid() == 0 || fuse_conf_allows_other();

    *allow_other = may && options->allow_other != OPTIONS_NO;
    if (!may && options->allow_other == OPTIONS_YES) {
        log_error("option allow_other: root has to permit it to ordinary users, by a line "
                  "user_allow_other in /etc/fuse.conf");
        return -EPERM;
    }
    return 0;
}

/* ---- GMS clients ------------------------------------------------------------------------- */

/* Call it before leaving the caller's directory. */
static int decide_gms_dir(struct daemon_options *options)
{
    int error = options->gms && !*options->gms_dir
                    ? gms_dir_find(options->gms_dir, sizeof options->gms_dir)
                    : 0;

    if (error == -ENOENT)
        log_error("option gms: no directory for its sockets: neither $TMPDIR, $TEMP, $TMP nor "
                  "/tmp, /var/tmp, /usr/tmp can be written to; name one by gms_dir=");
    else if (error)
        log_error("option gms: the directory for its sockets, as $GMS_SOCKET_DIR or $TMPDIR tells "
                  "it, cannot be taken: %s; name one by gms_dir=",
                  strerror(-error));
    return error;
}

/* ---- into the background ----------------------------------------------------------------- */

/* Waits in the parent. Returns 0 when the mount answers, else the child's exit status. */
static int wait_ready(pid_t child, int fd)
{
    int status = 0;
    char byte;
    ssize_t got;

    do {
        got = read(fd, &byte, 1);
    } while (got < 0 && errno == EINTR);
    if (got == 1)
        return 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        log_error("not mounted: the keeper was killed by signal %d", WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) != 0 ? WEXITSTATUS(status) : 1;
}

/* Closes in the child everything of the caller but standard error, which stays until the mount
 * answers. */
static int leave_caller(struct keeper_setup *setup, int ready_fd)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null < 0 || setsid() < 0 || chdir("/") != 0)
        return -errno;
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    if (ready_fd != 3) {
        if (dup2(ready_fd, 3) < 0)
            return -errno;
        ready_fd = 3;
    }
    fcntl(ready_fd, F_SETFD, FD_CLOEXEC);
    close_range(4, ~0u, 0);
    setup->ready_fd = ready_fd;
    return relay_open(setup->relay);
}

/* `taken`: the mount that is taken over, or NULL. */
static int run_in_background(struct keeper_setup *setup, const struct mountinfo *taken)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0) {
        log_error("cannot make a pipe: %s", strerror(errno));
        return 1;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        log_error("cannot start a process: %s", strerror(errno));
        return 1;
    }
    if (child > 0) {
        close(ends[1]);
        return wait_ready(child, ends[0]);
    }
    int error = leave_caller(setup, ends[1]);
    if (error)
        log_error("cannot leave the terminal: %s", strerror(-error));
    else if (taken) /* not earlier: that user must not get the caller's session */
        error = become_owner(setup->mountpoint, taken);
    relay_drain(setup->relay);
    exit(error ? 1 : keeper_main(setup));
}

static int take_over(const char *given, char path[PATH_MAX], struct keeper_setup *setup)
{
    struct mountinfo mount;

    if (check_live_mount(given, path, &mount))
        return 1;
    if (probe_mount(path) == -ETIMEDOUT)
        log_warning(
            "%s: does not answer; waiting for it. If its worker hangs, kill the worker with "
            "SIGKILL: another one continues, and nothing is lost",
            path);
    child_forget_left(); /* the keeper must not wait for a hanging child that looked there */
    if (!setup->options->foreground)
        return run_in_background(setup, &mount);
    /* Closes the caller's descriptors: they may be files of this very mount, which an ending worker
     * would wait for itself to close, and which would keep the mount busy; and the owner must not
     * get them. */
    close_range(STDERR_FILENO + 1, ~0u, 0);
    if (chdir("/") != 0) {
        log_error("cannot leave the working directory: %s", strerror(errno));
        return 1;
    }
    return become_owner(path, &mount) ? 1 : keeper_main(setup);
}

/* ---- entry ------------------------------------------------------------------------------- */

bool daemon_is_mount_helper(int argc, char **argv)
{
    if (argc < 3 || argv[1][0] == '-' || argv[2][0] != '/')
        return false;
    return argc == 3 || argv[3][0] == '-';
}

int daemon_mount_main(int argc, char **argv)
{
    struct daemon_options options;
    char text[OPTIONS_ERROR_BYTES], path[PATH_MAX];
    struct relay relay = {.fd = -1, .terminal_fd = -1, .trace_fd = -1};
    struct keeper_setup setup = {
        .options = &options, .mountpoint = path, .relay = &relay, .ready_fd = -1};

    if (argc > 1 && strncmp(argv[1], PROGRAM_WORKER_FLAG, strlen(PROGRAM_WORKER_FLAG)) == 0)
        return worker_main_inherited(atoi(argv[1] + strlen(PROGRAM_WORKER_FLAG)));
    if (options_parse(argc, argv, &options, text, sizeof text)) {
        log_error("%s", text);
        return EXIT_WRONG_ARGUMENTS;
    }
    if (options.help) {
        print_help();
        return 0;
    }
    if (options.version) {
        puts("gmsfs " GMSFS_VERSION);
        return 0;
    }
    log_set_level(options.log_level);
    setup.argc = argc;
    setup.argv = argv;
    setup.takes_over = options.takeover;
    if (options.takeover && (options.has_list || options.debug)) {
        log_error("--takeover: the options are those of the mount; only -f can be given");
        return EXIT_WRONG_ARGUMENTS;
    }
    setup.is_stored = options.foreground && !options.takeover && fdstore_is_offered();
    if (setup.is_stored) { /* the mount does not answer, so nothing looks into it */
        setup.mountpoint = options.mountpoint;
        return keeper_main(&setup);
    }
    if (options.takeover)
        return take_over(options.mountpoint, path, &setup);
    if (check_mountpoint(options.mountpoint, path) ||
        decide_allow_other(&options, &setup.allow_other) || decide_gms_dir(&options))
        return 1;
    return options.foreground ? keeper_main(&setup) : run_in_background(&setup, NULL);
}
