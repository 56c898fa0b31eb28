/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/fds_unread.h"

#include "gmsfs_abi.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define PART_OF_ALL                                                               \
    3u /* of RLIMIT_NOFILE: there are other mounts, and the daemon's own messages \
        */
#define PART_OF_USER 6u

/* A connection that is over, whose client has not read all. */
struct fds_unread {
    struct fds_unread *next;
    uint32_t uid;
    int fd;
    uint32_t count;
};

/* Of those that were sent: what lies there unread takes no less than its items do. */
static uint32_t count_unread(int fd, uint32_t sent)
{
    int bytes = 0;
    if (ioctl(fd, SIOCOUTQ, &bytes) != 0 || bytes <= 0)
        return 0;
    size_t most = (size_t)bytes / sizeof(struct gmsfs_fds_item);
    return most < sent ? (uint32_t)most : sent;
}

static void give_back(struct fs *fs, uint32_t uid, int fd, uint32_t count)
{
    fs->unread_count -= count;
    close(fd);
    service_give(fs->service, SERVICE_BOUND_CONNECTIONS, uid, 1);
}

static void end_unread(struct fs *fs, struct fds_unread **at)
{
    struct fds_unread *unread = *at;
    *at = unread->next;
    give_back(fs, unread->uid, unread->fd, unread->count);
    free(unread);
}

bool fds_close_those_read(struct fs *fs)
{
    struct fds_unread **at = &fs->unread;
    while (*at) {
        if (count_unread((*at)->fd, (*at)->count) == 0)
            end_unread(fs, at);
        else
            at = &(*at)->next;
    }
    return fs->unread != NULL;
}

void fds_close_unread(struct fs *fs)
{
    while (fs->unread)
        end_unread(fs, &fs->unread);
}

/* What was read meanwhile counts no more. How many the user of this connection has under way by
 * others. */
static uint64_t count_others(const struct connection *own)
{
    struct fs *fs = own->fs;
    uint64_t of_others = 0;
    fds_close_those_read(fs);
    for (const struct fds_unread *unread = fs->unread; unread; unread = unread->next)
        of_others += unread->uid == own->uid ? unread->count : 0;
    for (size_t i = 0; i < fs->connections->count; i++) {
        struct connection *connection = fs->connections->items[i];
        if (connection->unread) {
            uint32_t unread = count_unread(connection->watch.fd, connection->unread);
            fs->unread_count -= connection->unread - unread;
            connection->unread = unread;
        }
        if (connection != own && connection->uid == own->uid)
            of_others += connection->unread;
    }
    return of_others;
}

/* One connection has no more under way than its socket takes. */
bool fds_may_send(struct connection *connection, uint32_t count)
{
    struct fs *fs = connection->fs;
    struct rlimit limit;
    if (fds_is_trusted(connection) || getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
        fs->unread_count + count <= limit.rlim_cur / PART_OF_USER)
        return true;
    uint64_t of_others = count_others(connection);
    return of_others == 0 ||
           (of_others + connection->unread + count <= limit.rlim_cur / PART_OF_USER &&
            fs->unread_count + count <= limit.rlim_cur / PART_OF_ALL);
}

void fds_note_sent(struct connection *connection, uint32_t count)
{
    if (fds_is_trusted(connection))
        return;
    connection->unread += count;
    connection->fs->unread_count += count;
}

void fds_close_when_read(struct connection *connection)
{
    struct fs *fs = connection->fs;
    struct fds_unread *unread = NULL;
    if (connection->unread && count_unread(connection->watch.fd, connection->unread))
        unread = malloc(sizeof *unread);
    if (unread) {
        *unread = (struct fds_unread){fs->unread, connection->uid, connection->watch.fd,
                                      connection->unread};
        fs->unread = unread;
        return;
    }
    give_back(fs, connection->uid, connection->watch.fd, connection->unread);
}
