/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsctl_gms - operations of gmsctl on the sockets of GMS clients
 *
 * For gmsctl.c alone. Each returns 0 or a negative errno. tests/python/gms_client.py checks the
 * protocol as clients do; here an answer is only shown, without the ids that the daemon chooses.
 * The sockets lie in GMSFS_TEST_SOCKETS.
 */
#ifndef TOOLS_GMSCTL_GMS_H
#define TOOLS_GMSCTL_GMS_H

#include "gmsctl_arguments.h"
#include "rpc/message.h"

#include <endian.h>
#include <glob.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define GMS_ID_BYTES   256
#define GMS_SOCKET_MS  5000
#define GMS_ROOM_BYTES (1u << 20)

static struct {
    enum message_protocol protocol;
    int socket;
    char id[GMS_ID_BYTES]; /* of the last allocation in an answer */
} gms = {.socket = -1};

/* A store's socket appears a moment after the store. */
static int gms_connect_to(const char *pattern)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int error = -ENOENT;

    for (int tries = 0; error && tries < GMS_SOCKET_MS; tries++) {
        glob_t found;
        if (glob(pattern, 0, NULL, &found) == 0) {
            snprintf(address.sun_path, sizeof address.sun_path, "%s", found.gl_pathv[0]);
            globfree(&found);
            error = connect(gms.socket, (struct sockaddr *)&address, sizeof address) ? -errno : 0;
        }
        if (error)
            usleep(1000);
    }
    return error;
}

static int op_gms(char **arg)
{
    char pattern[4096];
    const char *directory = getenv("GMSFS_TEST_SOCKETS");

    if (!directory)
        die("GMSFS_TEST_SOCKETS is not set", arg[0]);
    gms.protocol = strcmp(arg[0], "v1") == 0 ? MESSAGE_V1 : MESSAGE_V0;
    snprintf(pattern, sizeof pattern, "%s/gms_%s_weights.sock", directory,
             gms.protocol == MESSAGE_V1 ? "[0-9]" : "GPU-*");
    gms.socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return gms.socket < 0 ? -errno : gms_connect_to(pattern);
}

/* Receives all of it. -EPIPE: the peer has closed. */
static int gms_receive(void *to, size_t bytes, int *descriptors)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;

    for (size_t have = 0; have < bytes;) {
        struct iovec part = {(char *)to + have, bytes - have};
        struct msghdr message = {.msg_iov = &part,
                                 .msg_iovlen = 1,
                                 .msg_control = control.bytes,
                                 .msg_controllen = sizeof control.bytes};
        ssize_t got = recvmsg(gms.socket, &message, MSG_CMSG_CLOEXEC);
        if (got <= 0)
            return got < 0 ? -errno : -EPIPE;
        struct cmsghdr *item = CMSG_FIRSTHDR(&message);
        if (item && item->cmsg_type == SCM_RIGHTS) {
            int fd;
            memcpy(&fd, CMSG_DATA(item), sizeof fd);
            close(fd);
            ++*descriptors;
        }
        have += (size_t)got;
    }
    return 0;
}

static void gms_remember(struct message_text id)
{
    if (id.at && gms.protocol == MESSAGE_V0)
        snprintf(gms.id, sizeof gms.id, "%.*s", (int)id.bytes, (const char *)id.at);
}

static void gms_show(const struct message *m, int descriptors)
{
    printf("type %d success %d found %d lock %d slot %llu size %llu of %llu %.*s %.*s %d\n",
           (int)m->type, m->success, m->found, (int)m->lock_type,
           (unsigned long long)m->layout_slot.magnitude, (unsigned long long)m->size.magnitude,
           (unsigned long long)m->aligned_size.magnitude, (int)m->value.bytes,
           m->value.at ? (const char *)m->value.at : "", (int)m->error.bytes,
           m->error.at ? (const char *)m->error.at : "", descriptors);
}

