/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/daemon_ask.h"

#include "ask/ask.h"
#include "base/child.h"
#include "base/digest.h"
#include "base/file_io.h"
#include "cli/cli.h"
#include "cli/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPLY_TIMEOUT_S 5
#define ASK_AGAIN_MS    10
#define CONNECT_MS      3000

static int open_socket(void)
{
    const struct timeval limit = {.tv_sec = REPLY_TIMEOUT_S};
    int fd = ask_socket(0), error;

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0)
        return fd;
    error = -errno;
    close(fd);
    return error;
}

static int connect_to(int fd, const char *path)
{
    SCOPED_CLOSE int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

    return root < 0 ? -errno : ask_connect(fd, root, path);
}

/* Returns the socket, or closes it and returns the error. */
static int settle_socket(int fd, int error)
{
    if (!error)
        return fd;
    close(fd);
    return error;
}

int daemon_connect(const char *path)
{
    int fd = open_socket();

    return fd < 0 ? fd : settle_socket(fd, connect_to(fd, path));
}

struct connecting {
    const char *path;
    int fd;
};

static void connect_in_child(const void *context, int to)
{
    const struct connecting *own = context;
    int error = connect_to(own->fd, own->path);
    ssize_t put = write(to, &error, sizeof(error));

    (void)put;
}

/* Connects in a child, which shares the socket, because the lookup of `.fds` may hang. */
static int connect_in_time(const char *path)
{
    struct connecting own = {.path = path, .fd = open_socket()};
    int error, said = 0;

    if (own.fd < 0)
        return own.fd;
    error = child_ask(connect_in_child, &own, CONNECT_MS, &said);
    return settle_socket(own.fd, error ? error : said);
}

/* Sends a request and receives the answer: its bytes, or a negative errno. */
static ssize_t converse(int fd, const struct gmsfs_fds_request *request, void *answer, size_t room)
{
    ssize_t got;

    if (send(fd, request, sizeof(*request), MSG_NOSIGNAL) < 0)
        return -errno;
    do
        got = recv(fd, answer, room, 0);
    while (got < 0 && errno == EINTR && !signals_get());
    if (got < 0)
        return errno == EAGAIN ? -ETIMEDOUT : -errno;
    return got;
}

static bool is_broken(ssize_t error)
{
    return error == -EPIPE || error == -ECONNRESET;
}

/* As converse, with any worker of the daemon. A worker that ends breaks the connection, perhaps
 * after it carried the request out, so only requests that may be repeated. The new connection has
 * the number `fd` too. */
static ssize_t converse_until_answered(const char *path, int fd,
                                       const struct gmsfs_fds_request *request, void *answer,
                                       size_t room)
{
    uint64_t start_ms = clock_now_ms();
    ssize_t got = converse(fd, request, answer, room);
    int other;

    while (got == 0 || is_broken(got)) {
        if (signals_get())
            return -EINTR;
        if (cli_left_ms(start_ms, GMSFS_FDS_DRAIN_MS) == 0)
            return -ECONNRESET;
        clock_pause_ms(ASK_AGAIN_MS);
        other = daemon_connect(path);
        if (other < 0)
            return other;
        dup3(other, fd, O_CLOEXEC);
        close(other);
        got = converse(fd, request, answer, room);
    }
    return got;
}

/* True if no process listens any more: the error of connecting after a connection broke. */
static bool is_closed(ssize_t error)
{
    return error == -ECONNREFUSED || error == -ENOENT;
}

static bool is_gone(ssize_t error)
{
    return is_closed(error) || error == -ENOTCONN || error == -ECONNABORTED;
}

/* An answer: a header, and the body that some answers have. */
struct answer {
    size_t bytes; /* of the following */
    struct gmsfs_fds_header header;
    union {
        struct gmsfs_fds_drain drain;
        struct gmsfs_fds_fence fence;
    };
};

#define ANSWER_BYTES (sizeof(struct answer) - offsetof(struct answer, header))

