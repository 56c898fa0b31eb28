/* SPDX-License-Identifier: Apache-2.0 */
/* control - writes to `commit`, `seal`, `abort`, `residency` and `ctl` */
#include "fs/fs_internal.h"
#include "fs/residency.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ORDER_BYTES 64u

static void reply_all_written(struct fs_request *request, const struct service_answer *answer)
{
    (void)answer;
    fuse_reply_write(request->req, request->bytes);
}

/* Reads the one word that changes what a commit does. -EINVAL for a text that only resembles it: a
 * commit cannot be taken back. */
static int read_commit_flags(const char *from, size_t size, uint32_t *flags)
{
    static const char word[] = "immutable";
    size_t bytes = sizeof word - 1;
    *flags = 0;
    if (size < bytes || strncasecmp(from, word, bytes) != 0)
        return 0;
    bool is_word = memcmp(from, word, bytes) == 0;
    while (bytes < size && strchr(" \t\n", from[bytes]))
        bytes++;
    if (!is_word || bytes != size)
        return -EINVAL;
    *flags = CORE_COMMIT_IMMUTABLE;
    return 0;
}

/* Ends the session that the file joined when it was opened, otherwise the session of which the
 * caller is a member now. */
static void end_session(fuse_req_t req, const struct node *node, const char *from, size_t size,
                        uint64_t fh)
{
    static const uint8_t no_group[16];
    struct fs *fs = fs_of(req);
    struct service_caller caller;
    struct service_actor by;
    uint32_t flags = 0;
    int error = fs_get_actor(req, node->store->id, &caller, &by);
    by.file = fh;
    if (!error && node->kind == NODE_COMMIT)
        error = read_commit_flags(from, size, &flags);
    if (error) {
        fs_reply_error(req, error);
        return;
    }
    struct fs_request *request = fs_request_new(req, reply_all_written, 0);
    if (!request)
        return;
    request->bytes = size;
    if (node->kind == NODE_COMMIT)
        error = service_commit(fs->service, &by, flags, no_group, &request->service);
    else if (node->kind == NODE_SEAL)
        error = service_commit(fs->service, &by, CORE_COMMIT_SEAL, no_group, &request->service);
    else
        error = service_abort(fs->service, &by, &request->service);
    fs_request_submitted(request, error);
}

/* "revoke 7" or "revoke w7". 0, -EINVAL */
static int parse_revoke(const char *order, uint64_t *number, bool *is_waiter)
{
    char *end;
    order += strlen("revoke");
    order += strspn(order, " \t");
    *is_waiter = *order == 'w';
    if (*is_waiter)
        order++;
    if (*order < '0' || *order > '9')
        return -EINVAL;
    errno = 0;
    unsigned long long value = strtoull(order, &end, 10);
    end += strspn(end, " \t\n");
    if (errno || *end)
        return -EINVAL;
    *number = value;
    return 0;
}

static void revoke(fuse_req_t req, const char *order, size_t size, uint64_t fh)
{
    uint64_t number;
    bool is_waiter;
    int error = parse_revoke(order, &number, &is_waiter);
    if (error) {
        fs_reply_error(req, error);
        return;
    }
    struct fs_request *request = fs_request_new(req, reply_all_written, 0);
    if (!request)
        return;
    request->bytes = size;
    fs_request_submitted(
        request, service_revoke(request->fs->service, fh, number, is_waiter, &request->service));
}

static void write_abort(fuse_req_t req, const struct node *node, const char *from, size_t size,
                        uint64_t fh)
{
    char order[ORDER_BYTES];
    size_t copied = size < sizeof order - 1 ? size : sizeof order - 1;
    memcpy(order, from, copied);
    order[copied] = '\0';
    if (strncmp(order, "revoke", strlen("revoke")) != 0) {
        end_session(req, node, from, size, fh);
        return;
    }
    if (copied < size)
        fs_reply_error(req, -EINVAL);
    else
        revoke(req, order, size, fh);
}

/* Gathers a document's bytes in the order of their arrival; APPLY takes them, closing drops them.
 * Only a writer's handle gathers, so no other client can fill the memory. */
static void write_ctl(fuse_req_t req, const struct node *node, const char *from, size_t size,
                      uint64_t fh)
{
    struct fs *fs = fs_of(req);
    struct service_actor by = {.file = fh};
    struct fs_handle *handle = NULL;
    int error = service_touch(fs->service, &by);
    if (!error && fs_has_lost_bytes(fs, fh))
        error = -EIO;
    if (!error) {
        handle = fs_handle_get(fs, fh, node_get_id(node));
        error = handle ? 0 : -ENOMEM;
    }
    if (!error)
        error = fs_gather(fs, handle, handle->gathered.used + size, SERVICE_MAX_BULK_BYTES);
    if (!error)
        error = fs_note_gathered(fs, handle, FS_GATHERED_WRITE, handle->gathered.used, from, size);
    if (error) {
        fs_reply_error(req, error);
        return;
    }
    fs_gather_write(handle, handle->gathered.used, from, size);
    fuse_reply_write(req, size);
    fs->grows = handle->id;
}

/* Only begins the move: a client that wants to wait polls. */
static void write_residency(fuse_req_t req, const char *from, size_t size, uint64_t fh)
{
    struct service_move_order order;
    struct service_caller caller;
    int error = residency_parse(from, size, &order);
    if (!error) {
        error = service_order_move(fs_of(req)->service, fh, &order);
        fs_get_caller(req, 0, &caller);
        fs_order_note(fs_of(req), fh, &caller, &order, error);
    }
    if (error)
        fs_reply_error(req, error);
    else
        fuse_reply_write(req, size);
}

void fs_control_write(fuse_req_t req, const struct node *node, const char *from, size_t size,
                      const struct fuse_file_info *info)
{
    if (node->kind == NODE_CTL)
        write_ctl(req, node, from, size, info->fh);
    else if (node->kind == NODE_RESIDENCY)
        write_residency(req, from, size, info->fh);
    else if (node->kind == NODE_ABORT)
        write_abort(req, node, from, size, info->fh);
    else
        end_session(req, node, from, size, info->fh);
}
