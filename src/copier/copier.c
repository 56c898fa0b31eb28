/* SPDX-License-Identifier: Apache-2.0 */
#include "copier/copier.h"

#include "copier/files.h"
#include "copier/gpu.h"
#include "copier/lanes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS 4u

struct copier {
    struct copier_shared *shared;
    const struct copier_gpu *driver;
    void *gpu; /* the driver's */
    struct files *files;
    struct lanes *lanes;
};

/* ---- requests ------------------------------------------------------------------------------ */

static void *block_of(const struct copier *copier, unsigned entry)
{
    return (char *)copier->shared + COPIER_HEADER_BYTES + entry * COPIER_BLOCK_BYTES;
}

static void put_result(struct copier *copier, const struct copier_request *request, int error,
                       const char *why)
{
    struct copier_result *result = &copier->shared->results[request->entry];

    copier_put_result(result, request->sequence, error, why);
    syscall(SYS_futex, &result->done, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Called by a lane. */
static void finish_move(void *context, const struct copier_request *request, int error,
                        const char *why)
{
    put_result(context, request, error, why);
}

static bool is_move(const struct copier_request *request)
{
    return request->act == COPIER_MOVE_OUT || request->act == COPIER_MOVE_IN;
}

static int do_request(struct copier *copier, void *stream, const struct copier_request *request,
                      int fd, char *why)
{
    switch (request->act) {
    case COPIER_MAP:
        return copier->driver->map(copier->gpu, request->window, fd, request->bytes, why);
    case COPIER_UNMAP:
        return copier->driver->unmap(copier->gpu, request->window, why);
    case COPIER_FORGET:
        return files_forget(copier->files, request->file);
    default:
        return copier->driver->copy(copier->gpu, stream, request, block_of(copier, request->entry),
                                    why);
    }
}

/* Receives one request and the descriptor that came with it (-1: none). 0; -ENOTCONN: the worker
 * has gone; -EINVAL: it is not from our worker. */
static int receive(struct copier_request *request, int *fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    char message[sizeof(*request) + 1]; /* one byte more, to notice longer messages */
    struct iovec iov = {.iov_base = message, .iov_len = sizeof(message)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control.bytes)};
    ssize_t got;

    *fd = -1;
    do
        got = recvmsg(COPIER_SOCKET_FD, &msg, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return -ENOTCONN;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&msg);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(fd, CMSG_DATA(header), sizeof(*fd));
    return copier_check_request(message, (size_t)got, *fd >= 0, request);
}

static void *run_thread(void *argument)
{
    struct copier *copier = argument;
    void *stream = NULL;
    struct copier_request request;
    char why[COPIER_WHY_BYTES];
    int fd, error;
    int entered = copier->driver->enter(copier->gpu, &stream, why);

    for (;;) {
        error = receive(&request, &fd);
        if (error < 0)
            break;
        if (is_move(&request)) {
            if (lanes_add(copier->lanes, &request, fd))
                continue;
            fd = -1;
            error = -EINVAL;
            break;
        }
        if (entered == 0) {
            why[0] = '\0';
            error = do_request(copier, stream, &request, fd, why);
        } else {
            error = entered;
        }
        if (fd >= 0)
            close(fd);
        put_result(copier, &request, error, why);
    }
    if (fd >= 0)
        close(fd);
    /* the worker notices, and starts a new one */
    if (error != -ENOTCONN)
        _exit(1);
    if (entered == 0)
        copier->driver->leave(copier->gpu, stream);
    return NULL;
}

/* ---- beginning and end --------------------------------------------------------------------- */

/* Ties the process to the worker's life; a worker that ended before has hung up. */
static void begin_process(void)
{
    struct pollfd worker = {.fd = COPIER_SOCKET_FD};

    prctl(PR_SET_NAME, COPIER_COMM);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0); /* inherited; the rings have huge pages */
    if (poll(&worker, 1, 0) > 0 && (worker.revents & POLLHUP))
        _exit(1);
    signal(SIGINT, SIG_IGN); /* from a terminal: the keeper decides */
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
}

static int open_shared(struct copier *copier)
{
    struct stat st;

    if (fstat(COPIER_RING_FD, &st) < 0 || st.st_size != (off_t)COPIER_SHARED_BYTES)
        return -EINVAL;
    void *at =
        mmap(NULL, COPIER_SHARED_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, COPIER_RING_FD, 0);
    if (at == MAP_FAILED)
        return -errno;
    copier->shared = at;
    return copier->shared->magic == COPIER_MAGIC ? 0 : -EINVAL;
}

static int open_gpu(struct copier *copier, copier_find_gpu find, char *why)
{
    char driver[sizeof(copier->shared->driver)];

    memcpy(driver, copier->shared->driver, sizeof(driver));
    driver[sizeof(driver) - 1] = '\0';
    copier->driver = find(driver);
    if (!copier->driver) {
        snprintf(why, COPIER_WHY_BYTES, "it knows no driver called '%s'", driver);
        return -EINVAL;
    }
    int error = copier->driver->open(copier->shared->uuid, block_of(copier, 0),
                                     COPIER_BLOCKS * COPIER_BLOCK_BYTES, &copier->gpu, why);
    if (error < 0)
        return error;
    copier->files = files_new(copier->driver, copier->gpu);
    if (copier->files)
        copier->lanes = lanes_new(copier->driver, copier->gpu, copier->files, finish_move, copier);
    if (copier->lanes)
        return 0;
    snprintf(why, COPIER_WHY_BYTES, "out of memory");
    return -ENOMEM;
}

static int say_hello(int error, const char *why)
{
    struct copier_hello hello = {.magic = COPIER_MAGIC, .error = error};

    snprintf(hello.why, sizeof(hello.why), "%s", why);
    return send(COPIER_SOCKET_FD, &hello, sizeof(hello), MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void serve(struct copier *copier)
{
    pthread_t threads[THREADS];
    unsigned count = 0;

    while (count < THREADS - 1 && pthread_create(&threads[count], NULL, run_thread, copier) == 0)
        count++;
    run_thread(copier);
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

int copier_main(int argc, char **argv, copier_find_gpu find)
{
    struct copier copier = {0};
    char why[COPIER_WHY_BYTES] = "";
    int error = open_shared(&copier);

    (void)argc;
    (void)argv;
    if (error < 0) {
        fputs("gmsfs: the copier is started by a mount of GPU memory, not by hand\n", stderr);
        return 2;
    }
    begin_process();
    error = open_gpu(&copier, find, why);

    /* From here on no other process may look into this one, which will have all users' bytes. Not
     * before, because the driver reads its own process in /proc when it starts. */

    prctl(PR_SET_DUMPABLE, 0);
    if (say_hello(error, why) < 0 || error < 0)
        _exit(1);
    serve(&copier);
    lanes_free(copier.lanes);
    files_free(copier.files);
    copier.driver->close(copier.gpu);
    _exit(0);
    /* the driver needs none of the libraries' exit handlers */
}