static int gms_take_answer(void)
{
    static uint8_t payload[GMS_ROOM_BYTES];
    uint32_t header;
    struct message message, item;
    int descriptors = 0;
    int error = gms_receive(&header, sizeof header, &descriptors);

    if (error)
        return error;
    size_t bytes = be32toh(header);
    if (bytes > sizeof payload)
        return -EMSGSIZE;
    error = gms_receive(payload, bytes, &descriptors);
    if (!error)
        error = message_decode(gms.protocol, payload, bytes, &message);
    if (error)
        return error;
    gms_show(&message, descriptors);
    gms_remember(message.allocation_id);
    while (message_next_item(&message.list, &item)) {
        printf("  %.*s slot %llu size %llu\n", (int)item.key.bytes,
               item.key.at ? (const char *)item.key.at : "",
               (unsigned long long)item.layout_slot.magnitude,
               (unsigned long long)item.aligned_size.magnitude);
        gms_remember(item.allocation_id);
    }
    return message.type == MESSAGE_ERROR_RESPONSE ? -EPROTO : 0;
}

static int gms_ask(const struct message *message)
{
    struct message_buffer buffer = {0};
    int error = message_encode(&buffer, gms.protocol, message);
    size_t bytes = buffer.size_bytes - buffer.begin_bytes;

    if (!error &&
        send(gms.socket, buffer.bytes + buffer.begin_bytes, bytes, MSG_NOSIGNAL) != (ssize_t)bytes)
        error = -errno;
    message_buffer_free(&buffer);
    return error ? error : gms_take_answer();
}

static int op_gms_lock(char **arg)
{
    struct message message = {.type = MESSAGE_HANDSHAKE_REQUEST,
                              .lock_type = strcmp(arg[0], "rw") == 0 ? MESSAGE_RW : MESSAGE_RO};

    if (gms.protocol == MESSAGE_V0)
        message.timeout_ms = message_integer(number(arg[1]));
    return gms_ask(&message);
}

/* KEY is the allocation's id in V1; in V0 it is the last one in an answer. */
static int op_gms_ask(char **arg)
{
    static const struct {
        const char *name;
        enum message_type type;
    } known[] = {{"allocate", MESSAGE_ALLOCATE_REQUEST},
                 {"export", MESSAGE_EXPORT_REQUEST},
                 {"free", MESSAGE_FREE_REQUEST},
                 {"list", MESSAGE_LIST_ALLOCATIONS_REQUEST},
                 {"commit", MESSAGE_COMMIT_REQUEST},
                 {"abort", MESSAGE_ABORT_REQUEST},
                 {"put", MESSAGE_METADATA_PUT_REQUEST},
                 {"get", MESSAGE_METADATA_GET_REQUEST},
                 {"delete", MESSAGE_METADATA_DELETE_REQUEST},
                 {"keys", MESSAGE_METADATA_LIST_REQUEST},
                 {"state", MESSAGE_GET_ALLOCATION_STATE_REQUEST},
                 {"hash", MESSAGE_GET_MEMORY_LAYOUT_HASH_REQUEST}};
    struct message message = {.size = message_integer(number(arg[2])),
                              .aligned_size = message_integer(number(arg[2])),
                              .offset_bytes = message_integer(0),
                              .tag = message_text("t"),
                              .key = message_text(arg[1]),
                              .prefix = message_text(""),
                              .value = message_text("value")};

    message.allocation_id = message_text(gms.protocol == MESSAGE_V1 ? arg[1] : gms.id);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, arg[0]) == 0)
            message.type = known[i].type;
    if (!message.type)
        die("no such request", arg[0]);
    if (message.type == MESSAGE_LIST_ALLOCATIONS_REQUEST)
        message.tag = (struct message_text){0};
    return gms_ask(&message);
}

/* Succeeds when the server has closed. */
static int op_gms_closed(char **arg)
{
    char byte;

    (void)arg;
    return recv(gms.socket, &byte, 1, 0) == 0 ? 0 : -EISCONN;
}

#endif
