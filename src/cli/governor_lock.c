/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/governor_lock.h"

#include "base/failure.h"
#include "cli/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static socklen_t lock_name(const struct mount *mount, struct sockaddr_un *address)
{
    int bytes;

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    bytes = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
                     "gmsfs-governor-%" PRIu64, mount->device);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)bytes);
}

/* Who has it, as the kernel noted when it began to listen. */
static void lock_explain(const struct mount *mount, const struct sockaddr_un *address,
                         socklen_t bytes)
{
    struct ucred owner = {0};
    socklen_t room = sizeof(owner);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0 && connect(fd, (const struct sockaddr *)address, bytes) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &owner, &room) == 0)
        cli_error("%s: process %d of user %u governs it already; end that first, or send it "
                  "SIGHUP to read its file anew",
                  mount->path, (int)owner.pid, (unsigned)owner.uid);
    else
        cli_error("%s: somebody governs it already; 'pgrep -af governor' may show who",
                  mount->path);
    if (fd >= 0)
        close(fd);
}

int governor_lock(const struct mount *mount)
{
    struct sockaddr_un address;
    socklen_t bytes = lock_name(mount, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && bind(fd, (const struct sockaddr *)&address, bytes) == 0 && listen(fd, 1) == 0)
        return fd;
    if (fd >= 0 && errno == EADDRINUSE)
        lock_explain(mount, &address, bytes);
    else
        cli_error("%s: cannot make sure that nobody else governs it: %s", mount->path,
                  failure_reason(-errno));
    if (fd >= 0)
        close(fd);
    return -1;
}
