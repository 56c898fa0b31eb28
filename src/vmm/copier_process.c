/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copier_process - the copier's process: its start, the thread that watches it, its end
 *
 * The thread that starts the process stays until it has ended: PR_SET_PDEATHSIG refers to the
 * thread that started a process, and threads of a pool come and go. The copier is an exec of this
 * very program, even if the file was replaced meanwhile, because the driver does not survive
 * fork(2).
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/test_hooks.h"
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

/* Gives it the socket, the ring, and stderr for messages of its libraries. */
static int prepare_files(posix_spawn_file_actions_t *actions, int socket_fd, int ring_fd)
{
    int error = posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDWR, 0);

    if (!error)
        error = posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, "/dev/null", O_RDWR, 0);
    if (!error)
        error = posix_spawn_file_actions_adddup2(actions, socket_fd, COPIER_SOCKET_FD);
    if (!error)
        error = posix_spawn_file_actions_adddup2(actions, ring_fd, COPIER_RING_FD);
    if (!error)
        error = posix_spawn_file_actions_addclosefrom_np(actions, COPIER_RING_FD + 1);
    return error;
}

static int spawn(const struct copier_client *client, int socket_fd, int ring_fd)
{
    char program[] = "gmsfs", command[] = COPIER_COMMAND, device[sizeof(client->name)];
    char *argv[] = {program, command, device, NULL};
    /* tests: another program that has the copier */
    const char *executable = hook_text("GMSFS_COPIER_EXE", SELF_EXECUTABLE);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t pid;

    snprintf(device, sizeof(device), "%s", client->options.pci_id);
    if (posix_spawn_file_actions_init(&actions))
        return -ENOMEM;
    if (posix_spawnattr_init(&attributes)) {
        posix_spawn_file_actions_destroy(&actions);
        return -ENOMEM;
    }
    int error = prepare_attributes(&attributes);
    if (!error)
        error = prepare_files(&actions, socket_fd, ring_fd);
    if (!error)
        error = posix_spawn(&pid, executable, &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return error ? -error : pid;
}

/* Moves a descriptor beyond the numbers that the copier's descriptors get. */
static int move_high(int *fd)
{
    int high = fcntl(*fd, F_DUPFD_CLOEXEC, FIRST_HIGH_FD);

    if (high < 0)
        return -errno;
    close(*fd);
    *fd = high;
    return 0;
}

/* Returns the pid, and our end of the socket. */
static int start_process(const struct copier_client *client, int *socket_fd)
{
    int ends[2], ring_fd, pid;

    ring_fd = fcntl(client->ring_fd, F_DUPFD_CLOEXEC, FIRST_HIGH_FD);
    if (ring_fd < 0)
        return -errno;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        pid = -errno;
        close(ring_fd);
        return pid;
    }
    pid = move_high(&ends[1]);
    if (pid == 0)
        pid = spawn(client, ends[1], ring_fd);
    close(ends[1]);
    close(ring_fd);
    if (pid < 0)
        close(ends[0]);
    else
        *socket_fd = ends[0];
    return pid;
}

/* Logs why it does not start, and the remedy. */
static void tell_no_start(const struct copier_client *client, int error, const char *why)
{
    const char *tool = client->options.tool, *hint = " and dmesg may tell more";

    if (error == -ENOMEM) {
        tool = "";
        hint = "its context takes half a gigabyte of the GPU: free some of it, or mount with a "
               "smaller size=";
    } else if (error == -ENODEV || error == -ELIBBAD) {
        hint = " lists the GPUs";
    }
    log_error("%s: GPU memory cannot be read or written now, its copier does not start: %s; %s%s",
              client->name, why, tool, hint);
}

static int to_errno(int error)
{
    if (error == -ELIBBAD)
        return -ENODEV;
    return error == -ENOMEM || error == -ENODEV || error == -EMFILE ? error : -EIO;
}

/* Waits until it is ready, or its reason why not, or waiting is useless. */
static int await_hello(struct copier_client *client, char *why)
{
    struct pollfd look = {.fd = client->socket, .events = POLLIN};
    struct copier_hello hello;
    char message[sizeof(hello) + 1];
    int error = 0;

    snprintf(why, COPIER_WHY_BYTES, "it did not answer within %u s", COPIER_START_MS / 1000);
    if (!client->closing) {
        pthread_mutex_unlock(&client->mutex);
        error = poll(&look, 1, (int)COPIER_START_MS);
        pthread_mutex_lock(&client->mutex);
    }
    if (error <= 0)
        return -EIO;
    ssize_t got = recv(look.fd, message, sizeof(message), MSG_DONTWAIT);
    snprintf(why, COPIER_WHY_BYTES, "it ended before it could work");
    if (got <= 0)
        return -EIO;
    error = copier_check_hello(message, (size_t)got, &hello);
    if (error == 0) {
        snprintf(why, COPIER_WHY_BYTES, "%s", hello.why);
        return hello.error;
    }
    snprintf(why, COPIER_WHY_BYTES, "its first message is invalid");
    return -EIO;
}

/* ---- end ----------------------------------------------------------------------------------- */

static bool is_reaped(struct copier_client *client, int pid, unsigned within_ms)
{
    uint64_t until_ms = clock_now_ms() + within_ms;
    bool reaped = false;

    pthread_mutex_unlock(&client->mutex);
    for (;;) {
        int error = waitpid(pid, NULL, WNOHANG);

        reaped = error == pid || (error < 0 && errno != EINTR);
        if (reaped || clock_now_ms() >= until_ms)
            break;
        clock_pause_ms(REAP_LOOK_MS);
    }
    pthread_mutex_lock(&client->mutex);
    return reaped;
}

