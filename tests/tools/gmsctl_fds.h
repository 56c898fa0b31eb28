/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsctl_fds - operations of gmsctl on `.fds` and on its descriptors
 *
 * For gmsctl.c alone. Each returns 0 or a negative errno.
 */
#ifndef TOOLS_GMSCTL_FDS_H
#define TOOLS_GMSCTL_FDS_H

#include "gmsctl_arguments.h"

#include "gmsctl_files.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* An earlier connection stays open: this is how floods are made. */
static int op_connect(char **arg)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int directory = open(arg[0], O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0)
        return -errno;
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/.fds", directory);
    s.socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int error = s.socket < 0 ? -errno : 0;
    if (!error)
        error = result(connect(s.socket, (struct sockaddr *)&address, sizeof address));
    close(directory);
    return error;
}

static int op_disconnect(char **arg)
{
    (void)arg;
    return result(close(s.socket));
}

static int op_send(char **arg)
{
    struct bytes from = bytes_of(arg[0]);
    ssize_t sent = send(s.socket, from.data, from.size, MSG_DONTWAIT | MSG_NOSIGNAL);
    free(from.data);
    return result(sent);
}

static int send_request(const char *ticket, uint64_t batch)
{
    struct gmsfs_fds_request request = {
        .version = GMSFS_ABI_VERSION, .op = GMSFS_FDS_REDEEM, .batch = (uint32_t)batch};
    id_of(ticket, s.ticket, request.ticket);
    return result(send(s.socket, &request, sizeof request, MSG_NOSIGNAL));
}

static int op_request(char **arg)
{
    return send_request(arg[0], number(arg[1]));
}

static const char *name_of_result(long value)
{
    return value < 0 ? strerrorname_np(errno) : "ok";
}

/* Prints the rights that this descriptor gives to its memory. */
static void print_powers(int fd)
{
    char path[64];
    struct stat stat;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int flags = fcntl(fd, F_GETFL) & O_ACCMODE;
    fstat(fd, &stat);
    printf(" access=%s mode=%o seals=%x",
           flags == O_RDWR     ? "rw"
           : flags == O_RDONLY ? "r"
                               : "w",
           stat.st_mode & 07777, (unsigned)fcntl(fd, F_GET_SEALS));
    printf(" shrink=%s", name_of_result(ftruncate(fd, stat.st_size / 2)));
    int again = open(path, O_RDWR | O_CLOEXEC);
    printf(" reopen=%s ino=%llu", name_of_result(again), (unsigned long long)stat.st_ino);
    if (again >= 0)
        close(again);
}

struct fds_message {
    struct gmsfs_fds_header header;
    struct gmsfs_fds_item items[GMSFS_BATCH_MAX];
    char tags[GMSFS_FDS_TAGS_MAX]; /* after the last item */
};

/* Receives one message and prints its items. Returns the number of descriptors, or a negative
 * errno. */
static int receive(struct fds_message *message)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int) * GMSFS_BATCH_MAX)];
    struct iovec room = {message, sizeof *message};
    struct msghdr header = {.msg_iov = &room,
                            .msg_iovlen = 1,
                            .msg_control = control,
                            .msg_controllen = sizeof control};
    int fds[GMSFS_BATCH_MAX], count = 0;
    memset(message, 0, sizeof *message);
    ssize_t got = recvmsg(s.socket, &header, MSG_CMSG_CLOEXEC);
    if (got <= 0)
        return got < 0 ? -errno : -ECONNRESET;
    struct cmsghdr *c = CMSG_FIRSTHDR(&header);
    if (c && c->cmsg_type == SCM_RIGHTS) {
        count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), (size_t)count * sizeof(int));
    }
    for (int i = 0; i < count && s.memory_count < MAX_DESCRIPTORS; i++) {
        const struct gmsfs_fds_item *item = &message->items[i];
        s.memory[s.memory_count++] = fds[i];
        printf("item rank=%llu slot=%llu size=%llu aligned=%llu", (unsigned long long)item->rank,
               (unsigned long long)item->slot, (unsigned long long)item->size_bytes,
               (unsigned long long)item->aligned_bytes);
        print_powers(fds[i]);
        if (item->tag_at != GMSFS_FDS_NO_TAG)
            printf(" tag=%s", (const char *)(message->items + count) + item->tag_at);
        putchar('\n');
    }
    printf("message count=%u descriptors=%d remaining=%llu truncated=%d\n", message->header.count,
           count, (unsigned long long)message->header.remaining,
           (header.msg_flags & MSG_CTRUNC) != 0);
    return message->header.error ? message->header.error : count;
}

