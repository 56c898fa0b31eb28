/* SPDX-License-Identifier: Apache-2.0 */
/* The regions of a mount: registering, unregistering and listing them, by messages on `.fds`. */
#include "regions.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define REGIONS_FUSE_MAGIC 0x65735546 /* FUSE_SUPER_MAGIC, linux/magic.h since 5.19 */

struct regions_answer {
    struct gmsfs_fds_header header;
    union {
        struct {
            struct gmsfs_fds_region_answer region;
            struct gmsfs_region_info list[GMSFS_REGION_LIST_MAX];
        };
        struct gmsfs_fds_item item; /* of REDEEM */
    };
};

int gfs_regions_enter(struct gmsfs_regions *regions)
{
    if (!regions)
        return -EINVAL;
    if (regions->pid != getpid())
        return -ECHILD;
    pthread_mutex_lock(&regions->op);
    return 0;
}

void gfs_regions_leave(struct gmsfs_regions *regions)
{
    pthread_mutex_unlock(&regions->op);
}

int gfs_region_fail(enum gmsfs_region_reason *reason, enum gmsfs_region_reason why, int error)
{
    if (reason)
        *reason = why;
    return error;
}

/* ---- the connection ------------------------------------------------------------------------ */

static void regions_disconnect(struct gmsfs_regions *regions)
{
    if (regions->fds_fd >= 0)
        close(regions->fds_fd);
    regions->fds_fd = -1;
}

/* By the descriptor of the root, for sun_path holds 107 bytes; without /proc by the path. */
static int regions_connect_once(const struct gmsfs_regions *regions, int fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const size_t room = sizeof address.sun_path;

    snprintf(address.sun_path, room, "/proc/self/fd/%d/.fds", regions->dir_fd);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return 0;
    if (errno != ENOENT || access("/proc/self/fd", F_OK) == 0)
        return -errno;
    if ((size_t)snprintf(address.sun_path, room, "%s/.fds", regions->path) >= room)
        return -ENAMETOOLONG;
    return connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ? -errno : 0;
}

/* A full backlog of a unix socket is EAGAIN, and poll(2) does not tell when it empties. */
static int regions_connect(struct gmsfs_regions *regions)
{
    uint64_t start_ms = gfs_clock_ms();
    int fd, error;

    if (regions->fds_fd >= 0)
        return 0;
    fd = gfs_fd_above(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -errno;
    while ((error = regions_connect_once(regions, fd)) == -EAGAIN || error == -EINTR) {
        if (gfs_clock_ms() - start_ms >= GFS_REPLY_TIMEOUT_MS) {
            error = -ETIMEDOUT;
            break;
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (error) {
        close(fd);
        return error == -ECONNREFUSED || error == -ENOENT ? -ENOTCONN : error;
    }
    regions->fds_fd = fd;
    return 0;
}

static int regions_wait(int fd, short events)
{
    struct pollfd poller = {.fd = fd, .events = events};
    uint64_t start_ms = gfs_clock_ms(), spent_ms;
    int ready;

    do {
        spent_ms = gfs_clock_ms() - start_ms;
        if (spent_ms >= GFS_REPLY_TIMEOUT_MS)
            return -ETIMEDOUT;
        ready = poll(&poller, 1, (int)(GFS_REPLY_TIMEOUT_MS - spent_ms));
    } while (ready < 0 && errno == EINTR);
    if (ready < 0)
        return -errno;
    return ready == 0 ? -ETIMEDOUT : 0;
}

/* One descriptor at most goes along, and comes back. */
union regions_control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
};

static int regions_send(int socket, const void *request, size_t size, int fd)
{
    union regions_control control = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)request, .iov_len = size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int error = 0;

    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    while (!error && sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        if (errno == EAGAIN)
            error = regions_wait(socket, POLLOUT);
        else if (errno != EINTR)
            error = -errno;
    }
    return error;
}

static void regions_take_rights(struct msghdr *message, int *fd)
{
    for (struct cmsghdr *at = CMSG_FIRSTHDR(message); at; at = CMSG_NXTHDR(message, at)) {
        if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SCM_RIGHTS &&
            at->cmsg_len == CMSG_LEN(sizeof *fd)) {
            memcpy(fd, CMSG_DATA(at), sizeof *fd);
            *fd = gfs_fd_above(*fd);
        }
    }
}

