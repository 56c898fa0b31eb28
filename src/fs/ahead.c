/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ahead - requests that were read from the kernel and wait for their turn
 *
 * /dev/fuse is one queue for all users. Its requests are read ahead of the service and served in
 * turns: first looks against all other requests, then by user, then by process group, because in
 * containers every process is root. A request that must keep its place in the order is served when
 * it is read: the close of a file that may be in a session, because a client that asks afterwards
 * relies on it. An INTERRUPT follows the request that it interrupts.
 *
 * A waiting request is unanswered like any other: it is in the ledger, and if this worker dies, the
 * kernel sends it to the next one.
 */
#include "fs/fs_internal.h"

#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AHEAD_LARGE_BYTES    4096u /* no look is so large, no revocation, and no drain */
#define AHEAD_LEAST_ARGUMENT 256u  /* of an ioctl: its zeros are cut only if it is larger */

/* The first keys of a path in the rota. */
enum {
    AHEAD_LOOKS,
    AHEAD_OTHERS,
};

/* The request in fs->buffer. */
struct arrival {
    struct fuse_in_header *head;
    const void *argument;
    size_t size;
    bool is_close;  /* the kernel does not say whose it is */
    bool is_needed; /* never refused: the sender relies on it */
    uint64_t fh;    /* of a close and of a WRITE */
};

/* ---- kinds of requests ------------------------------------------------------------------- */

static bool is_text(uint64_t node)
{
    return node_get_traits(node_get_kind(node))->file == CORE_KIND_PSEUDO;
}

static bool is_look(const struct fuse_in_header *head)
{
    switch (head->opcode) {
    case FUSE_LOOKUP:
    case FUSE_GETATTR:
    case FUSE_READLINK:
    case FUSE_STATFS:
    case FUSE_GETXATTR:
    case FUSE_LISTXATTR:
    case FUSE_ACCESS:
    case FUSE_OPENDIR:
    case FUSE_READDIR:
    case FUSE_READDIRPLUS:
    case FUSE_RELEASEDIR:
    case FUSE_FSYNCDIR:
    case FUSE_POLL:
        return true;
    case FUSE_OPEN:
    case FUSE_READ:
    case FUSE_RELEASE:
        return is_text(head->nodeid);
    default:
        return false;
    }
}

static bool is_served_now(const struct fuse_in_header *head)
{
    switch (head->opcode) {
    case FUSE_INIT:
    case FUSE_DESTROY:
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
        return true;
    case FUSE_RELEASE:
        return !is_text(head->nodeid);
    default:
        return false;
    }
}

/* Returns true for APPLY, which consumes the gathered bytes even if it fails. */
static bool is_apply(const struct fuse_in_header *head, size_t size)
{
    const struct fuse_ioctl_in *ioctl = (const struct fuse_ioctl_in *)(head + 1);

    return head->opcode == FUSE_IOCTL && size >= sizeof *head + sizeof *ioctl &&
           ioctl->cmd == (uint32_t)GMSFS_IOC_APPLY;
}

static bool describe(struct fs *fs, size_t size, struct arrival *arrival)
{
    struct fuse_in_header *head = fs->buffer.mem;

    if (size < sizeof *head)
        return false;
    *arrival = (struct arrival){.head = head, .argument = head + 1, .size = size};
    arrival->is_close = head->opcode == FUSE_FLUSH || head->opcode == FUSE_RELEASE ||
                        head->opcode == FUSE_RELEASEDIR;
    arrival->is_needed = arrival->is_close || is_apply(head, size);
    if (arrival->is_close && size >= sizeof *head + sizeof(struct fuse_flush_in))
        arrival->fh = ((const struct fuse_flush_in *)arrival->argument)->fh;
    if (head->opcode == FUSE_WRITE && size > sizeof *head + sizeof(struct fuse_write_in))
        arrival->fh = ((const struct fuse_write_in *)arrival->argument)->fh;
    return true;
}

/* ---- owners ------------------------------------------------------------------------------ */

static uint32_t find_user(struct fs *fs, const struct arrival *arrival, uint32_t *pid)
{
    const struct fs_handle *directory;

    *pid = arrival->head->pid;
    if (!arrival->is_close)
        return arrival->head->uid;
    if (arrival->head->opcode == FUSE_RELEASEDIR) {
        directory = idvec_find(&fs->dirs, arrival->fh);
        return directory ? directory->uid : arrival->head->uid;
    }
    const struct core_file *file = core_find_file(fs->core, arrival->fh);
    *pid = file ? (uint32_t)file->opener.pid : 0;
    return file ? file->uid : arrival->head->uid;
}