static int op_receive(char **arg)
{
    static struct fds_message message;
    (void)arg;
    int count = receive(&message);
    return count < 0 ? count : 0;
}

static int op_redeem(char **arg)
{
    static struct fds_message message;
    int count = send_request(arg[0], number(arg[1]));
    do {
        if (count >= 0)
            count = receive(&message);
    } while (count >= 0 && message.header.remaining > 0);
    return count < 0 ? count : 0;
}

/* Waits for the end of a drain. */
static uint32_t op_named(const char *name)
{
    static const struct {
        const char *name;
        enum gmsfs_fds_op op;
    } known[] = {{"drain", GMSFS_FDS_DRAIN},   {"drain-end", GMSFS_FDS_DRAIN_END},
                 {"serve", GMSFS_FDS_SERVE},   {"fence", GMSFS_FDS_FENCE_STATUS},
                 {"govern", GMSFS_FDS_GOVERN}, {"log", GMSFS_FDS_LOG}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) == 0)
            return known[i].op;
    }
    die("no such question", name);
    return 0;
}

static int op_ask(char **arg)
{
    static struct fds_message message;
    struct gmsfs_fds_request request = {
        .version = GMSFS_ABI_VERSION, .op = op_named(arg[0]), .batch = (uint32_t)number(arg[1])};
    ssize_t got;
    do {
        if (send(s.socket, &request, sizeof request, MSG_NOSIGNAL) < 0)
            return -errno;
        got = recv(s.socket, &message, sizeof message, 0);
        if (got <= 0)
            return got < 0 ? -errno : -ECONNRESET;
    } while (request.op == GMSFS_FDS_DRAIN_END &&
             (message.header.error == -EAGAIN || message.header.error == -EBUSY));
    return message.header.error;
}

struct fence_answer {
    struct gmsfs_fds_header header;
    struct gmsfs_fds_fence fence;
};

static int ask_for_fence(char **arg, uint32_t op, struct fence_answer *answer)
{
    struct gmsfs_fds_request request = {.version = GMSFS_ABI_VERSION, .op = op};
    int error = op_connect(arg);

    memcpy(request.ticket, s.token, sizeof request.ticket);
    if (!error && send(s.socket, &request, sizeof request, MSG_NOSIGNAL) < 0)
        error = -errno;
    if (!error) {
        ssize_t got = recv(s.socket, answer, sizeof *answer, 0);
        error = got == (ssize_t)sizeof *answer ? 0 : got < 0 ? -errno : -ECONNRESET;
    }
    if (s.socket >= 0)
        close(s.socket);
    return error;
}

/* Asks by a connection of its own. If that ends with its worker it asks again, and the fence may be
 * over by then. */
static int op_fence(char **arg)
{
    uint32_t op = strcmp(arg[1], "up") == 0      ? GMSFS_FDS_FENCE
                  : strcmp(arg[1], "abort") == 0 ? GMSFS_FDS_FENCE_ABORT
                                                 : GMSFS_FDS_FENCE_COMPLETE;
    struct fence_answer answer = {.fence.is_up = 0};
    int error, tries = 0;

    do {
        error = ask_for_fence(arg, op, &answer);
    } while ((error == -ECONNRESET || error == -EPIPE || error == -ECONNREFUSED) && ++tries < 100);
    if (error)
        return error;
    if (op == GMSFS_FDS_FENCE)
        memcpy(s.token, answer.fence.token, sizeof s.token);
    printf("is_up=%u %s\n", answer.fence.is_up, answer.fence.why);
    return answer.header.error == -ESTALE && tries > 0 ? 0 : answer.header.error;
}