/* fd: NULL, or where the descriptor goes that came along, else -1. */
static int regions_receive(int socket, struct regions_answer *answer, size_t *size, int *fd)
{
    union regions_control control;
    struct iovec part = {.iov_base = answer, .iov_len = sizeof *answer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    int error = regions_wait(socket, POLLIN);
    ssize_t got;

    if (error)
        return error;
    if (fd) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
    }
    do
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got <= 0)
        return got == 0 ? -ECONNRESET : -errno;
    if (fd)
        regions_take_rights(&message, fd);
    *size = (size_t)got;
    if (fd && message.msg_flags & MSG_CTRUNC)
        return -EMFILE;
    if (message.msg_flags & MSG_TRUNC || *size < sizeof answer->header)
        return -EPROTO;
    return answer->header.error > 0 ? -EPROTO : 0;
}

static int regions_ask_once(struct gmsfs_regions *regions, const void *request, size_t size,
                            int sent_fd, struct regions_answer *answer, size_t *answered,
                            int *got_fd)
{
    int error = regions_connect(regions);

    if (error)
        return error;
    error = regions_send(regions->fds_fd, request, size, sent_fd);
    if (!error)
        error = regions_receive(regions->fds_fd, answer, answered, got_fd);
    if (error) { /* what may still come belongs to no one */
        regions_disconnect(regions);
        if (got_fd && *got_fd >= 0)
            close(*got_fd);
        if (got_fd)
            *got_fd = -1;
    }
    return error;
}

static int regions_is_broken(int error)
{
    return error == -EPIPE || error == -ECONNRESET;
}

/* A connection that has rested may have been given up: so one more try. A request that got no
 * answer was not carried out. */
static int regions_ask(struct gmsfs_regions *regions, const void *request, size_t size, int sent_fd,
                       struct regions_answer *answer, size_t *answered, int *got_fd)
{
    int error = regions_ask_once(regions, request, size, sent_fd, answer, answered, got_fd);

    if (regions_is_broken(error))
        error = regions_ask_once(regions, request, size, sent_fd, answer, answered, got_fd);
    return regions_is_broken(error) ? -ENOTCONN : error;
}

/* One about regions: the answer's error and reason are the call's. */
static int regions_call(struct gmsfs_regions *regions,
                        const struct gmsfs_fds_region_request *request, int fd,
                        struct regions_answer *answer, enum gmsfs_region_reason *reason)
{
    const size_t head = offsetof(struct regions_answer, list);
    size_t size = 0;
    int error = gfs_regions_enter(regions);

    if (error)
        return error;
    error = regions_ask(regions, request, sizeof *request, fd, answer, &size, NULL);
    if (!error && (size < head || answer->header.count > GMSFS_REGION_LIST_MAX ||
                   size != head + answer->header.count * sizeof answer->list[0])) {
        /* A daemon that knows no regions answers with a header alone. */
        error = answer->header.error ? -ENOTTY : -EPROTO;
        regions_disconnect(regions);
    }
    gfs_regions_leave(regions);
    if (error)
        return error;
    return gfs_region_fail(reason, (enum gmsfs_region_reason)answer->region.reason,
                           answer->header.error);
}

