/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_copier - the copier's process: its start, the thread that watches it, its end
 *
 * The thread starts the process and stays until it is gone: PR_SET_PDEATHSIG means the thread that
 * started a process, and threads of a pool come and go. It is an exec of this very program, also
 * where the file was replaced meanwhile, for the driver does not survive fork(2).
 */
#include "base/log.h"
#include "base/thread.h"
#include "copier/copier.h"
#include "vmm/copier_client_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES     (1024u * 1024)
#define REAP_LOOK_MS    5u
#define FIRST_HIGH_FD   16
#define SELF_EXECUTABLE "/proc/self/exe"

extern char **environ;

#ifdef GMSFS_TEST_HOOKS
static const char *get_executable(void)
{
    const char *path = getenv("GMSFS_COPIER_EXE"); /* for programs that are no gmsfs */

    return path ? path : SELF_EXECUTABLE;
}

unsigned bytes_hang_ms(void)
{
    const char *text = getenv("GMSFS_COPIER_HANG_MS");

    return text ? (unsigned)atoi(text) : COPIER_HANG_MS;
}
#else
static const char *get_executable(void)
{
    return SELF_EXECUTABLE;
}

unsigned bytes_hang_ms(void)
{
    return COPIER_HANG_MS;
}
#endif

uint64_t bytes_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- start --------------------------------------------------------------------------------- */

static int prepare_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;

    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(attributes, &none);
    posix_spawnattr_setsigdefault(attributes, &all);
    return posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

/* It gets the socket, the ring, and stderr for what its libraries may say. */
static int prepare_files(posix_spawn_file_actions_t *actions, int socket_fd, int ring_fd)
{
    int rc = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDWR, 0);

    if (!rc)
        rc = posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_RDWR, 0);
    if (!rc)
        rc = posix_spawn_file_actions_adddup2(actions, socket_fd, COPIER_SOCKET_FD);
    if (!rc)
        rc = posix_spawn_file_actions_adddup2(actions, ring_fd, COPIER_RING_FD);
    if (!rc)
        rc = posix_spawn_file_actions_addclosefrom_np(actions, COPIER_RING_FD + 1);
    return rc;
}

