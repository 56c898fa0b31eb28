/* SPDX-License-Identifier: Apache-2.0 */
#include "triton/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG    4096
#define HOST_BYTES 256u
#define UNIX_MARK  "unix:"

static int make_listen(int fd)
{
    return listen(fd, BACKLOG) == 0 ? 0 : -errno;
}

/* ---- unix sockets -------------------------------------------------------------------------- */

/* Removes a name that an ended server left behind, but not that of a running one. */
static int remove_dead(const struct sockaddr_un *address)
{
    struct stat facts;
    int error = 0, probe;

    if (lstat(address->sun_path, &facts) != 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(facts.st_mode))
        return -EEXIST;
    probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return -errno;
    if (connect(probe, (const struct sockaddr *)address, sizeof *address) == 0 ||
        errno != ECONNREFUSED)
        error = -EADDRINUSE;
    close(probe);
    if (!error && unlink(address->sun_path) != 0)
        error = -errno;
    return error;
}

/* Sets the mode before bind(2), so that the name has it from the start. */
static int bind_unix(int fd, const struct sockaddr_un *address, bool is_shared)
{
    int error = 0;

    if (fchmod(fd, is_shared ? 0666 : 0600) != 0)
        return -errno;
    mode_t before = umask(0);
    if (bind(fd, (const struct sockaddr *)address, sizeof *address) != 0)
        error = -errno;
    umask(before);
    return error;
}

static const char *explain_unix(int error)
{
    switch (-error) {
    case EEXIST:
        return "; the file there is not a socket, name another path";
    case EADDRINUSE:
        return "; another server is there, name another path";
    case ENAMETOOLONG:
        return "; a path has 1 to 107 bytes";
    default:
        return "";
    }
}

static int open_unix(const char *path, bool is_shared, struct listen_socket *listening)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (path[0] == '\0' || strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    int error = remove_dead(&address);
    if (error)
        return error;
    *listening =
        (struct listen_socket){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                               .is_unix = true,
                               .is_loopback = true};
    if (listening->fd < 0)
        return -errno;
    snprintf(listening->text, sizeof listening->text, UNIX_MARK "%s", path);
    error = bind_unix(listening->fd, &address, is_shared);
    if (error) {
        close(listening->fd);
        return error;
    }
    error = make_listen(listening->fd);
    if (error)
        listen_close(listening);
    return error;
}

void listen_close(struct listen_socket *listening)
{
    close(listening->fd);
    if (listening->is_unix)
        unlink(listening->text + strlen(UNIX_MARK));
}

/* ---- internet sockets ---------------------------------------------------------------------- */

static void describe(struct listen_socket *listening)
{
    struct sockaddr_storage own = {0};
    socklen_t bytes = sizeof own;
    char host[INET6_ADDRSTRLEN] = "?";

    getsockname(listening->fd, (struct sockaddr *)&own, &bytes);
    if (own.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&own;
        inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        listening->is_loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
        snprintf(listening->text, sizeof listening->text, "[%s]:%u", host, ntohs(v6->sin6_port));
        return;
    }
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&own;
    inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
    listening->is_loopback = ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    snprintf(listening->text, sizeof listening->text, "%s:%u", host, ntohs(v4->sin_port));
}

static int open_internet(const struct addrinfo *info, struct listen_socket *listening)
{
    int on = 1, error = 0;
    int fd = socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (info->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, info->ai_addr, info->ai_addrlen) != 0)
        error = -errno;
    if (!error)
        error = make_listen(fd);
    if (error) {
        close(fd);
        return error;
    }
    *listening = (struct listen_socket){.fd = fd};
    describe(listening);
    return 0;
}

/* Splits HOST and PORT. -EINVAL */
static int split(const char *address, char host[HOST_BYTES], const char **port)
{
    const char *end = strrchr(address, ':');

    if (!end || end == address || end[1] == '\0')
        return -EINVAL;
    *port = end + 1;
    if (address[0] == '[' && end[-1] == ']') {
        address++;
        end--;
    }
    size_t bytes = (size_t)(end - address);
    if (bytes == 0 || bytes >= HOST_BYTES)
        return -EINVAL;
    memcpy(host, address, bytes);
    host[bytes] = '\0';
    return 0;
}

static int open_all(const struct addrinfo *list, const char *address, struct listen_socket *sockets,
                    size_t room, size_t *count, struct failure *failure)
{
    size_t before = *count;
    int error = -EADDRNOTAVAIL;

    for (const struct addrinfo *at = list; at; at = at->ai_next) {
        if (*count == room)
            return failure_set(failure, -ENOSPC, "%s: too many addresses", address);
        error = open_internet(at, &sockets[*count]);
        if (!error)
            (*count)++;
        else if (error != -EADDRNOTAVAIL && error != -EAFNOSUPPORT)
            break;
    }
    if (*count > before && (error == 0 || error == -EADDRNOTAVAIL || error == -EAFNOSUPPORT))
        return 0;
    return failure_set(failure, error, "%s: cannot listen there: %s%s", address, strerror(-error),
                       error == -EADDRINUSE ? "; another server is there, name another port" : "");
}

int listen_open(const char *address, bool allows_unix, bool is_shared,
                struct listen_socket *sockets, size_t room, size_t *count, struct failure *failure)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
    char host[HOST_BYTES];
    const char *port;
    int error;

    if (allows_unix && strncmp(address, UNIX_MARK, strlen(UNIX_MARK)) == 0) {
        error = *count < room ? open_unix(address + strlen(UNIX_MARK), is_shared, &sockets[*count])
                              : -ENOSPC;
        if (!error)
            (*count)++;
        return error ? failure_set(failure, error, "%s: cannot listen there: %s%s", address,
                                   strerror(-error), explain_unix(error))
                     : 0;
    }
    if (split(address, host, &port) != 0)
        return failure_set(failure, -EINVAL, "'%s' is not ADDRESS:PORT%s", address,
                           allows_unix ? " or unix:PATH" : "");
    error = getaddrinfo(host, port, &hints, &list);
    if (error)
        return failure_set(failure, -EINVAL, "%s: %s", address, gai_strerror(error));
    error = open_all(list, address, sockets, room, count, failure);
    freeaddrinfo(list);
    return error;
}
