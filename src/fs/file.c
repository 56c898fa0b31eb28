/* SPDX-License-Identifier: Apache-2.0 */
/* file - reading, writing and syncing open files: chooses the function for each kind of file */
#include "fs/fs_internal.h"

#include <errno.h>
#include <fcntl.h>

static void read_allocation(fuse_req_t req, uint64_t fh, size_t size, uint64_t offset)
{
    struct fs_request *request = fs_request_new(req, fs_reply_read, 0);
    if (request)
        fs_request_submitted(
            request, service_read(fs_of(req)->service, fh, size, offset, &request->service));
}

/* Reads the file's bytes of its allocation. -ESTALE: a writer has moved the file to another one
 * since the open. */
static void read_file(fuse_req_t req, uint64_t id, uint64_t fh, size_t size, uint64_t offset)
{
    const struct core *core = fs_of(req)->core;
    const struct core_file *opened = core_find_file(core, fh);
    struct file_tree_file file;
    struct node node;
    if (!opened || node_find(core, id, &node) || node_get_file(core, &node, &file) ||
        (file.allocation && file.allocation->serial != opened->serial)) {
        fs_reply_error(req, -ESTALE);
        return;
    }
    if (offset >= file.size_bytes) {
        fuse_reply_buf(req, NULL, 0);
        return;
    }
    if (size > file.size_bytes - offset)
        size = (size_t)(file.size_bytes - offset);
    read_allocation(req, fh, size, file.offset + offset);
}

/* Pages stay in the kernel's cache, and the daemon cannot tell the kernel that a process has
 * written to the memory behind them by a mapping. So only memory that a reader protects from
 * writers has pages. */
static bool may_have_pages(const struct core *core, uint64_t fh)
{
    const struct core_file *file = core_find_file(core, fh);
    const struct core_session *session = file ? core_find_session(core, file->session) : NULL;
    return session && session->mode == LOCK_MODE_RO && file->kind == CORE_KIND_ALLOCATION;
}

/* A value may be read without a session: it has pages while there is no writer. */
static bool may_have_entry_pages(const struct core *core, uint64_t fh)
{
    const struct core_file *file = core_find_file(core, fh);
    const struct core_store *store = file ? core_find_store(core, file->store) : NULL;
    return store && store->lock.held[LOCK_MODE_RW] == 0;
}

/* A holder of a region that lies on an allocation reads its bytes, other clients its
 * description. */
static bool is_held_allocation(const struct core *core, uint64_t fh)
{
    const struct core_file *file = core_find_file(core, fh);
    return file && file->holds && file->store != 0;
}

static bool may_read_pages(const struct core *core, uint64_t id, uint64_t fh)
{
    switch (node_get_kind(id)) {
    case NODE_ALLOCATION:
    case NODE_FILE:
    case NODE_MADE:
    case NODE_MADE_GGUF:
        return may_have_pages(core, fh);
    case NODE_REGION:
        return !is_held_allocation(core, fh);
    case NODE_ENTRY:
        return may_have_entry_pages(core, fh);
    default:
        return true; /* the function that makes the text decides */
    }
}

void fs_op_read(fuse_req_t req, fuse_ino_t id, size_t size, off_t offset,
                struct fuse_file_info *info)
{
    if (fs_get_reading(info) == FS_READ_PAGES && !may_read_pages(fs_of(req)->core, id, info->fh)) {
        fs_reply_error(req, -EINVAL);
        return;
    }
    switch (node_get_kind(id)) {
    case NODE_ALLOCATION:
        read_allocation(req, info->fh, size, (uint64_t)offset);
        break;
    case NODE_FILE:
        read_file(req, id, info->fh, size, (uint64_t)offset);
        break;
    case NODE_MADE:
    case NODE_MADE_GGUF:
        fs_made_read(req, id, info->fh, size, (uint64_t)offset);
        break;
    case NODE_REGION:
        if (is_held_allocation(fs_of(req)->core, info->fh))
            read_allocation(req, info->fh, size, (uint64_t)offset);
        else
            fs_pseudo_read(req, id, info->fh, size, (uint64_t)offset, fs_get_reading(info));
        break;
    case NODE_ENTRY:
        fs_entry_read(req, id, info->fh, size, (uint64_t)offset);
        break;
    case NODE_EVENTS:
        fs_events_read(req, id, info->fh, size, (uint64_t)offset, fs_get_reading(info));
        break;
    case NODE_CTL:
        fuse_reply_buf(req, NULL, 0);
        break;
    default:
        fs_pseudo_read(req, id, info->fh, size, (uint64_t)offset, fs_get_reading(info));
        break;
    }
}

static void reply_written(struct fs_request *request, const struct service_answer *answer)
{
    fuse_reply_write(request->req, answer->bytes);
}

/* A write that waited for its turn was admitted before. */
static int admit_write(struct fs *fs, uint64_t fh, size_t size, struct service_admitted *admitted)
{
    if (!fs->admitted.bytes)
        return service_admit_write(fs->service, fh, size, admitted);
    *admitted = fs->admitted;
    fs->admitted = (struct service_admitted){0};
    return 0;
}

static void write_allocation(fuse_req_t req, const char *from, size_t size, uint64_t offset,
                             const struct fuse_file_info *info)
{
    struct service *service = fs_of(req)->service;
    struct fs_request *request = fs_request_new(req, reply_written, 0);
    if (!request)
        return;
    /* A partial admission is a short write, after which the caller writes the rest: nothing else
     * keeps the kernel from handing out more than there is room for. */
    int error = admit_write(fs_of(req), info->fh, size, &request->admitted);
    size = (size_t)request->admitted.bytes;
    const void *kept = error ? NULL : fs_request_keep_bytes(request, from, size);
    if (!kept)
        fs_request_finish(request, error ? error : -ENOMEM, NULL);
    else if (info->flags & O_APPEND)
        fs_request_submitted(request,
                             service_append(service, info->fh, kept, size, &request->service));
    else
        fs_request_submitted(
            request, service_write(service, info->fh, kept, size, offset, &request->service));
}

void fs_op_write(fuse_req_t req, fuse_ino_t id, const char *from, size_t size, off_t offset,
                 struct fuse_file_info *info)
{
    struct node node;
    if (node_find(fs_of(req)->core, id, &node)) {
        fs_reply_error(req, -ESTALE);
        return;
    }
    switch (node.kind) {
    case NODE_ALLOCATION:
        write_allocation(req, from, size, (uint64_t)offset, info);
        break;
    case NODE_ENTRY:
        fs_entry_write(req, id, from, size, (uint64_t)offset, info);
        break;
    case NODE_CTL:
    case NODE_COMMIT:
    case NODE_SEAL:
    case NODE_ABORT:
    case NODE_RESIDENCY:
        fs_control_write(req, &node, from, size, info);
        break;
    case NODE_POOLS:
        fs_pools_write(req, from, size, info->fh);
        break;
    default: /* lock, auto, data */
        fs_reply_error(req, -EINVAL);
        break;
    }
}

void fs_op_fsync(fuse_req_t req, fuse_ino_t id, int datasync, struct fuse_file_info *info)
{
    (void)datasync;
    switch (node_get_kind(id)) {
    case NODE_ENTRY:
        fs_reply_error(req, fs_entry_put(fs_of(req), info->fh));
        break;
    case NODE_ALLOCATION: {
        struct fs_request *request = fs_request_new(req, fs_reply_done, 0);
        if (request)
            fs_request_submitted(request,
                                 service_sync(fs_of(req)->service, info->fh, &request->service));
        break;
    }
    default:
        fs_reply_error(req, 0);
        break;
    }
}
