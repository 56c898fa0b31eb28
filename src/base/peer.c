/* SPDX-License-Identifier: Apache-2.0 */
#include "base/peer.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define SOME_GROUPS 64u
#define MAX_GROUPS  65536u /* the kernel's bound on a process's groups */

static int read_groups(int fd, struct peer *peer)
{
    socklen_t size = SOME_GROUPS * sizeof(gid_t);

    for (;;) {
        gid_t *groups = realloc(peer->groups, size ? size : 1);

        if (!groups)
            return -ENOMEM;
        peer->groups = groups;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) == 0)
            break;
        if (errno != ERANGE || size > MAX_GROUPS * sizeof(gid_t))
            return -errno;
    }
    peer->group_count = size / sizeof(gid_t);
    return 0;
}

int peer_read(int fd, struct peer *peer)
{
    struct ucred known = {0};
    socklen_t size = sizeof known;

    memset(peer, 0, sizeof *peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &known, &size) != 0)
        return -errno;
    peer->uid = known.uid;
    peer->gid = known.gid;
    peer->pid = known.pid;
    return read_groups(fd, peer);
}

void peer_free(struct peer *peer)
{
    free(peer->groups);
    peer->groups = NULL;
    peer->group_count = 0;
}

bool peer_has_group(const struct peer *peer, uint32_t gid)
{
    for (size_t i = 0; i < peer->group_count; i++) {
        if (peer->groups[i] == gid)
            return true;
    }
    return false;
}

size_t peer_count_unread(int fd)
{
    int bytes = 0;

    return ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? (size_t)bytes : 0;
}