/* `path`: of the mount, to repeat the request if the connection breaks; NULL: do not. `id`: of a
 * store, a token, or NULL. Parts without an answer are zeros. */
static int exchange(const char *path, int fd, enum gmsfs_fds_op op, const uint8_t *id,
                    uint32_t batch, struct answer *answer)
{
    struct gmsfs_fds_request request = {.version = GMSFS_ABI_VERSION, .op = op, .batch = batch};

    memset(answer, 0, sizeof(*answer));
    if (id)
        memcpy(request.ticket, id, sizeof(request.ticket));
    ssize_t got = path ? converse_until_answered(path, fd, &request, &answer->header, ANSWER_BYTES)
                       : converse(fd, &request, &answer->header, ANSWER_BYTES);
    if (got < 0)
        return (int)got;
    answer->bytes = (size_t)got;
    return answer->bytes < sizeof(answer->header) ? -ECONNRESET : answer->header.error;
}

/* Repeats the request if the connection breaks. */
static int ask_again(const char *path, int fd, enum gmsfs_fds_op op, const uint8_t *id,
                     uint32_t batch, uint64_t *remaining)
{
    struct answer answer;
    int error = exchange(path, fd, op, id, batch, &answer);

    if (remaining)
        *remaining = answer.header.remaining;
    return path && is_gone(error) ? -ECONNRESET : error;
}

int daemon_ask(int fd, enum gmsfs_fds_op op, const uint8_t *id, uint32_t batch, uint64_t *remaining)
{
    return ask_again(NULL, fd, op, id, batch, remaining);
}

/* ---- drains ------------------------------------------------------------------------------ */

/* A worker that ends before it answers may have begun the drain: the next worker knows this
 * process, and sends it the token. */
int daemon_drain_begin(struct daemon_drain *drain, enum gmsfs_fds_op op, const uint8_t id[16],
                       uint32_t batch)
{
    struct answer answer;
    int error = exchange(drain->path, drain->fd, op, id, batch, &answer);

    memcpy(drain->token, answer.drain.token, sizeof(drain->token));
    return is_gone(error) ? -ECONNRESET : error;
}

/* Repeats, because each replaced worker breaks the connection again. */
int daemon_drain_mend(struct daemon_drain *drain)
{
    uint64_t start_ms = clock_now_ms();
    int fd, error = -ECONNRESET;

    if (digest_is_zero(drain->token))
        return error;
    while (cli_left_ms(start_ms, GMSFS_FDS_DRAIN_MS) > 0 && !signals_get()) {
        fd = daemon_connect(drain->path);
        if (is_gone(fd))
            return -ECONNRESET;
        error = fd;
        if (fd >= 0)
            error = daemon_ask(fd, GMSFS_FDS_DRAIN_RESUME, drain->token, 0, NULL);
        if (!error) {
            dup3(fd, drain->fd, O_CLOEXEC); /* the same number, for a thread that polls it */
            close(fd);
            return 0;
        }
        if (fd >= 0)
            close(fd);
        if (fd >= 0 && !is_broken(error))
            return error;
        clock_pause_ms(10);
    }
    return signals_get() ? -EINTR : error;
}

/* The worker closes the connection once it has ended the drain; the kernel closes it if the worker
 * dies. In that case the next worker tells by the token whether the drain is over. */
int daemon_drain_end(struct daemon_drain *drain)
{
    struct pollfd closed = {.fd = drain->fd, .events = POLLIN | POLLRDHUP};

    do {
        shutdown(drain->fd, SHUT_WR);
        if (poll(&closed, 1, GMSFS_FDS_DRAIN_MS) == 0)
            return -ETIMEDOUT;
    } while (daemon_drain_mend(drain) == 0);
    return 0;
}