static int spawn(const struct cuda_bytes *bytes, int socket_fd, int ring_fd)
{
    char program[] = "gmsfs", command[] = COPIER_COMMAND, device[sizeof(bytes->name)];
    char *argv[] = {program, command, device, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t pid;
    int rc;

    snprintf(device, sizeof(device), "%s", bytes->options.pci_id);
    if (posix_spawn_file_actions_init(&actions))
        return -ENOMEM;
    if (posix_spawnattr_init(&attributes)) {
        posix_spawn_file_actions_destroy(&actions);
        return -ENOMEM;
    }
    rc = prepare_attributes(&attributes);
    if (!rc)
        rc = prepare_files(&actions, socket_fd, ring_fd);
    if (!rc)
        rc = posix_spawn(&pid, get_executable(), &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return rc ? -rc : pid;
}

/* Beyond the numbers that they get in the copier. */
static int move_high(int *fd)
{
    int high = fcntl(*fd, F_DUPFD_CLOEXEC, FIRST_HIGH_FD);

    if (high < 0)
        return -errno;
    close(*fd);
    *fd = high;
    return 0;
}

/* Gives our end of the socket, and the pid. */
static int start_process(const struct cuda_bytes *bytes, int *socket_fd)
{
    int ends[2], ring_fd, pid;

    ring_fd = fcntl(bytes->ring_fd, F_DUPFD_CLOEXEC, FIRST_HIGH_FD);
    if (ring_fd < 0)
        return -errno;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        pid = -errno;
        close(ring_fd);
        return pid;
    }
    pid = move_high(&ends[1]);
    if (pid == 0)
        pid = spawn(bytes, ends[1], ring_fd);
    close(ends[1]);
    close(ring_fd);
    if (pid < 0)
        close(ends[0]);
    else
        *socket_fd = ends[0];
    return pid;
}

static const char *get_hint(int error)
{
    switch (error) {
    case -ENOMEM:
        return "; its context takes half a gigabyte of the GPU: free some of it, or mount with a "
               "smaller size=";
    case -ENODEV:
    case -ELIBBAD:
        return "; nvidia-smi tells what there is";
    default:
        return "; nvidia-smi and dmesg may tell more";
    }
}

static int to_errno(int error)
{
    if (error == -ELIBBAD)
        return -ENODEV;
    return error == -ENOMEM || error == -ENODEV || error == -EMFILE ? error : -EIO;
}

/* Until it says that it can work, or why not, or there is no more use in waiting. */
static int await_hello(struct cuda_bytes *bytes, char *why)
{
    struct pollfd look = {.fd = bytes->socket, .events = POLLIN};
    struct copier_hello hello;
    char message[sizeof(hello) + 1];
    ssize_t got;
    int rc = 0;

    snprintf(why, COPIER_WHY_BYTES, "it did not answer within %u s", COPIER_START_MS / 1000);
    if (!bytes->closing) {
        pthread_mutex_unlock(&bytes->mutex);
        rc = poll(&look, 1, (int)COPIER_START_MS);
        pthread_mutex_lock(&bytes->mutex);
    }
    if (rc <= 0)
        return -EIO;
    got = recv(look.fd, message, sizeof(message), MSG_DONTWAIT);
    snprintf(why, COPIER_WHY_BYTES, "it ended before it could work");
    if (got <= 0)
        return -EIO;
    rc = copier_check_hello(message, (size_t)got, &hello);
    if (rc == 0) {
        snprintf(why, COPIER_WHY_BYTES, "%s", hello.why);
        return hello.error;
    }
    snprintf(why, COPIER_WHY_BYTES, "it says what nobody understands");
    return -EIO;
}

/* ---- end ----------------------------------------------------------------------------------- */

static bool is_reaped(struct cuda_bytes *bytes, int pid, unsigned within_ms)
{
    uint64_t until_ms = bytes_now_ms() + within_ms;
    struct timespec pause = {.tv_nsec = REAP_LOOK_MS * 1000000L};
    bool reaped = false;

    pthread_mutex_unlock(&bytes->mutex);
    for (;;) {
        int rc = waitpid(pid, NULL, WNOHANG);

        reaped = rc == pid || (rc < 0 && errno != EINTR);
        if (reaped || bytes_now_ms() >= until_ms)
            break;
        nanosleep(&pause, NULL);
    }
    pthread_mutex_lock(&bytes->mutex);
    return reaped;
}

/* With our end of the socket closed it goes by itself, unless something hangs. */
static void end_process(struct cuda_bytes *bytes, int pid, bool at_once)
{
    bool told = false;

    if (!at_once && is_reaped(bytes, pid, COPIER_END_MS))
        return;
    kill(pid, SIGKILL);
    while (!is_reaped(bytes, pid, COPIER_END_MS)) {
        if (!told)
            log_error("%s: the copier (process %d) hangs in the driver and cannot even be killed; "
                      "what it has mapped is held until it ends: see nvidia-smi and dmesg",
                      bytes->name, pid);
        told = true;
        if (bytes->closing)
            return;
    }
}

void copier_retire(struct cuda_bytes *bytes)
{
    if (bytes->state != COPIER_UP || bytes->killed)
        return;
    bytes->killed = true;
    kill(bytes->pid, SIGKILL);
    shutdown(bytes->socket, SHUT_RDWR); /* wakes its watcher */
}

static struct timespec moment_in(unsigned ms)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += ms / 1000;
    at.tv_nsec += ms % 1000 * 1000000L;
    if (at.tv_nsec >= 1000000000L) {
        at.tv_nsec -= 1000000000L;
        at.tv_sec++;
    }
    return at;
}

void copier_await_end(struct cuda_bytes *bytes, unsigned attempt)
{
    struct timespec until = moment_in(2 * COPIER_END_MS);
    int rc = 0;

    while (bytes->attempts == attempt && bytes->state != COPIER_DOWN && rc == 0)
        rc = pthread_cond_timedwait(&bytes->changed, &bytes->mutex, &until);
}

/* ---- watching ------------------------------------------------------------------------------ */

/* How long it may still stay; 0: nothing was moved for so long. */
static uint64_t get_idle_left_ms(struct cuda_bytes *bytes)
{
    uint64_t idle_ms = bytes->options.idle_ms;
    uint64_t now_ms = bytes_now_ms();
    uint64_t until_ms;

    if (idle_ms < LEAST_IDLE_MS)
        idle_ms = LEAST_IDLE_MS;
    if (places_are_pending(bytes))
        return idle_ms;
    until_ms = bytes->last_use_ms + idle_ms;
    return until_ms > now_ms ? until_ms - now_ms : 0;
}