/* Ends the process, which ends by itself when our end of the socket is closed, unless it hangs. */
static void end_process(struct copier_client *client, int pid, bool at_once)
{
    bool told = false;

    if (!at_once && is_reaped(client, pid, COPIER_END_MS))
        return;
    kill(pid, SIGKILL);
    while (!is_reaped(client, pid, COPIER_END_MS)) {
        if (!told)
            log_error("%s: the copier (process %d) hangs in the driver and cannot even be killed; "
                      "its mapped memory stays allocated until it ends: see %s and dmesg",
                      client->name, pid, client->options.tool);
        told = true;
        if (client->closing)
            return;
    }
}

/* ---- watching ------------------------------------------------------------------------------ */

/* Returns how long it may still stay idle; 0: it was idle too long. */
static uint64_t get_idle_left_ms(struct copier_client *client)
{
    uint64_t idle_ms = client->options.idle_ms;
    uint64_t now_ms = clock_now_ms();

    if (idle_ms < LEAST_IDLE_MS)
        idle_ms = LEAST_IDLE_MS;
    if (client->options.stays || ring_is_pending(client))
        return idle_ms;
    uint64_t until_ms = client->last_use_ms + idle_ms;
    return until_ms > now_ms ? until_ms - now_ms : 0;
}

/* Watches the copier until it is idle, told to end, or gone. */
static void watch(struct copier_client *client)
{
    struct pollfd look = {.fd = client->socket, .events = POLLIN};

    for (;;) {
        uint64_t left_ms = get_idle_left_ms(client);

        if (client->killed || client->closing || left_ms == 0)
            return;
        if (left_ms > INT32_MAX)
            left_ms = INT32_MAX;
        pthread_mutex_unlock(&client->mutex);
        int ready = poll(&look, 1, (int)left_ms);
        pthread_mutex_lock(&client->mutex);
        if (ready > 0) /* it never sends after its hello: it ended, or misbehaves */
            break;
    }
    if (!client->killed && !client->closing) {
        if (complaints_may_log(&client->complaints))
            log_warning("%s: the copier (process %d) ended; a new one repeats its transfers",
                        client->name, client->pid);
        copier_process_retire(client);
    }
}

static int start(struct copier_client *client, int *pid)
{
    char why[COPIER_WHY_BYTES] = "";
    int socket_fd = -1, error;

    pthread_mutex_unlock(&client->mutex);
    *pid = start_process(client, &socket_fd);
    pthread_mutex_lock(&client->mutex);
    /* so that copier_client_free can end the waiting */
    client->socket = socket_fd;
    error = *pid < 0 ? *pid : await_hello(client, why);
    if (*pid < 0)
        snprintf(why, sizeof(why), "%s", strerror(-*pid));
    if (error == 0) {
        client->pid = *pid;
        client->killed = false;
        client->last_use_ms = clock_now_ms();
        client->state = COPIER_UP;
        return 0;
    }
    client->failed = client->attempts;
    client->start_error = to_errno(error);
    if (complaints_may_log(&client->complaints))
        tell_no_start(client, error, why);
    return error;
}

/* Drops all state of the copier, when no thread uses it any more. Also frees the ring's memory: a
 * driver that hangs may still write to the old pages, which are not the ring's then. */
static void clean_up(struct copier_client *client)
{
    readahead_drop_all(client);
    ring_fail_all(client);
    windows_clear(client);
    while (ring_is_held(client))
        pthread_cond_wait(&client->changed, &client->mutex);
    if (fallocate(client->ring_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)COPIER_HEADER_BYTES, COPIER_BLOCKS * COPIER_BLOCK_BYTES) < 0)
        log_warning("%s: cannot give the copier's memory back: %s", client->name, strerror(errno));
}

static void *run_thread(void *argument)
{
    struct copier_client *client = argument;
    bool at_once = true;
    int pid = -1;

    SCOPED_LOCK(&client->mutex);
    if (start(client, &pid) == 0) {
        pthread_cond_broadcast(&client->changed);
        watch(client);
        at_once = client->killed;
    }
    client->state = COPIER_ENDING;
    if (client->socket >= 0)
        close(client->socket);
    client->socket = -1;
    pthread_cond_broadcast(&client->changed);
    if (pid > 0)
        end_process(client, pid, at_once);
    clean_up(client);
    client->state = COPIER_DOWN;
    client->watched = false;
    pthread_cond_broadcast(&client->changed);
    return NULL;
}

int copier_process_start(struct copier_client *client)
{
    if (thread_start(NULL, STACK_BYTES, run_thread, client) < 0)
        return -ENOMEM;
    client->attempts++;
    client->state = COPIER_STARTING;
    client->watched = true;
    return 0;
}

int copier_process_need(struct copier_client *client)
{
    struct timespec until = clock_after_ms(CLOCK_MONOTONIC, COPIER_START_MS + 2 * COPIER_END_MS);
    unsigned asked = 0;
    int error = 0;

    while (error == 0) {
        if (client->closing)
            return -EIO;
        if (client->state == COPIER_UP && !client->killed) {
            /* it must not end just now */
            client->last_use_ms = clock_now_ms();
            return 0;
        }
        if (asked && client->failed == asked)
            return client->start_error;
        if (client->state == COPIER_DOWN) {
            error = copier_process_start(client);
            if (error < 0)
                return error;
        }
        if (client->state == COPIER_STARTING)
            asked = client->attempts;
        error = pthread_cond_timedwait(&client->changed, &client->mutex, &until);
    }
    return -EIO;
}