int gfs_regions_redeem(struct gmsfs_regions *regions, const uint8_t ticket[16], int *fd)
{
    struct gmsfs_fds_request request = {
        .version = GMSFS_ABI_VERSION, .op = GMSFS_FDS_REDEEM, .batch = 1};
    struct regions_answer answer;
    size_t size = 0;
    int error;

    memcpy(request.ticket, ticket, sizeof request.ticket);
    *fd = -1;
    error = regions_ask_once(regions, &request, sizeof request, -1, &answer, &size, fd);
    if (!error)
        error = answer.header.error;
    if (!error && *fd < 0)
        error = -EPROTO;
    return error;
}

/* ---- requests ------------------------------------------------------------------------------ */

static struct gmsfs_fds_region_request regions_request(enum gmsfs_fds_op op, uint32_t uid,
                                                       enum gmsfs_region_kind kind)
{
    return (struct gmsfs_fds_region_request){
        .request = {.version = GMSFS_ABI_VERSION, .op = op}, .kind = (uint32_t)kind, .uid = uid};
}

static int regions_set_name(struct gmsfs_fds_region_request *request, const char *name,
                            enum gmsfs_region_reason *reason)
{
    size_t bytes = name ? strlen(name) : 0;

    if (!name)
        return -EINVAL;
    if (bytes > GMSFS_REGION_NAME_MAX)
        return gfs_region_fail(reason, GMSFS_REGION_BAD_NAME, -ENAMETOOLONG);
    memcpy(request->name, name, bytes);
    request->name_bytes = (uint32_t)bytes;
    return 0;
}

static int regions_set_key(struct gmsfs_fds_region_request *request, const char *key,
                           enum gmsfs_region_reason *reason)
{
    size_t bytes = key ? strlen(key) : 0;

    if (bytes > GMSFS_REGION_KEY_MAX)
        return gfs_region_fail(reason, GMSFS_REGION_BAD_KEY, -ENAMETOOLONG);
    if (bytes > 0)
        memcpy(request->key, key, bytes);
    request->key_bytes = (uint32_t)bytes;
    return 0;
}

static int regions_set_handle(struct gmsfs_fds_region_request *request,
                              const struct gmsfs_region_request *wish,
                              enum gmsfs_region_reason *reason)
{
    if (wish->kind == GMSFS_REGION_CUDA &&
        (!wish->raw_handle || wish->raw_handle_bytes != GMSFS_REGION_HANDLE_BYTES))
        return gfs_region_fail(reason, GMSFS_REGION_BAD_HANDLE, -EINVAL);
    if (wish->kind != GMSFS_REGION_CUDA && wish->raw_handle_bytes)
        return -EINVAL;
    if (wish->raw_handle_bytes)
        memcpy(request->raw_handle, wish->raw_handle, wish->raw_handle_bytes);
    request->handle_bytes = (uint32_t)wish->raw_handle_bytes;
    return 0;
}

static int regions_set_owner(struct gmsfs_fds_region_request *request,
                             const struct gmsfs_region_request *wish)
{
    if (wish->group_count > GMSFS_REGION_GROUPS_MAX || (wish->group_count && !wish->groups))
        return -EINVAL;
    request->uid = wish->uid;
    request->gid = wish->gid;
    request->group_count = (uint32_t)wish->group_count;
    for (size_t i = 0; i < wish->group_count; i++)
        request->groups[i] = wish->groups[i];
    return 0;
}

/* ---- objects in /dev/shm ------------------------------------------------------------------- */

/* As the daemon judges it: it is not opened here where it would be refused there. */
static int regions_read_key(const char *key, enum gmsfs_region_reason *reason,
                            char name[GMSFS_REGION_KEY_MAX + 2])
{
    const size_t prefix = sizeof GMSFS_REGION_RESERVED_PREFIX - 1;
    size_t bytes;

    key += strspn(key, "/");
    bytes = strlen(key);
    while (bytes > 0 && key[bytes - 1] == '/')
        bytes--;
    if (bytes == 0)
        return gfs_region_fail(reason, GMSFS_REGION_BAD_KEY, -EINVAL);
    if (bytes >= prefix && memcmp(key, GMSFS_REGION_RESERVED_PREFIX, prefix) == 0)
        return gfs_region_fail(reason, GMSFS_REGION_RESERVED_KEY, -EINVAL);
    name[0] = '/';
    memcpy(name + 1, key, bytes);
    name[bytes + 1] = '\0';
    return 0;
}

