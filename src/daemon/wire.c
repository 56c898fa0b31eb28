/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/wire.h"

#include "base/passing.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WIRE_TRIES           10u
#define WIRE_TRIES_IN_FLIGHT 3000u
#define WIRE_PAUSE_NS        1000000

int wire_pair(int fds[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) == 0 ? 0 : -errno;
}

static void close_all(const int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
}

/* ---- one packet ---------------------------------------------------------------------------- */

/* Tries again because a shortage of memory in the kernel passes, as does the moment when this user
 * has too many descriptors in flight, and a lost message would not be sent again. */
static bool try_again(ssize_t done, unsigned *tries)
{
    const struct timespec pause = {.tv_nsec = WIRE_PAUSE_NS};

    if (done >= 0 ||
        (errno != EINTR && errno != ENOMEM && errno != ENOBUFS && errno != ETOOMANYREFS))
        return false;
    if (errno == EINTR)
        return true;
    if (++*tries > (errno == ETOOMANYREFS ? WIRE_TRIES_IN_FLIGHT : WIRE_TRIES))
        return false;
    int error = errno;
    nanosleep(&pause, NULL);
    errno = error;
    return true;
}

/* `once`: neither waits nor tries again. */
static int send_packet(int fd, const void *bytes, size_t size, const int *fds, size_t count,
                       bool once)
{
    union passing rights;
    struct iovec piece = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
    struct msghdr packet = {.msg_iov = &piece, .msg_iovlen = 1};
    unsigned tries = 0;
    ssize_t sent;

    passing_put(&packet, &rights, fds, count);
    do {
        sent = sendmsg(fd, &packet, MSG_NOSIGNAL | (once ? MSG_DONTWAIT : 0));
    } while (!once && try_again(sent, &tries));
    if (sent < 0 && errno == ETOOMANYREFS)
        return -ENFILE;
    if (sent < 0)
        return errno == ECONNRESET ? -EPIPE : -errno;
    return sent == (ssize_t)size ? 0 : -EPROTO;
}

/* The kernel reports once, before the data of the peer, that the peer has ended without reading
 * all. */
static ssize_t receive_once(int fd, struct msghdr *packet)
{
    ssize_t received = recvmsg(fd, packet, MSG_CMSG_CLOEXEC);

    return received < 0 && errno == ECONNRESET ? recvmsg(fd, packet, MSG_CMSG_CLOEXEC) : received;
}

/* *got: bytes; a longer packet is -EPROTO. *count: descriptors, which belong to the caller. *lost:
 * there were more descriptors. */
static int receive_packet(int fd, void *bytes, size_t room, size_t *got, int fds[WIRE_BATCH_MAX],
                          size_t *count, bool *lost)
{
    union passing rights;
    struct iovec piece = {.iov_base = bytes, .iov_len = room};
    struct msghdr packet = {
        .msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = rights.bytes,
        .msg_controllen = sizeof rights.bytes,
    };
    unsigned tries = 0;
    ssize_t received;

    *count = 0;
    do {
        received = receive_once(fd, &packet);
    } while (try_again(received, &tries));
    if (received < 0)
        return errno == ECONNRESET ? -EPIPE : -errno;
    if (received == 0)
        return -EPIPE;
    *count = passing_take(&packet, fds, WIRE_BATCH_MAX);
    *got = (size_t)received;
    *lost = (packet.msg_flags & MSG_CTRUNC) != 0;
    if (!(packet.msg_flags & MSG_TRUNC))
        return 0;
    close_all(fds, *count);
    *count = 0;
    return -EPROTO;
}

/* ---- messages ------------------------------------------------------------------------------ */

int wire_send(int fd, const struct wire_message *message, int passed_fd)
{
    return send_packet(fd, message, sizeof *message, &passed_fd, passed_fd >= 0 ? 1 : 0, false);
}

int wire_receive(int fd, struct wire_message *message, int *passed_fd)
{
    int fds[WIRE_BATCH_MAX];
    size_t got = 0, count = 0;
    bool lost = false;
    int error = receive_packet(fd, message, sizeof *message, &got, fds, &count, &lost);

    *passed_fd = -1;
    if (error)
        return error;
    if (got != sizeof *message || count > 1) {
        close_all(fds, count);
        return -EPROTO;
    }
    if (count == 1)
        *passed_fd = fds[0];
    return lost && count == 0 ? -EMFILE : 0;
}

void wire_set_uuid(struct wire_message *message, const uint8_t uuid[16])
{
    memcpy(&message->id, uuid, 8);
    memcpy(&message->value, uuid + 8, 8);
}

void wire_get_uuid(const struct wire_message *message, uint8_t uuid[16])
{
    memcpy(uuid, &message->id, 8);
    memcpy(uuid + 8, &message->value, 8);
}

/* ---- batches ------------------------------------------------------------------------------- */

static size_t batch_bytes(uint64_t count)
{
    return offsetof(struct wire_batch, memories) + (size_t)count * sizeof(struct wire_memory);
}

static int send_batch(int fd, const struct wire_batch *batch, const int *fds, bool once)
{
    uint64_t count = batch->head.value;

    if (count == 0 || count > WIRE_BATCH_MAX)
        return -EINVAL;
    return send_packet(fd, batch, batch_bytes(count), fds,
                       batch->head.type == WIRE_KEEP ? (size_t)count : 0, once);
}

int wire_send_batch(int fd, const struct wire_batch *batch, const int *fds)
{
    return send_batch(fd, batch, fds, false);
}

int wire_try_batch(int fd, const struct wire_batch *batch, const int *fds)
{
    return send_batch(fd, batch, fds, true);
}

static int check_batch(const struct wire_batch *batch, size_t got, size_t fd_count, bool lost)
{
    if (got < sizeof batch->head)
        return -EPROTO;
    uint64_t count = batch->head.value;
    if (count == 0 || count > WIRE_BATCH_MAX || got != batch_bytes(count))
        return -EPROTO;
    if (batch->head.type == WIRE_KEEP && lost && fd_count < count)
        return -EMFILE;
    return fd_count == (batch->head.type == WIRE_KEEP ? count : 0) ? 0 : -EPROTO;
}

int wire_receive_batch(int fd, struct wire_batch *batch, int fds[WIRE_BATCH_MAX])
{
    size_t got = 0, count = 0;
    bool lost = false;
    int error = receive_packet(fd, batch, sizeof *batch, &got, fds, &count, &lost);

    if (error)
        return error;
    error = check_batch(batch, got, count, lost);
    if (error)
        close_all(fds, count);
    return error;
}
