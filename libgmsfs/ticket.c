/* SPDX-License-Identifier: Apache-2.0 */
/* Exchanging a ticket for descriptors on `.fds`. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ask/ask.h"
#include "internal.h"

#define TICKET_SPARE_FDS 32 /* left for the program's other threads while a batch is open */

struct ticket_message {
    struct gmsfs_fds_header header;
    struct gmsfs_fds_item items[GMSFS_BATCH_MAX];
    char tags[GMSFS_FDS_TAGS_MAX]; /* they begin behind the last item that came */
};

/* The remaining work of one export, over several tickets if needed. */
struct ticket_transfer {
    struct gmsfs_store *handle;
    gfs_take_fn *take;
    void *context;
    uint64_t taken;
    int broken; /* the way failed, or the ticket was too old: worth another one */
    int full;   /* there was no room for the descriptors */
};

/* ---- connecting --------------------------------------------------------------------------- */

static int ticket_is_cancelled(void *handle)
{
    return gfs_wait_is_cancelled(handle);
}

static struct ask_limits ticket_limits(struct gmsfs_store *handle)
{
    return (struct ask_limits){
        .timeout_ms = GFS_REPLY_TIMEOUT_MS, .is_cancelled = ticket_is_cancelled, .context = handle};
}

/* Inside the gate. The mount's root is the directory above the store, under any name. */
static int ticket_connect_once(struct gmsfs_store *handle)
{
    char path[PATH_MAX];
    int root, fd, error;

    root = gfs_fd_above(openat(handle->dir_fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (root < 0)
        return gfs_file_error(errno);
    snprintf(path, sizeof path, "%s/..", handle->path);
    fd = gfs_fd_above(ask_socket(SOCK_NONBLOCK));
    error = fd < 0 ? -errno : ask_connect(fd, root, path);
    close(root);
    if (!error)
        handle->fds_fd = fd;
    else if (fd >= 0)
        close(fd);
    return gfs_file_error(-error);
}

static int ticket_connect(struct gmsfs_store *handle)
{
    const struct ask_limits limits = ticket_limits(handle);
    uint64_t start_ms = gfs_clock_ms();
    int error;

    if (handle->fds_fd >= 0)
        return 0;
    do {
        gfs_gate_enter();
        error = ticket_connect_once(handle);
        gfs_gate_leave();
        if (error != -EAGAIN && error != -EINTR)
            break;
        error = ask_pause(&limits, start_ms);
    } while (!error);
    if (error == -ENOENT)
        return -EHOSTUNREACH;
    return error == -ECONNREFUSED ? -ENOTCONN : error;
}

/* ---- how many at a time ------------------------------------------------------------------- */

/* 0: it cannot be told. Since Linux 6.2 the directory's size is their number. */
static uint64_t ticket_used_fds(void)
{
    uint64_t used = 0;
    struct stat st;

    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
        return (uint64_t)st.st_size;
    gfs_gate_enter();
    DIR *directory = opendir("/proc/self/fd");
    while (directory && readdir(directory))
        used++;
    if (directory)
        closedir(directory);
    gfs_gate_leave();
    return used > 3 ? used - 3 : 0; /* ".", ".." and the directory itself */
}

/* Descriptors this process may still open; when that cannot be told, a cautious guess. */
static uint64_t ticket_free_fds(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return TICKET_SPARE_FDS;
    if (limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    uint64_t used = ticket_used_fds();
    if (used == 0)
        return limit.rlim_cur / 4;
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

static uint32_t ticket_batch(uint64_t count)
{
    if (count <= 1)
        return 1;
    uint64_t room = ticket_free_fds();
    room = room > 2 * TICKET_SPARE_FDS ? room - TICKET_SPARE_FDS : room / 2;
    room = room < count ? room : count;
    room = room < GMSFS_BATCH_MAX ? room : GMSFS_BATCH_MAX;
    return room ? (uint32_t)room : 1;
}

/* ---- one message -------------------------------------------------------------------------- */

static int ticket_send(struct ticket_transfer *transfer, const uint8_t ticket[16], uint32_t batch)
{
    const struct ask_limits limits = ticket_limits(transfer->handle);
    struct gmsfs_fds_request request = {
        .version = GMSFS_ABI_VERSION, .op = GMSFS_FDS_REDEEM, .batch = batch};

    memcpy(request.ticket, ticket, sizeof request.ticket);
    int error = ask_send(transfer->handle->fds_fd, &request, sizeof request, -1, &limits);
    transfer->broken |= error && error != -ECANCELED && error != -ETIMEDOUT;
    return error;
}

/* Inside the gate, from here to where the last descriptor is taken or closed. */
static int ticket_receive(struct ticket_transfer *transfer, struct ticket_message *message,
                          size_t *size_bytes, int fds[GMSFS_BATCH_MAX], size_t *fd_count)
{
    *fd_count = GMSFS_BATCH_MAX;
    ssize_t got = ask_receive(transfer->handle->fds_fd, message, sizeof *message, fds, fd_count);
    int lost = got == -EMFILE;
    for (size_t i = 0; i < *fd_count; i++) {
        fds[i] = gfs_fd_above(fds[i]);
        lost |= fds[i] < 0;
    }
    if (lost) {                             /* no room in the descriptor table */
        transfer->broken = !transfer->full; /* the next batch may be smaller */
        transfer->full = 1;
        return -EMFILE;
    }
    if (got < 0) {
        transfer->broken = got != -EPROTO;
        return (int)got;
    }
    if ((size_t)got < sizeof message->header)
        return -EPROTO;
    if (message->header.error) {
        transfer->broken = message->header.error == -ESTALE; /* or the session is: EXPORT tells */
        return message->header.error < 0 ? message->header.error : -EPROTO;
    }
    /* Addresses that were made for one kind of memory are not for another. */
    if (gfs_memory_find_kind(message->header.memory) != transfer->handle->memory.kind)
        return -EXDEV;
    if (message->header.count != *fd_count || *fd_count == 0 ||
        (size_t)got < sizeof message->header + *fd_count * sizeof message->items[0])
        return -EPROTO;
    *size_bytes = (size_t)got;
    return 0;
}

/* Item i of a message of so many bytes. A tag that does not end within it is none. */
static struct gfs_item ticket_item(const struct ticket_message *message, size_t size_bytes,
                                   size_t i)
{
    const struct gmsfs_fds_item *item = message->items + i;
    const char *tags = (const char *)(message->items + message->header.count);
    const char *end = (const char *)message + size_bytes;
    struct gfs_item out = {.rank = item->rank,
                           .slot = item->slot,
                           .size_bytes = item->size_bytes,
                           .aligned_bytes = item->aligned_bytes};

    if (item->tag_at < (size_t)(end - tags) && end[-1] == '\0')
        out.tag = tags + item->tag_at;
    return out;
}

static int ticket_take_message(struct ticket_transfer *transfer, uint64_t expected,
                               uint64_t *remaining)
{
    const struct ask_limits limits = ticket_limits(transfer->handle);
    struct ticket_message message;
    int fds[GMSFS_BATCH_MAX];
    size_t count, size_bytes = 0;
    int error = ask_wait(transfer->handle->fds_fd, POLLIN, &limits);

    if (error)
        return error;
    gfs_gate_enter();
    error = ticket_receive(transfer, &message, &size_bytes, fds, &count);
    if (!error && count + message.header.remaining != expected)
        error = -EPROTO;
    for (size_t i = 0; i < count; i++) {
        if (!error) {
            struct gfs_item item = ticket_item(&message, size_bytes, i);
            error = transfer->take(transfer->context, &item, fds + i);
        }
        if (!error) {
            transfer->taken++;
            transfer->full = 0;
        }
    }
    ask_close(fds, count);
    gfs_gate_leave();
    if (!error)
        *remaining = message.header.remaining;
    return error;
}

/* ---- one ticket --------------------------------------------------------------------------- */

static int ticket_redeem_once(struct ticket_transfer *transfer, const uint8_t ticket[16],
                              uint64_t count)
{
    int error = ticket_connect(transfer->handle);

    if (error)
        return error;
    error = ticket_send(transfer, ticket, ticket_batch(count));
    while (!error && count > 0)
        error = ticket_take_message(transfer, count, &count);
    if (error)
        /* a late message must not meet the next request */
        gfs_fds_close(transfer->handle);
    return error;
}

int gfs_export_check(const struct gmsfs_store *handle, enum gmsfs_access access)
{
    if (access != GMSFS_ACCESS_READ && access != GMSFS_ACCESS_WRITE)
        return -EINVAL;
    if (handle->mode == GMSFS_MODE_NONE)
        return -ENOLCK;
    return access == GMSFS_ACCESS_WRITE && !gfs_session_writes(handle) ? -EACCES : 0;
}

int gfs_export_ticket(struct gmsfs_store *handle, struct gfs_export *export)
{
    struct gmsfs_ioc_export request = {
        .first = export->first,
        .count = export->count,
        .flags = (export->access == GMSFS_ACCESS_WRITE ? GMSFS_EXPORT_WRITABLE : 0) |
                 (export->by_slot ? GMSFS_EXPORT_BY_SLOT : 0)};
    int error = gfs_ioctl(handle, GMSFS_IOC_EXPORT, &request);

    if (error)
        return error;
    if (export->count && request.count != export->count)
        return -EPROTO;
    export->count = request.count;
    export->total_bytes = request.total_bytes;
    memcpy(export->ticket, request.ticket, sizeof export->ticket);
    export->has_ticket = 1;
    return 0;
}

/* The same from the first descriptor that has not come, by another ticket. */
static int ticket_redeem_rest(struct ticket_transfer *transfer, const struct gfs_export *export)
{
    struct gfs_export rest = *export;

    rest.first += transfer->taken;
    rest.count -= transfer->taken;
    transfer->broken = 0;
    int error = gfs_export_ticket(transfer->handle, &rest);
    return error ? error : ticket_redeem_once(transfer, rest.ticket, rest.count);
}

static int ticket_is_cut(int error)
{
    return error == -EPIPE || error == -ECONNRESET || error == -EAGAIN;
}

/* A connection ends with the daemon's worker, which is then replaced, or by the daemon's timeout; a
 * ticket expires. Descriptors that arrived before are not asked for again. */
int gfs_export_redeem(struct gmsfs_store *handle, struct gfs_export *export, gfs_take_fn *take,
                      void *context)
{
    struct ticket_transfer transfer = {.handle = handle, .take = take, .context = context};
    struct gfs_again again;
    uint64_t taken = 0;

    if (export->count == 0)
        return 0;
    gfs_again_begin(&again);
    int error = ticket_redeem_once(&transfer, export->ticket, export->count);
    while (error && transfer.broken) {
        if (transfer.taken > taken)
            gfs_again_begin(&again);
        taken = transfer.taken;
        if (gfs_wait_is_cancelled(handle))
            return -ECANCELED;
        if (!gfs_again_pause(&again))
            return ticket_is_cut(error) ? -ETIMEDOUT : error;
        error = ticket_redeem_rest(&transfer, export);
    }
    return error;
}

/* ---- one allocation ----------------------------------------------------------------------- */

int gfs_export_slot(struct gmsfs_store *handle, uint64_t slot, enum gmsfs_access access,
                    gfs_take_fn *take, void *context)
{
    struct gfs_export export = {.first = slot, .by_slot = 1, .count = 1, .access = access};
    int error = gfs_export_ticket(handle, &export);

    return error ? error : gfs_export_redeem(handle, &export, take, context);
}
