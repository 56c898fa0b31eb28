/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/fds_unread.h"

#include "base/peer.h"
#include "gmsfs_abi.h"
#include "service/bounds.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* Fractions of RLIMIT_NOFILE: other mounts and the daemon's own messages need descriptors too. */
#define PART_OF_ALL  3u
#define PART_OF_USER 6u

/* A connection that is over, and has unread descriptors or is still held by the keeper. */
struct fds_unread {
    struct fds_unread *next;
    uint32_t uid;
    int fd;
    uint32_t count;
    uint32_t places; /* its places among the connections of its user */
    uint64_t charged_bytes;
    uint64_t kept;
};

/* Returns an upper bound of the unread descriptors out of `sent`: an unread message takes at least
 * the bytes of its items. */
static uint32_t count_unread(int fd, uint32_t sent)
{
    size_t most = peer_count_unread(fd) / sizeof(struct gmsfs_fds_item);
    return most < sent ? (uint32_t)most : sent;
}

/* A message that is being read may leave one byte here: the kernel announces the read before it
 * takes the message off, so one byte counts as none. */
bool fds_has_unread(int fd)
{
    return count_unread(fd, 1) > 0;
}

static int try_charge(struct connection *connection, uint64_t more_bytes)
{
    return service_charge(connection->fs->service, SERVICE_BOUND_FRAMES, connection->uid,
                          &connection->charged_bytes,
                          peer_count_unread(connection->watch.fd) + more_bytes);
}

static void close_one(struct fs *fs, const struct fds_unread *unread)
{
    fs->unread_count -= unread->count;
    close(unread->fd);
    service_give(fs->service, SERVICE_BOUND_CONNECTIONS, unread->uid, unread->places);
    service_give(fs->service, SERVICE_BOUND_FRAMES, unread->uid, unread->charged_bytes);
}

/* Returns false if the keeper cannot be told now; the next tick tries again. */
static bool drop_kept(struct fs *fs, uint64_t kept)
{
    return kept == 0 || fs->host.drop_unread(fs->host.context, kept);
}

static bool close_those_read(struct fs *fs)
{
    struct fds_unread **at = &fs->unread;
    while (*at) {
        struct fds_unread *unread = *at;
        if (!fds_has_unread(unread->fd) && drop_kept(fs, unread->kept)) {
            *at = unread->next;
            close_one(fs, unread);
            free(unread);
        } else {
            at = &unread->next;
        }
    }
    return fs->unread != NULL;
}

void fds_close_unread(struct fs *fs)
{
    struct fds_unread *next;
    for (struct fds_unread *unread = fs->unread; unread; unread = next) {
        next = unread->next;
        drop_kept(fs, unread->kept); /* if this fails, the keeper drops it when the mount is out of
                                        the tree */
        close_one(fs, unread);
        free(unread);
    }
    fs->unread = NULL;
}

/* Corrects the counts by the messages that clients have read. */
bool fds_count_unread(struct fs *fs)
{
    bool some_left = close_those_read(fs);
    for (size_t i = 0; fs->connections && i < fs->connections->count; i++) {
        struct connection *connection = fs->connections->items[i];
        if (connection->unread) {
            uint32_t unread = count_unread(connection->watch.fd, connection->unread);
            fs->unread_count -= connection->unread - unread;
            connection->unread = unread;
        }
        if (connection->charged_bytes > 0) {
            try_charge(connection, 0);
            some_left |= connection->charged_bytes > 0;
        }
    }
    return some_left;
}

int fds_charge(struct connection *connection, uint64_t more_bytes)
{
    int error = try_charge(connection, more_bytes);
    if (error) {
        fds_count_unread(connection->fs);
        error = try_charge(connection, more_bytes);
    }
    return error;
}

/* Returns how many unread descriptors the user of this connection has on other connections. */
static uint64_t count_others(const struct connection *own)
{
    const struct fs *fs = own->fs;
    uint64_t of_others = 0;
    for (const struct fds_unread *unread = fs->unread; unread; unread = unread->next)
        of_others += unread->uid == own->uid ? unread->count : 0;
    for (size_t i = 0; i < fs->connections->count; i++) {
        const struct connection *other = fs->connections->items[i];
        if (other != own && other->uid == own->uid)
            of_others += other->unread;
    }
    return of_others;
}