int daemon_drain_ask(struct daemon_drain *drain, enum gmsfs_fds_op op, uint32_t batch,
                     uint64_t *remaining)
{
    int error = daemon_ask(drain->fd, op, NULL, batch, remaining);

    while (is_broken(error)) {
        error = daemon_drain_mend(drain);
        /* DRAIN_END has finished for good, or the drain was cancelled: the worker knows. */
        if (error == -ECANCELED && op == GMSFS_FDS_DRAIN_END)
            return ask_again(drain->path, drain->fd, op, NULL, 0, remaining);
        if (error)
            break;
        error = daemon_ask(drain->fd, op, NULL, batch, remaining);
    }
    return error;
}

int daemon_ask_once(const char *path, enum gmsfs_fds_op op, const uint8_t *id, uint32_t batch,
                    uint64_t *remaining)
{
    SCOPED_CLOSE int fd = daemon_connect(path);

    return fd < 0 ? fd : ask_again(path, fd, op, id, batch, remaining);
}

int daemon_ask_serve(const char *path, int fd)
{
    return ask_again(path, fd, GMSFS_FDS_SERVE, NULL, 0, NULL);
}

int daemon_ask_unmount(const char *path)
{
    SCOPED_CLOSE int fd = daemon_connect(path);
    struct answer answer;

    if (fd < 0)
        return fd;
    int error = exchange(path, fd, GMSFS_FDS_UNMOUNT, NULL, 0, &answer);
    return is_closed(error) ? 0 : error; /* the daemon closes its socket first */
}

/* Asks the next worker if one ends before it answers, which breaks the connection. */
int daemon_govern(const char *path, int *fd, uint64_t *holder)
{
    uint64_t start_ms = clock_now_ms();
    int error;

    for (;;) {
        *fd = connect_in_time(path);
        error = *fd < 0 ? *fd : daemon_ask(*fd, GMSFS_FDS_GOVERN, NULL, 0, holder);
        if (!error)
            return 0;
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        if (!is_broken(error) || cli_left_ms(start_ms, GMSFS_FDS_DRAIN_MS) == 0)
            return error;
        clock_pause_ms(ASK_AGAIN_MS);
    }
}

/* A daemon that does not know the request answers a header alone. */
int daemon_ask_fence(const char *path, enum gmsfs_fds_op op, const uint8_t token[16],
                     struct gmsfs_fds_fence *answer)
{
    SCOPED_CLOSE int fd = daemon_connect(path);
    struct answer whole = {0};
    int error = fd < 0 ? fd : exchange(NULL, fd, op, token, 0, &whole);

    *answer = whole.fence;
    if (whole.bytes == sizeof(whole.header))
        return -EOPNOTSUPP;
    return error || whole.bytes >= sizeof(whole.header) + sizeof(whole.fence) ? error : -ECONNRESET;
}

/* Returns the pid of the answer's sender, which the kernel adds to each message on request. The
 * request itself asks for nothing, so the answer is an error. */
static int receive_sender(int fd)
{
    const struct gmsfs_fds_request request = {
        .version = GMSFS_ABI_VERSION, .op = GMSFS_FDS_REDEEM, .batch = 1};
    struct gmsfs_fds_header header;
    char control[CMSG_SPACE(sizeof(struct ucred))];
    struct iovec part = {&header, sizeof(header)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct ucred sender;

    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &(int){1}, sizeof(int)) < 0 ||
        send(fd, &request, sizeof(request), MSG_NOSIGNAL) < 0 || recvmsg(fd, &message, 0) < 0)
        return -errno;
    const struct cmsghdr *at = CMSG_FIRSTHDR(&message);
    if (!at || at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_CREDENTIALS)
        return -ECONNRESET; /* end of file, and no message */
    memcpy(&sender, CMSG_DATA(at), sizeof(sender));
    return sender.pid;
}

int daemon_ask_pid(const char *path)
{
    uint64_t start_ms = clock_now_ms();
    int fd, pid;

    for (;;) {
        fd = daemon_connect(path);
        if (fd < 0)
            return fd;
        pid = receive_sender(fd);
        close(fd);
        if (!is_broken(pid) || cli_left_ms(start_ms, REPLY_TIMEOUT_S * 1000) == 0)
            return pid;
        clock_pause_ms(ASK_AGAIN_MS);
    }
}
