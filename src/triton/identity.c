/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/identity.h"

#include "base/file_io.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OVERFLOW_UID 65534u /* unless it was changed */

struct question {
    struct nlmsghdr header;
    struct inet_diag_req_v2 request;
};

static bool fill_address(const struct sockaddr_storage *address, __be16 *port, __be32 *at)
{
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
        *port = v4->sin_port;
        memcpy(at, &v4->sin_addr, sizeof v4->sin_addr);
        return true;
    }
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
        *port = v6->sin6_port;
        memcpy(at, &v6->sin6_addr, sizeof v6->sin6_addr);
        return true;
    }
    return false;
}

/* Returns true for an address whose other end is a socket of this network namespace. */
static bool is_loopback(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 ==
               IN_LOOPBACKNET;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* Asks for the client's socket: its own address is our peer, its peer is our own address. */
static bool make_question(int fd, struct question *question)
{
    struct sockaddr_storage own = {0}, peer = {0};
    socklen_t own_bytes = sizeof own, peer_bytes = sizeof peer;
    struct inet_diag_sockid *id = &question->request.id;

    if (getsockname(fd, (struct sockaddr *)&own, &own_bytes) != 0 ||
        getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) != 0 ||
        own.ss_family != peer.ss_family)
        return false;
    *question = (struct question){
        .header = {.nlmsg_len = sizeof *question,
                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST},
        .request = {.sdiag_family = (uint8_t)own.ss_family,
                    .sdiag_protocol = IPPROTO_TCP,
                    .id = {.idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}}};
    return fill_address(&peer, &id->idiag_sport, id->idiag_src) &&
           fill_address(&own, &id->idiag_dport, id->idiag_dst) && is_loopback(&peer);
}

/* Compares addresses. A client's IPv6 socket may speak IPv4: its addresses are then
 * ::ffff:ADDRESS. */
static bool is_address(const __be32 *told, bool is_mapped, const __be32 *asked)
{
    if (!is_mapped)
        return memcmp(told, asked, 4 * sizeof *told) == 0;
    return told[0] == 0 && told[1] == 0 && told[2] == htonl(0xffff) && told[3] == asked[0];
}

/* Includes a connection closed in one direction: a client may send all at once, and then only
 * read. */
static bool is_connected(uint8_t state)
{
    return state == TCP_ESTABLISHED || state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2 ||
           state == TCP_CLOSE_WAIT;
}

/* The answer to an earlier question may still be unread. */
static bool is_answer_to(const struct question *question, const char *bytes, size_t size)
{
    const struct nlmsghdr *header = (const struct nlmsghdr *)bytes;

    return size >= sizeof *header && header->nlmsg_seq == question->header.nlmsg_seq;
}

/* Reads the user from the answer. The kernel reports a closed socket as root's, so only an open
 * socket with exactly the addresses asked for counts. */
static uint32_t read_answer(const struct question *question, const char *bytes, size_t size)
{
    const struct nlmsghdr *header = (const struct nlmsghdr *)bytes;
    const struct inet_diag_msg *answer = NLMSG_DATA(header);
    const struct inet_diag_sockid *asked = &question->request.id;

    if (!NLMSG_OK(header, size) || header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        header->nlmsg_len < NLMSG_LENGTH(sizeof *answer))
        return IDENTITY_NOBODY;
    bool is_mapped = answer->idiag_family == AF_INET6 && question->request.sdiag_family == AF_INET;
    if (!is_connected(answer->idiag_state) || answer->idiag_inode == 0 ||
        (answer->idiag_family != question->request.sdiag_family && !is_mapped) ||
        answer->id.idiag_sport != asked->idiag_sport ||
        answer->id.idiag_dport != asked->idiag_dport ||
        !is_address(answer->id.idiag_src, is_mapped, asked->idiag_src) ||
        !is_address(answer->id.idiag_dst, is_mapped, asked->idiag_dst))
        return IDENTITY_NOBODY;
    return answer->idiag_uid;
}

/* Asks the kernel, which answers during sendto(2): the answer is there at once, or never comes. */
static uint32_t ask_kernel(int fd)
{
    static int diag = -1;
    static uint32_t last;
    _Alignas(struct nlmsghdr) char answer[8192];
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    struct question question;
    ssize_t got;

    if (!make_question(fd, &question))
        return IDENTITY_NOBODY;
    if (diag < 0)
        diag = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    question.header.nlmsg_seq = ++last;
    if (diag < 0 || sendto(diag, &question, sizeof question, 0, (struct sockaddr *)&kernel,
                           sizeof kernel) != (ssize_t)sizeof question)
        return IDENTITY_NOBODY;
    do
        got = recv(diag, answer, sizeof answer, MSG_DONTWAIT);
    while (got > 0 && !is_answer_to(&question, answer, (size_t)got));
    return got > 0 ? read_answer(&question, answer, (size_t)got) : IDENTITY_NOBODY;
}

/* Reads number `index` from a file of /proc that contains only numbers. */
static bool read_number(const char *path, int index, uint64_t *number)
{
    SCOPED_FILE FILE *file = fopen(path, "re");
    bool good = file != NULL;

    for (int i = 0; good && i <= index; i++)
        good = fscanf(file, "%" SCNu64, number) == 1;
    return good;
}

/* Returns true for the number that all unmapped users of a user namespace share. The process stays
 * in its namespace, so one look is enough. */
static bool is_shared(uint32_t uid)
{
    static uint64_t stand_in, mapped;
    static bool is_known;

    if (!is_known && !read_number("/proc/sys/kernel/overflowuid", 0, &stand_in))
        stand_in = OVERFLOW_UID;
    if (!is_known && !read_number("/proc/self/uid_map", 2, &mapped))
        mapped = 0;
    is_known = true;
    return uid == stand_in && mapped < UINT32_MAX;
}

static uint32_t ask_peer(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return IDENTITY_NOBODY;
    return peer.uid;
}

uint32_t identity_of_socket(int fd)
{
    int domain = 0;
    socklen_t bytes = sizeof domain;

    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0)
        return IDENTITY_NOBODY;
    uint32_t uid = domain == AF_UNIX ? ask_peer(fd) : ask_kernel(fd);
    return is_shared(uid) ? IDENTITY_NOBODY : uid;
}
