/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hog_sockets - the takers of hog that use sockets: of `.fds`, and of a GMS client
 *
 * For hog.c alone. Each taker takes one, and returns 0 or a negative errno.
 */
#ifndef TOOLS_HOG_SOCKETS_H
#define TOOLS_HOG_SOCKETS_H

#include "rpc/message.h"
#include "tool.h"

#include <gmsfs_abi.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MAX_CONNECTIONS 2048u /* twice the bound */
#define UNREAD_REQUESTS 250u  /* of a connection: as many as its socket takes */
#define UNREAD_WAIT_MS  1000
#define MOVE_MS         3000 /* interval of reading a part of the unread answers */
#define MOVE_BYTES      (64u << 10)

static const char *mount;
static char path[PATH_MAX];

static const char *in_mount(const char *name)
{
    snprintf(path, sizeof path, "%s/%s", mount, name);
    return path;
}

static int connect_to(const char *name, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", name);
    return connect(fd, (const struct sockaddr *)&address, sizeof address) < 0 ? -errno : fd;
}

static int connect_to_mount(void)
{
    return connect_to(in_mount(".fds"), SOCK_SEQPACKET);
}

/* One object serves for all: each registration has a descriptor of its own. */
static int take_region(void)
{
    static int fd = -1, object = -1;
    static unsigned number;
    struct gmsfs_fds_region_request request = {
        .request = {.version = GMSFS_ABI_VERSION, .op = GMSFS_FDS_REGION_REGISTER},
        .kind = GMSFS_REGION_SYSTEM,
        .uid = GMSFS_REGION_SELF,
        .key_bytes = 1,
        .key = "k",
        .byte_size = 1,
    };
    struct {
        struct gmsfs_fds_header header;
        struct gmsfs_fds_region_answer answer;
    } answer;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof object)] = {0};
    struct iovec part = {&request, sizeof request};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);

    if (fd < 0) {
        object = memfd_create("hog", MFD_CLOEXEC);
        fd = connect_to_mount();
        if (object < 0 || ftruncate(object, 1) < 0 || fd < 0)
            tool_die("no object, or no connection: %s", strerror(errno));
    }
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof object);
    memcpy(CMSG_DATA(rights), &object, sizeof object);
    request.name_bytes = (uint32_t)snprintf(request.name, sizeof request.name, "hog-%u", number++);
    if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0 || recv(fd, &answer, sizeof answer, 0) <= 0)
        return -errno;
    return answer.header.error;
}

static int take_connection(void)
{
    static unsigned connections;
    int fd = connect_to_mount();
    struct gmsfs_fds_request request = {
        .version = GMSFS_ABI_VERSION, .op = GMSFS_FDS_REDEEM, .batch = 1};
    struct gmsfs_fds_header answer; /* a served request fails, because this ticket does not exist */

    if (fd < 0)
        return fd;
    if (send(fd, &request, sizeof request, MSG_NOSIGNAL) < 0 ||
        recv(fd, &answer, sizeof answer, 0) <= 0)
        return -ECONNREFUSED;
    if (answer.error != -ESTALE)
        return answer.error;
    /* At the bound the daemon closed its oldest connection for this one. */
    return ++connections > MAX_CONNECTIONS ? -EINPROGRESS : 0;
}

/* Takes a connection that sends requests and does not read the answers. */
static int take_unread(void)
{
    static unsigned connections;
    struct gmsfs_fds_request request = {.version = GMSFS_ABI_VERSION, .op = GMSFS_FDS_FENCE_STATUS};
    int fd = connect_to_mount();
    struct pollfd answered = {.fd = fd, .events = POLLIN};
    char byte;

    if (fd < 0)
        return fd;
    if (send(fd, &request, sizeof request, MSG_NOSIGNAL) < 0 ||
        poll(&answered, 1, UNREAD_WAIT_MS) <= 0 || recv(fd, &byte, 1, MSG_PEEK) <= 0)
        return -ECONNREFUSED;
    for (unsigned i = 0; i < UNREAD_REQUESTS; i++)
        if (send(fd, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            poll(NULL, 0, 1); /* the daemon reads some, as long as it answers */
    return ++connections > MAX_CONNECTIONS ? -EINPROGRESS : 0;
}

/* ---- unread answers: each connection of a GMS client has one -------------------------------- */

static int answers[MAX_CONNECTIONS];
static unsigned answer_count;

static int say(int fd, const struct message *message)
{
    struct message_buffer frame = {0};
    int error = message_encode(&frame, MESSAGE_V0, message);
    ssize_t sent = error ? 0 : send(fd, frame.bytes, frame.size_bytes, MSG_NOSIGNAL);

    if (sent < 0)
        error = -errno;
    message_buffer_free(&frame);
    return error;
}

/* Looks at the next answer, and leaves it there: unread answers take the daemon's memory. */
static int peek_refusal(int fd)
{
    char head[512];
    ssize_t size = recv(fd, head, sizeof head, MSG_PEEK);

    if (size <= 0)
        return size < 0 ? -errno : -ECONNRESET;
    if (!memmem(head, (size_t)size, "error_response", strlen("error_response")))
        return 0;
    return memmem(head, (size_t)size, "share of a bound", strlen("share of a bound")) ? -EDQUOT
                                                                                      : -ENOMEM;
}

/* Begins a session of a GMS reader; a negative errno if it was refused. */
static int begin_gms_session(void)
{
    int fd = connect_to(mount, SOCK_STREAM), error;
    char greeting[256];

    if (fd < 0)
        return fd;
    error = say(fd, &(struct message){.type = MESSAGE_HANDSHAKE_REQUEST, .lock_type = MESSAGE_RO});
    if (error == 0 && recv(fd, greeting, sizeof greeting, 0) <= 0)
        error = -ECONNREFUSED;
    return error ? error : fd;
}

static int take_answer(void)
{
    int fd = begin_gms_session();
    int error = fd < 0 ? fd : 0;

    if (answer_count == MAX_CONNECTIONS)
        tool_die("frames: never refused");
    if (error == 0)
        error = say(fd, &(struct message){.type = MESSAGE_METADATA_GET_REQUEST,
                                          .key = message_text("large")});
    if (error == 0)
        error = peek_refusal(fd);
    if (error == 0)
        answers[answer_count++] = fd;
    return error;
}

/* Takes a session that sends requests, reads no answer, and ends. */
static int take_session_unread(void)
{
    static unsigned connections;
    int fd = begin_gms_session();
    int error = fd < 0 ? fd : 0;

    for (unsigned i = 0; i < UNREAD_REQUESTS && error == 0; i++)
        error = say(fd, &(struct message){.type = MESSAGE_GET_LOCK_STATE_REQUEST});
    if (error == 0)
        shutdown(fd, SHUT_WR);
    return error == 0 && ++connections > MAX_CONNECTIONS ? -EINPROGRESS : error;
}

/* Reads a little now and then: a client that reads nothing at all is disconnected after a while. */
static void keep_answers(void)
{
    static char bytes[MOVE_BYTES];

    for (unsigned i = 0; i < answer_count; i++)
        recv(answers[i], bytes, sizeof bytes, MSG_DONTWAIT);
}

#endif
