/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsctl_regions - operations of gmsctl on regions: messages on `.fds`, and the ioctl
 *
 * For gmsctl.c alone. Each returns 0 or a negative errno; a failure prints its reason as `reason
 * N`. UID is a number or `self`, KIND is 0 (any), 1 (system) or 2 (CUDA).
 */
#ifndef TOOLS_GMSCTL_REGIONS_H
#define TOOLS_GMSCTL_REGIONS_H

#include "gmsctl_fds.h"

#include <sys/mman.h>

struct region_message {
    struct gmsfs_fds_header header;
    struct gmsfs_fds_region_answer answer;
    struct gmsfs_region_info list[GMSFS_REGION_LIST_MAX];
};

static struct gmsfs_fds_region_request region_request(uint32_t op, const char *uid,
                                                      const char *kind, const char *name)
{
    struct gmsfs_fds_region_request request = {
        .request = {.version = GMSFS_ABI_VERSION, .op = op},
        .kind = (uint32_t)number(kind),
        .uid = strcmp(uid, "self") == 0 ? GMSFS_REGION_SELF : (uint32_t)number(uid),
    };
    struct bytes text = bytes_of(name);
    if (text.size > GMSFS_REGION_NAME_MAX)
        die("too long a name", name);
    memcpy(request.name, text.data, text.size);
    request.name_bytes = (uint32_t)text.size;
    free(text.data);
    return request;
}

static int region_send(const struct gmsfs_fds_region_request *request, const int *fds, size_t count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {0};
    struct iovec part = {(void *)(uintptr_t)request, sizeof *request};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, count * sizeof(int));
    }
    return result(sendmsg(s.socket, &message, MSG_NOSIGNAL));
}

static void print_region(const struct gmsfs_region_info *info)
{
    printf("region name=%s kind=%u uid=%u key=%s offset=%llu size=%llu references=%llu flags=%x\n",
           info->name, info->kind, info->uid, info->key, (unsigned long long)info->offset,
           (unsigned long long)info->byte_size, (unsigned long long)info->references, info->flags);
}

static int region_receive(void)
{
    struct region_message message = {0};
    ssize_t got = recv(s.socket, &message, sizeof message, 0);
    if (got <= 0)
        return got < 0 ? -errno : -ECONNRESET;
    if (message.header.error) {
        printf("reason %u\n", message.answer.reason);
        return message.header.error;
    }
    if (message.answer.count)
        printf("count %llu\n", (unsigned long long)message.answer.count);
    for (uint32_t i = 0; i < message.header.count; i++)
        print_region(&message.list[i]);
    return 0;
}

static int region_ask(const struct gmsfs_fds_region_request *request, const int *fds, size_t count)
{
    int error = region_send(request, fds, count);
    return error ? error : region_receive();
}

/* `memfd:SIZE`, `path:FILE`, `file` for the open one in use, `none` */
static int region_object(const char *text)
{
    int fd = -1;
    if (strncmp(text, "memfd:", 6) == 0) {
        fd = memfd_create("region", MFD_CLOEXEC);
        if (fd >= 0 && ftruncate(fd, (off_t)number(text + 6)) != 0)
            die("cannot resize", text);
    } else if (strncmp(text, "path:", 5) == 0) {
        fd = open(text + 5, O_RDONLY | O_CLOEXEC);
    } else if (strcmp(text, "file") == 0) {
        return s.fd;
    } else if (strcmp(text, "none") == 0) {
        return -1;
    }
    if (fd < 0)
        die("no such object", text);
    return fd;
}

static int op_region_register(char **arg)
{
    struct gmsfs_fds_region_request request =
        region_request(GMSFS_FDS_REGION_REGISTER, arg[0], "1", arg[1]);
    int fd = region_object(arg[3]);
    request.key_bytes = (uint32_t)strlen(arg[2]);
    memcpy(request.key, arg[2], request.key_bytes);
    request.offset = number(arg[4]);
    request.byte_size = number(arg[5]);
    int error = region_ask(&request, &fd, fd >= 0);
    if (fd >= 0 && fd != s.fd)
        close(fd);
    return error;
}

/* Sends more descriptors than one registration may have. */
static int op_region_register_many(char **arg)
{
    struct gmsfs_fds_region_request request =
        region_request(GMSFS_FDS_REGION_REGISTER, "self", "1", arg[0]);
    int fds[4];
    for (int i = 0; i < 4; i++)
        fds[i] = region_object("memfd:4096");
    request.key_bytes = 4;
    memcpy(request.key, "/key", 4);
    request.byte_size = 4096;
    int error = region_ask(&request, fds, 4);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    return error;
}

static int op_region_register_cuda(char **arg)
{
    struct gmsfs_fds_region_request request =
        region_request(GMSFS_FDS_REGION_REGISTER, arg[0], "2", arg[1]);
    request.handle_bytes = GMSFS_REGION_HANDLE_BYTES;
    memset(request.raw_handle, 7, sizeof request.raw_handle);
    request.byte_size = number(arg[2]);
    return region_ask(&request, NULL, 0);
}

static int op_region_unregister(char **arg)
{
    struct gmsfs_fds_region_request request =
        region_request(GMSFS_FDS_REGION_UNREGISTER, arg[0], arg[1], arg[2]);
    return region_ask(&request, NULL, 0);
}

static int op_region_unregister_all(char **arg)
{
    struct gmsfs_fds_region_request request =
        region_request(GMSFS_FDS_REGION_UNREGISTER_ALL, arg[0], arg[1], "");
    return region_ask(&request, NULL, 0);
}

static int op_region_list(char **arg)
{
    struct gmsfs_fds_region_request request =
        region_request(GMSFS_FDS_REGION_LIST, arg[0], arg[1], arg[2]);
    return region_ask(&request, NULL, 0);
}

/* The open region; flags 1 hold it. */
static int op_region(char **arg)
{
    struct gmsfs_ioc_region region = {.flags = (uint32_t)number(arg[0])};
    int error = result(ioctl(s.fd, GMSFS_IOC_REGION, &region));
    if (error)
        return error;
    print_region(&region.info);
    print_hex("ticket=", region.ticket, sizeof region.ticket);
    putchar('\n');
    memcpy(s.ticket, region.ticket, sizeof s.ticket);
    return 0;
}

#endif