/* Asks the kernel alone, and never waits. 0 if the kernel does not know the thread, as for one of
 * another namespace. */
static uint64_t find_group(uint32_t tid)
{
    pid_t group = tid ? getpgid((pid_t)tid) : 0;

    return group > 0 ? (uint64_t)group : 0;
}

/* ---- by number --------------------------------------------------------------------------- */

static struct fs_ahead_request **find(struct fs *fs, uint64_t unique)
{
    /* The kernel counts in steps of two. */
    struct fs_ahead_request **at = &fs->ahead.buckets[unique / 2 % FS_AHEAD_BUCKETS];

    while (*at && (*at)->unique != unique)
        at = &(*at)->next;
    return at;
}

/* Attaches the INTERRUPT to a waiting request. False: that request does not wait. */
static bool take_interrupt(struct fs *fs, const struct arrival *arrival)
{
    const struct fuse_interrupt_in *interrupt = arrival->argument;
    struct fs_ahead_request *request = NULL;

    if (arrival->size >= sizeof *arrival->head + sizeof *interrupt)
        request = *find(fs, interrupt->unique);
    if (request)
        request->interrupt = arrival->head->unique;
    return request != NULL;
}

/* ---- taking ------------------------------------------------------------------------------ */

/* Cuts zeros off the end of an ioctl's argument; the decoder fills them in again. */
static void cut_zeros(struct arrival *arrival)
{
    struct fuse_ioctl_in *ioctl = (struct fuse_ioctl_in *)(arrival->head + 1);
    size_t heads = sizeof *arrival->head + sizeof *ioctl;
    const uint8_t *bytes = (const uint8_t *)(ioctl + 1);
    size_t used;

    if (arrival->size <= heads + AHEAD_LEAST_ARGUMENT || ioctl->in_size != arrival->size - heads)
        return;
    for (used = ioctl->in_size; used > AHEAD_LEAST_ARGUMENT && !bytes[used - 1];)
        used--;
    ioctl->in_size = (uint32_t)used;
    arrival->size = heads + used;
}

/* Cuts a WRITE to its user's share, as for one that is served at once: its caller has to write the
 * rest again. A line that is written to any other file has a meaning only as a whole, so it stays
 * whole. */
static void cut_write(struct fs *fs, struct arrival *arrival, struct service_admitted *admitted)
{
    struct fuse_write_in *write = (struct fuse_write_in *)(arrival->head + 1);
    size_t heads = sizeof *arrival->head + sizeof *write;
    uint64_t bytes = FS_LEAST_WRITE_BYTES;

    enum node_kind kind = node_get_kind(arrival->head->nodeid);

    if (arrival->size <= heads || write->size != arrival->size - heads ||
        (kind != NODE_ALLOCATION && kind != NODE_ENTRY))
        return;
    if (service_admit_write(fs->service, arrival->fh, write->size, admitted) == 0)
        bytes = admitted->bytes;
    if (bytes >= write->size)
        return;
    write->size = (uint32_t)bytes;
    arrival->size = heads + bytes;
}

/* Returns 0, or -EDQUOT or -ENOMEM if the user may not have more. A close is never refused, and a
 * look counts by its bytes alone: however many requests of a user wait, it may look. */
static int count(struct fs *fs, struct fs_ahead_request *request, const struct arrival *arrival)
{
    uint64_t bytes = sizeof *request + arrival->size - request->admitted.bytes;
    int error = 0;

    if (arrival->is_close)
        return 0;
    if (!is_look(arrival->head)) {
        error = service_take(fs->service, SERVICE_BOUND_REQUESTS, 0, request->uid, 1);
        request->is_counted = error == 0;
    }
    if (!error && bytes >= AHEAD_LARGE_BYTES)
        error = service_take_beside_looks(fs->service, SERVICE_BOUND_AHEAD, request->uid, bytes);
    else if (!error)
        error = service_take(fs->service, SERVICE_BOUND_AHEAD, 0, request->uid, bytes);
    if (!error)
        request->counted_bytes = bytes;
    return error;
}

static void uncount(struct fs *fs, struct fs_ahead_request *request)
{
    service_give(fs->service, SERVICE_BOUND_AHEAD, request->uid, request->counted_bytes);
    if (request->is_counted)
        service_give(fs->service, SERVICE_BOUND_REQUESTS, request->uid, 1);
    request->counted_bytes = 0;
    request->is_counted = false;
}

/* A large request keeps the buffer that it was read into. */
static struct fs_ahead_request *new_request(struct fs *fs, const struct arrival *arrival)
{
    bool steals = arrival->size >= FS_STEAL_FROM_BYTES;
    struct fs_ahead_request *request = malloc(sizeof *request + (steals ? 0 : arrival->size));