/* Returns true if another connection of the user has waited so long that this one has to let it go
 * first. */
static bool is_behind(const struct connection *own)
{
    const struct fs_connections *all = own->fs->connections;
    for (size_t i = 0; i < all->count; i++) {
        const struct connection *other = all->items[i];
        if (other != own && other->uid == own->uid && other->awaits_share &&
            other->active_ms < own->active_ms &&
            own->fs->now_ms - other->active_ms > fds_stall_ms() / 3)
            return true;
    }
    return false;
}

/* A single connection is bounded by its socket alone. */
static bool has_room(const struct connection *connection, uint32_t count)
{
    struct fs *fs = connection->fs;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
        (!fs->share_is_awaited && fs->unread_count + count <= limit.rlim_cur / PART_OF_USER))
        return true;
    if (!fs->unread_is_counted)
        fds_count_unread(fs);
    uint64_t of_others = count_others(connection);
    if (is_behind(connection))
        return false;
    return of_others == 0 ||
           (of_others + connection->unread + count <= limit.rlim_cur / PART_OF_USER &&
            fs->unread_count + count <= limit.rlim_cur / PART_OF_ALL);
}

bool fds_may_send(struct connection *connection, uint32_t count)
{
    struct fs *fs = connection->fs;
    if (fds_is_trusted(connection))
        return true;
    connection->awaits_share = !has_room(connection, count);
    if (connection->awaits_share) {
        fs->share_is_awaited = true;
        return false;
    }
    if (!connection->kept && !fs->detached &&
        fs->host.keep_unread(fs->host.context, fs->unread_last + 1, connection->watch.fd))
        connection->kept = ++fs->unread_last;
    return true;
}

void fds_note_sent(struct connection *connection, uint32_t count)
{
    if (fds_is_trusted(connection))
        return;
    connection->unread += count;
    connection->fs->unread_count += count;
}

static void end_later(struct fs *fs, const struct fds_unread *over)
{
    struct fds_unread *unread = malloc(sizeof *unread);
    if (!unread) {
        drop_kept(fs, over->kept);
        close_one(fs, over);
        return;
    }
    *unread = *over;
    unread->next = fs->unread;
    fs->unread = unread;
}

void fds_close_when_read(struct connection *connection)
{
    const struct fds_unread over = {.uid = connection->uid,
                                    .fd = connection->watch.fd,
                                    .count = connection->unread,
                                    .places = 1,
                                    .charged_bytes = connection->charged_bytes,
                                    .kept = connection->kept};
    bool is_unread = !connection->is_passed_on && fds_has_unread(over.fd);
    if (is_unread || over.kept) /* the client learns of it after its unread messages */
        shutdown(over.fd, SHUT_RDWR);
    if (is_unread || !drop_kept(connection->fs, over.kept))
        end_later(connection->fs, &over);
    else
        close_one(connection->fs, &over);
}

/* Returns how many descriptors to count for a connection if the number sent is unknown: the unread
 * bytes suggest far more than there can be, which would block the other users. The user never had
 * more than its share, except by a single connection. */
static uint32_t count_within_share(const struct fs *fs, uint32_t uid, uint32_t count)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return count;
    uint64_t share = limit.rlim_cur / PART_OF_USER;
    for (const struct fds_unread *unread = fs->unread; unread; unread = unread->next)
        if (unread->uid == uid)
            share -= unread->count < share ? unread->count : share;
    return count < share ? count : (uint32_t)share;
}

void fs_take_unread(struct fs *fs, uint64_t id, int fd)
{
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    struct fds_unread over = {.fd = fd, .kept = id};
    if (fs->unread_last < id)
        fs->unread_last = id;
    shutdown(fd, SHUT_RDWR);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0)
        over.uid = peer.uid;
    if (service_take(fs->service, SERVICE_BOUND_CONNECTIONS, 0, over.uid, 1) == 0)
        over.places = 1;
    uint64_t bytes = peer_count_unread(fd);
    if (service_take(fs->service, SERVICE_BOUND_FRAMES, 0, over.uid, bytes) == 0)
        over.charged_bytes = bytes;
    over.count = count_within_share(fs, over.uid, count_unread(fd, UINT32_MAX));
    fs->unread_count += over.count;
    end_later(fs, &over); /* the tick closes it if all was read */
}