static int regions_open_object(const char *name)
{
    int fd = shm_open(name, O_RDWR | O_CLOEXEC, 0);

    if (fd < 0 && errno == EACCES)
        fd = shm_open(name, O_RDONLY | O_CLOEXEC, 0);
    return gfs_fd_above(fd);
}

/* fd: the caller's, or one that was opened here, then *opened is set. */
static int regions_find_object(const struct gmsfs_regions *regions,
                               const struct gmsfs_region_request *wish,
                               enum gmsfs_region_reason *reason, int *fd, int *opened)
{
    char name[GMSFS_REGION_KEY_MAX + 2];
    int error;

    *fd = wish->fd;
    if (wish->kind != GMSFS_REGION_SYSTEM || wish->fd >= 0)
        return 0;
    if (!wish->key)
        return gfs_region_fail(reason, GMSFS_REGION_BAD_KEY, -EINVAL);
    error = regions_read_key(wish->key, reason, name);
    if (error || strchr(name + 1, '/')) /* STORE/ALLOCATION */
        return error;
    if (wish->uid != GMSFS_REGION_SELF && wish->uid != regions->uid)
        return gfs_region_fail(reason, GMSFS_REGION_BAD_OBJECT, -EINVAL);
    *fd = regions_open_object(name);
    if (*fd < 0)
        return gfs_region_fail(reason, GMSFS_REGION_NO_OBJECT, -errno);
    *opened = 1;
    return 0;
}

/* ---- public -------------------------------------------------------------------------------- */