    if (!request)
        return NULL;
    *request = (struct fs_ahead_request){
        .unique = arrival->head->unique, .is_stolen = steals, .size = arrival->size};
    request->bytes = steals ? fs->buffer.mem : request->copy;
    if (steals)
        fs->buffer.mem = NULL;
    else
        memcpy(request->copy, arrival->head, arrival->size);
    return request;
}

static void refuse(struct fs *fs, uint64_t unique, int error)
{
    struct fuse_out_header answer = {.len = sizeof answer, .error = error, .unique = unique};
    struct iovec part = {&answer, sizeof answer};

    fs->host.answer(fs->host.context, fs->options.fuse_fd, &part, 1, 0);
    fs->host.end_step(fs->host.context);
}

/* Queues the request. Returns 0, -ENOMEM, or an error of count. */
static int queue(struct fs *fs, struct fs_ahead_request *request, const struct arrival *arrival)
{
    struct fs_ahead_request **place = find(fs, request->unique);
    uint64_t path[ROTA_DEPTH] = {is_look(arrival->head) ? AHEAD_LOOKS : AHEAD_OTHERS};
    uint32_t pid;

    request->uid = find_user(fs, arrival, &pid);
    path[1] = request->uid;
    path[2] = find_group(pid);
    int error = count(fs, request, arrival);
    if (!error)
        error = rota_push(&fs->ahead.rota, path, &request->item);
    if (error)
        return error;
    request->next = *place;
    *place = request;
    if (!arrival->is_close) /* the kernel sends it again */
        request->ledger_slot = fs_ledger_shelve(fs, request->unique, &request->since_ms);
    return 0;
}

static void free_request(struct fs *fs, struct fs_ahead_request *request)
{
    uncount(fs, request);
    service_forget_write(fs->service, &request->admitted);
    if (request->is_stolen)
        fs_buffer_give(fs, request->bytes);
    free(request);
}

static void cut(struct fs *fs, struct arrival *arrival, struct service_admitted *admitted)
{
    if (arrival->head->opcode == FUSE_IOCTL)
        cut_zeros(arrival);
    if (arrival->head->opcode == FUSE_WRITE)
        cut_write(fs, arrival, admitted);
    arrival->head->len = (uint32_t)arrival->size;
    fs->buffer.size = arrival->size;
}

enum fs_ahead_taken fs_ahead_take(struct fs *fs, size_t size)
{
    struct service_admitted admitted = {0};
    struct arrival arrival;

    if (!describe(fs, size, &arrival) || is_served_now(arrival.head))
        return FS_AHEAD_NOW;
    if (arrival.head->opcode == FUSE_INTERRUPT)
        return take_interrupt(fs, &arrival) ? FS_AHEAD_QUEUED : FS_AHEAD_NOW;
    cut(fs, &arrival, &admitted);
    struct fs_ahead_request *request = new_request(fs, &arrival);
    if (!request) {
        fs->admitted = admitted;
        return FS_AHEAD_NOW;
    }
    request->admitted = admitted;
    int error = queue(fs, request, &arrival);
    if (!error)
        return FS_AHEAD_QUEUED;
    if (arrival.is_needed && !request->is_stolen) {
        free_request(fs, request);
        return FS_AHEAD_NOW;
    }
    refuse(fs, request->unique, error);
    free_request(fs, request);
    return FS_AHEAD_REFUSED;
}

/* ---- serving ----------------------------------------------------------------------------- */

struct fs_ahead_request *fs_ahead_next(struct fs *fs)
{
    struct fs_ahead_request *request = (struct fs_ahead_request *)rota_pop(&fs->ahead.rota);

    if (!request)
        return NULL;
    *find(fs, request->unique) = request->next;
    uncount(fs, request); /* it counts as one that is served */
    fs->admitted = request->admitted;
    fs->served_since_ms = request->since_ms;
    request->admitted = (struct service_admitted){0};
    return request;
}

void fs_ahead_done(struct fs *fs, struct fs_ahead_request *request)
{
    fs->served_since_ms = 0;
    free_request(fs, request);
}

/* The kernel answers the clients of these requests, or sends the requests to the next worker. */
void fs_ahead_free(struct fs *fs)
{
    struct fs_ahead_request *request;

    while ((request = (struct fs_ahead_request *)rota_pop(&fs->ahead.rota))) {
        fs_ledger_unshelve(fs, request->ledger_slot);
        free_request(fs, request);
    }
    rota_free(&fs->ahead.rota);
    memset(fs->ahead.buckets, 0, sizeof fs->ahead.buckets);
}