/* Until it is idle, told to go, or gone. */
static void watch(struct cuda_bytes *bytes)
{
    struct pollfd look = {.fd = bytes->socket, .events = POLLIN};

    for (;;) {
        uint64_t left_ms = get_idle_left_ms(bytes);

        if (bytes->killed || bytes->closing || left_ms == 0)
            return;
        if (left_ms > INT32_MAX)
            left_ms = INT32_MAX;
        pthread_mutex_unlock(&bytes->mutex);
        int rc = poll(&look, 1, (int)left_ms);
        pthread_mutex_lock(&bytes->mutex);
        if (rc > 0) /* it never speaks again: it ended, or is not in its right mind */
            break;
    }
    if (!bytes->killed && !bytes->closing) {
        if (complaints_may_log(&bytes->complaints))
            log_warning(
                "%s: the copier (process %d) ended; what it was moving is moved again by a new "
                "one",
                bytes->name, bytes->pid);
        copier_retire(bytes);
    }
}

static int start(struct cuda_bytes *bytes, int *pid)
{
    char why[COPIER_WHY_BYTES] = "";
    int socket_fd = -1, rc;

    pthread_mutex_unlock(&bytes->mutex);
    *pid = start_process(bytes, &socket_fd);
    pthread_mutex_lock(&bytes->mutex);
    bytes->socket = socket_fd; /* for cuda_bytes_free, which ends the waiting */
    rc = *pid < 0 ? *pid : await_hello(bytes, why);
    if (*pid < 0)
        snprintf(why, sizeof(why), "%s", strerror(-*pid));
    if (rc == 0) {
        bytes->pid = *pid;
        bytes->killed = false;
        bytes->last_use_ms = bytes_now_ms();
        bytes->state = COPIER_UP;
        return 0;
    }
    bytes->failed = bytes->attempts;
    bytes->start_error = to_errno(rc);
    if (complaints_may_log(&bytes->complaints))
        log_error("%s: GPU memory cannot be read or written now, its copier does not start: %s%s",
                  bytes->name, why, get_hint(rc));
    return rc;
}

/* Nobody uses anything of it any more. Its memory goes as well: also what a driver that hangs may
 * still write to is not the ring's then. */
static void clean_up(struct cuda_bytes *bytes)
{
    aheads_drop_all(bytes);
    places_fail(bytes);
    slots_clear(bytes);
    while (places_are_held(bytes))
        pthread_cond_wait(&bytes->changed, &bytes->mutex);
    if (fallocate(bytes->ring_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)COPIER_HEADER_BYTES, COPIER_BLOCKS * COPIER_BLOCK_BYTES) < 0)
        log_warning("%s: cannot give the copier's memory back: %s", bytes->name, strerror(errno));
}

static void *run_thread(void *argument)
{
    struct cuda_bytes *bytes = argument;
    bool at_once = true;
    int pid = -1;

    pthread_mutex_lock(&bytes->mutex);
    if (start(bytes, &pid) == 0) {
        pthread_cond_broadcast(&bytes->changed);
        watch(bytes);
        at_once = bytes->killed;
    }
    bytes->state = COPIER_ENDING;
    if (bytes->socket >= 0)
        close(bytes->socket);
    bytes->socket = -1;
    pthread_cond_broadcast(&bytes->changed);
    if (pid > 0)
        end_process(bytes, pid, at_once);
    clean_up(bytes);
    bytes->state = COPIER_DOWN;
    bytes->watched = false;
    pthread_cond_broadcast(&bytes->changed);
    pthread_mutex_unlock(&bytes->mutex);
    return NULL;
}

static int start_watched(struct cuda_bytes *bytes)
{
    if (thread_start(NULL, STACK_BYTES, run_thread, bytes) < 0)
        return -ENOMEM;
    bytes->attempts++;
    bytes->state = COPIER_STARTING;
    bytes->watched = true;
    return 0;
}

int copier_need(struct cuda_bytes *bytes)
{
    struct timespec until = moment_in(COPIER_START_MS + 2 * COPIER_END_MS);
    unsigned asked = 0;
    int rc = 0;

    while (rc == 0) {
        if (bytes->closing)
            return -EIO;
        if (bytes->state == COPIER_UP && !bytes->killed) {
            bytes->last_use_ms = bytes_now_ms(); /* it must not leave just now */
            return 0;
        }
        if (asked && bytes->failed == asked)
            return bytes->start_error;
        if (bytes->state == COPIER_DOWN) {
            rc = start_watched(bytes);
            if (rc < 0)
                return rc;
        }
        if (bytes->state == COPIER_STARTING)
            asked = bytes->attempts;
        rc = pthread_cond_timedwait(&bytes->changed, &bytes->mutex, &until);
    }
    return -EIO;
}