/* Reads the id of a store from its `info`. */
static int read_store_id(const char *store, uint8_t id[16])
{
    static const char label[] = "\"id\": \"";
    char path[PATH_MAX], text[4096] = "", digits[33] = "";
    snprintf(path, sizeof path, "%s/info", store);
    int fd = open(path, O_RDONLY | O_CLOEXEC), error = fd < 0 ? -errno : 0;
    if (!error && read(fd, text, sizeof text - 1) < 0)
        error = -errno;
    if (fd >= 0)
        close(fd);
    const char *at = strstr(text, label);
    if (!at)
        return error ? error : -EBADMSG;
    snprintf(digits, sizeof digits, "%s", at + sizeof label - 1);
    id_of(digits, NULL, id);
    return 0;
}

/* Asks about a store, and waits for its holder. */
static int op_ask_of(char **arg)
{
    static struct fds_message message;
    struct gmsfs_fds_request request = {.version = GMSFS_ABI_VERSION,
                                        .op = strcmp(arg[0], "drain") == 0 ? GMSFS_FDS_STORE_DRAIN
                                              : strcmp(arg[0], "holders") == 0
                                                  ? GMSFS_FDS_STORE_HOLDERS
                                                  : GMSFS_FDS_STORE_SERVE,
                                        .batch = (uint32_t)number(arg[2])};
    int error = read_store_id(arg[1], request.ticket);
    if (error)
        return error;
    do {
        if (send(s.socket, &request, sizeof request, MSG_NOSIGNAL) < 0)
            return -errno;
        ssize_t got = recv(s.socket, &message, sizeof message, 0);
        if (got <= 0)
            return got < 0 ? -errno : -ECONNRESET;
        if (request.op == GMSFS_FDS_STORE_DRAIN)
            memcpy(s.drain_token, message.items, sizeof s.drain_token);
    } while (request.op == GMSFS_FDS_STORE_HOLDERS && message.header.error == -EBUSY);
    return message.header.error;
}

/* Writes an order to `residency`, under the drain that this process has asked for. */
static int op_write_drained(char **arg)
{
    char order[128];
    int used = snprintf(order, sizeof order, "%s drained ", arg[0]);
    for (size_t i = 0; i < sizeof s.drain_token; i++)
        used += snprintf(order + used, sizeof order - (size_t)used, "%02x", s.drain_token[i]);
    return result(write(s.fd, order, (size_t)used));
}

static int memory_of(const char *index)
{
    uint64_t i = number(index);
    if (i >= (uint64_t)s.memory_count)
        die("no such descriptor", index);
    return s.memory[i];
}

static int op_forget(char **arg)
{
    (void)arg;
    while (s.memory_count > 0)
        close(s.memory[--s.memory_count]);
    return 0;
}

static int op_poke(char **arg)
{
    struct bytes from = bytes_of(arg[2]);
    ssize_t wrote = pwrite(memory_of(arg[0]), from.data, from.size, (off_t)number(arg[1]));
    free(from.data);
    return result(wrote);
}

static struct { /* the last mapping */
    void *at;
    size_t bytes;
} mapped;

/* Maps all of it for writing. */
static int op_map_memory(char **arg)
{
    int fd = memory_of(arg[0]);
    struct stat stat;

    if (fstat(fd, &stat) < 0)
        return -errno;
    mapped.bytes = (size_t)stat.st_size;
    mapped.at = mmap(NULL, mapped.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return mapped.at == MAP_FAILED ? -errno : 0;
}

static int op_unmap_memory(char **arg)
{
    (void)arg;
    return munmap(mapped.at, mapped.bytes) < 0 ? -errno : 0;
}

static int op_seek_memory(char **arg)
{
    return lseek(memory_of(arg[0]), (off_t)number(arg[1]), SEEK_SET) < 0 ? -errno : 0;
}

static int op_position(char **arg)
{
    off_t position = lseek(memory_of(arg[0]), 0, SEEK_CUR);
    printf("position=%lld\n", (long long)position);
    return position < 0 ? -errno : 0;
}

static int op_peek(char **arg)
{
    struct bytes room = {.size = number(arg[2])};
    room.data = calloc(1, room.size + 1);
    int error = print_read(pread(memory_of(arg[0]), room.data, room.size, (off_t)number(arg[1])),
                           room.data);
    free(room.data);
    return error;
}

#endif