int gmsfs_regions_open(const char *path, gmsfs_regions_t **out)
{
    struct gmsfs_regions *regions;
    struct statfs fs;
    struct stat stat;
    int error = 0;

    if (!path || !out)
        return -EINVAL;
    regions = calloc(1, sizeof *regions);
    if (!regions)
        return -ENOMEM;
    *regions =
        (struct gmsfs_regions){.pid = getpid(), .owner_fd = -1, .fds_fd = -1, .uid = geteuid()};
    pthread_mutex_init(&regions->op, NULL);
    regions->path = strdup(path);
    regions->dir_fd = gfs_fd_above(open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (regions->dir_fd < 0 || fstatfs(regions->dir_fd, &fs) < 0)
        error = errno == ECONNABORTED ? -ENOTCONN : -errno;
    else if ((unsigned long)fs.f_type != REGIONS_FUSE_MAGIC ||
             (fstatat(regions->dir_fd, "regions", &stat, 0) < 0 && errno == ENOENT) ||
             (fstatat(regions->dir_fd, ".fds", &stat, 0) < 0 && errno == ENOENT))
        error = -ENOTTY;
    else if (!regions->path)
        error = -ENOMEM;
    if (error) {
        gmsfs_regions_close(regions);
        return error;
    }
    *out = regions;
    return 0;
}

void gmsfs_regions_close(gmsfs_regions_t *regions)
{
    if (!regions)
        return;
    regions_disconnect(regions);
    if (regions->owner_fd >= 0)
        close(regions->owner_fd);
    if (regions->dir_fd >= 0)
        close(regions->dir_fd);
    pthread_mutex_destroy(&regions->op);
    free(regions->path);
    free(regions);
}

int gmsfs_region_register(gmsfs_regions_t *regions, const struct gmsfs_region_request *wish,
                          enum gmsfs_region_reason *reason)
{
    struct gmsfs_fds_region_request request;
    struct regions_answer answer;
    int fd = -1, opened = 0, error;

    gfs_region_fail(reason, GMSFS_REGION_FINE, 0);
    if (!regions || !wish || (wish->kind != GMSFS_REGION_SYSTEM && wish->kind != GMSFS_REGION_CUDA))
        return -EINVAL;
    request = regions_request(GMSFS_FDS_REGION_REGISTER, wish->uid, wish->kind);
    request.offset = wish->offset;
    request.byte_size = wish->byte_size;
    request.device_id = wish->device_id;
    error = regions_set_owner(&request, wish);
    if (!error)
        error = regions_set_name(&request, wish->name, reason);
    if (!error)
        error = regions_set_key(&request, wish->key, reason);
    if (!error)
        error = regions_set_handle(&request, wish, reason);
    if (!error)
        error = regions_find_object(regions, wish, reason, &fd, &opened);
    if (!error)
        error = regions_call(regions, &request, fd, &answer, reason);
    if (opened)
        close(fd);
    return error;
}

int gmsfs_region_unregister(gmsfs_regions_t *regions, uint32_t uid, enum gmsfs_region_kind kind,
                            const char *name)
{
    struct gmsfs_fds_region_request request =
        regions_request(GMSFS_FDS_REGION_UNREGISTER, uid, kind);
    struct regions_answer answer;
    int error = regions_set_name(&request, name, NULL);

    if (error == -ENAMETOOLONG) /* nobody has a region of such a name */
        return -ENOENT;
    return error ? error : regions_call(regions, &request, -1, &answer, NULL);
}

int gmsfs_region_unregister_all(gmsfs_regions_t *regions, uint32_t uid, enum gmsfs_region_kind kind,
                                uint64_t *count)
{
    struct gmsfs_fds_region_request request =
        regions_request(GMSFS_FDS_REGION_UNREGISTER_ALL, uid, kind);
    struct regions_answer answer;
    int error = regions_call(regions, &request, -1, &answer, NULL);

    if (!error && count)
        *count = answer.region.count;
    return error;
}

int gmsfs_region_get(gmsfs_regions_t *regions, uint32_t uid, enum gmsfs_region_kind kind,
                     const char *name, struct gmsfs_region_info *info)
{
    struct gmsfs_fds_region_request request = regions_request(GMSFS_FDS_REGION_LIST, uid, kind);
    struct regions_answer answer;
    int error = info ? regions_set_name(&request, name, NULL) : -EINVAL;

    if (error)
        return error == -ENAMETOOLONG ? -ENOENT : error;
    request.flags = GMSFS_REGION_LIST_ONE;
    error = regions_call(regions, &request, -1, &answer, NULL);
    if (!error && answer.header.count != 1)
        error = -EPROTO;
    if (!error)
        *info = answer.list[0];
    return error;
}

int gmsfs_region_list(gmsfs_regions_t *regions, uint32_t uid, enum gmsfs_region_kind kind,
                      struct gmsfs_region_info **list, size_t *count)
{
    struct gmsfs_fds_region_request request = regions_request(GMSFS_FDS_REGION_LIST, uid, kind);
    struct gmsfs_region_info *all = NULL, *grown;
    struct regions_answer answer;
    size_t used = 0;
    int error;

    if (!list || !count)
        return -EINVAL;
    do {
        error = regions_call(regions, &request, -1, &answer, NULL);
        if (error || answer.header.count == 0)
            break;
        grown = realloc(all, (used + answer.header.count) * sizeof *all);
        if (!grown) {
            error = -ENOMEM;
            break;
        }
        all = grown;
        memcpy(all + used, answer.list, answer.header.count * sizeof *all);
        used += answer.header.count;
        all[used - 1].name[GMSFS_REGION_NAME_MAX] = '\0';
        memset(request.name, 0, sizeof request.name);
        regions_set_name(&request, all[used - 1].name, NULL);
    } while (answer.header.remaining > 0);
    if (error) {
        free(all);
        return error;
    }
    *list = all;
    *count = used;
    return 0;
}

void gmsfs_region_list_free(struct gmsfs_region_info *list)
{
    free(list);
}
