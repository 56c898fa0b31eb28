/* SPDX-License-Identifier: Apache-2.0 */
/* open - opening, creating, flushing and releasing files of every kind */
#include "fs/fs_internal.h"

#include "meta/name.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* A file in `files` is opened as the allocation that its bytes are in, and without bytes as its
 * entry, which needs no lock. */
static void describe_file(const struct core *core, const struct node *node,
                          struct service_open *open)
{
    struct file_tree_file file = {0};
    node_get_file(core, node, &file);
    if (!file.allocation)
        open->kind = CORE_KIND_ENTRY;
    open->serial = file.allocation ? file.allocation->serial : node->entry->serial;
}

/* `pieces` is opened as the first allocation, which keeps writers away from all bytes; without
 * bytes as a text. */
static void describe_pieces(const struct core *core, const struct node *node,
                            struct service_open *open)
{
    const struct layout *layout = core_get_layout(core, node->store);
    bool has_bytes = layout_count_allocations(layout) > 0;
    open->kind = has_bytes ? CORE_KIND_ALLOCATION : CORE_KIND_PSEUDO;
    open->serial = has_bytes ? layout_at_rank(layout, 0)->serial : (uint64_t)node->kind;
}

static struct service_open describe(const struct core *core, const struct node *node, int flags)
{
    int access = flags & O_ACCMODE;
    struct service_open open = {
        .store = node->store ? node->store->id : 0,
        .kind = node_get_traits(node->kind)->file,
        .read = access != O_WRONLY,
        .write = access != O_RDONLY,
        .nonblock = (flags & O_NONBLOCK) != 0,
        .truncate = (flags & O_TRUNC) != 0 && access != O_RDONLY,
    };
    if (node->kind == NODE_FILE)
        describe_file(core, node, &open);
    else if (node->kind == NODE_PIECES)
        describe_pieces(core, node, &open);
    else if (node_is_made(node->kind)) /* any allocation: the lock of its reader is the store's */
        open.serial = layout_at_rank(node->store->fixed, 0)->serial;
    else if (node->allocation)
        open.serial = node->allocation->serial;
    else if (node->entry)
        open.serial = node->entry->serial;
    else if (node->region) {
        open.store = node->region->store;
        open.serial = node->region->id;
    } else if (open.kind == CORE_KIND_PSEUDO)
        open.serial = (uint64_t)node->kind;
    return open;
}

/* Returns true if a file of this kind needs a FLUSH. A close of the others ends nothing and no
 * process waits for it: they write nothing and are in no session. */
static bool asks_flush(enum node_kind kind)
{
    enum core_kind file = node_get_traits(kind)->file;

    return file != CORE_KIND_PSEUDO && file != CORE_KIND_REGION;
}

static void fill_info(struct fuse_file_info *info, enum node_kind kind, uint64_t fh)
{
    info->fh = fh;
    info->direct_io = 1;
    info->noflush = !asks_flush(kind);
}

/* Closes a file whose client was interrupted before the answer reached it: no RELEASE will come. */
void fs_on_unwanted(struct fs *fs, uint64_t fh)
{
    fs_mapped_close(fs, fh);
    fs_handle_drop(fs, fh);
    service_close(fs->service, fh);
}

/* Returns true for an open that only reads bytes of an allocation. */
static bool reads_bytes(uint64_t id, int flags)
{
    enum node_kind kind = node_get_kind(id);
    return (kind == NODE_ALLOCATION || kind == NODE_FILE || kind == NODE_PIECES ||
            node_is_made(kind)) &&
           (flags & (O_ACCMODE | O_TRUNC)) == O_RDONLY;
}

/* Returns the part of an allocation that the node shows. */
static enum fs_part get_part(const struct core *core, const struct node *node)
{
    struct file_tree_file file = {0};
    if (node->kind == NODE_FILE)
        node_get_file(core, node, &file);
    if (node->kind == NODE_ALLOCATION || file.is_whole)
        return FS_PART_WHOLE;
    return file.allocation ? FS_PART_SOME : FS_PART_NONE;
}

/* Finds the part of an allocation that the new file, which only reads, shows. -ESTALE: the name
 * means other bytes than when the open began, or none. */
static int find_part(const struct fs_request *request, uint64_t file, enum fs_part *part,
                     uint64_t *serial)
{
    const struct core *core = request->fs->core;
    const struct core_file *opened = core_find_file(core, file);
    struct node node;
    *part = FS_PART_NONE;
    if (!reads_bytes(request->node, request->info.flags))
        return 0;
    if (!opened || node_find(core, request->node, &node))
        return -ESTALE;
    const struct core_session *session = core_find_session(core, opened->session);
    if (node_is_made(node.kind) && (!session || session->mode != LOCK_MODE_RO))
        return -EAGAIN; /* the caller's own writer may change the tensors */
    struct service_open now = describe(core, &node, request->info.flags);
    if (now.kind != opened->kind || now.serial != opened->serial)
        return -ESTALE;
    *serial = now.serial;
    *part = get_part(core, &node);
    return 0;
}

static int finish_open(struct fs_request *request, uint64_t file)
{
    struct fs *fs = request->fs;
    enum node_kind kind = node_get_kind(request->node);
    enum fs_part part;
    uint64_t serial = 0;
    int error = request->error;
    if (!error && kind == NODE_ENTRY && (request->info.flags & O_TRUNC))
        error = fs_entry_truncate_opened(fs, request->node, file);
    if (error) /* the kernel sends an OPEN again that is answered with ESTALE */
        return error == -ESTALE ? -ENOENT : error;
    fill_info(&request->info, kind, file);
    error = find_part(request, file, &part, &serial); /* here the kernel shall try again */
    /* The layout became immutable while this open waited. The next one registers its memory first:
     * a step after the open would leave a file without an answer to a worker that dies in it. */
    if (!error && part == FS_PART_WHOLE && !request->asked_map && fs_mapped_is_unknown(fs, serial))
        error = -ESTALE;
    if (!error && part != FS_PART_NONE)
        error = fs_mapped_open(fs, request->node, file, serial, part, &request->info,
                               &fs->answered_backing);
    return error;
}

static void reply_opened(struct fs_request *request, const struct service_answer *answer)
{
    struct fs *fs = request->fs;
    enum node_kind kind = node_get_kind(request->node);
    int error = finish_open(request, answer->file);
    if (error) {
        if (!request->error)
            fs_on_unwanted(fs, answer->file);
        fs_reply_error(request->req, error);
        return;
    }
    if (kind != NODE_ALLOCATION && kind != NODE_ENTRY && kind != NODE_FILE && !node_is_made(kind))
        fs_size_opened(fs, request->node, answer->file, (uint32_t)fuse_req_ctx(request->req)->pid);
    fs->answered_file = answer->file;
    fuse_reply_open(request->req, &request->info);
    fs->answered_file = 0;
    fs->answered_backing = 0;
}

static int open_described(struct fs_request *request, const struct service_open *open)
{
    struct fs *fs = request->fs;
    struct service_caller caller;
    size_t count = open->kind == CORE_KIND_PSEUDO ? 0 : fs_count_callers(request->req, open->store);
    int error = fs_get_caller(request->req, count, &caller);
    return error ? error : service_open(fs->service, open, &caller, &request->service);
}

/* Opens, once the memory behind the file is registered with the kernel if it can be. */
static int open_mapped(struct fs_request *request)
{
    struct fs *fs = request->fs;
    struct node node;
    int error = node_find(fs->core, request->node, &node);
    if (error)
        return error;
    struct service_open open = describe(fs->core, &node, request->info.flags);
    return open_described(request, &open);
}

void fs_op_open(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *info)
{
    struct fs *fs = fs_of(req);
    struct node node;
    int error = node_find(fs->core, id, &node);
    if (!error && (info->flags & O_ACCMODE) == O_ACCMODE)
        error = -EINVAL; /* open(2) grants neither direction for this */
    if (!error &&
        (node.kind == NODE_FILE || node.kind == NODE_PIECES || node_is_made(node.kind) ||
         node.contents) &&
        (info->flags & (O_ACCMODE | O_TRUNC)) != O_RDONLY)
        error = -EACCES;
    if (error) {
        fs_reply_error(req, error);
        return;
    }
    struct fs_request *request = fs_request_new(req, reply_opened, 0);
    if (!request)
        return;
    request->takes_errors = true;
    request->node = id;
    request->info = *info;
    if (!fs_request_may_wait(request))
        return;
    struct service_open open = describe(fs->core, &node, info->flags);
    if (reads_bytes(id, info->flags) && fs_mapped_is_unknown(fs, open.serial) &&
        get_part(fs->core, &node) == FS_PART_WHOLE) {
        request->asked_map = true;
        request->next_step = open_mapped;
        error = service_map(fs->service, open.serial, &request->service);
    } else {
        error = open_described(request, &open);
    }
    fs_request_submitted(request, error);
}

/* ---- creating ---------------------------------------------------------------------------- */

static void reply_created(struct fs_request *request, const struct service_answer *answer)
{
    struct fs *fs = request->fs;
    struct fuse_entry_param entry;
    struct node node = {0};
    if (request->error) {
        fs_reply_error(request->req, request->error == -ESTALE ? -ENOENT : request->error);
        return;
    }
    /* The serial is the file's: another object may have the name by now. */
    const struct core_file *file = core_find_file(fs->core, answer->file);
    enum node_kind kind = file && file->kind == CORE_KIND_ENTRY ? NODE_ENTRY : NODE_ALLOCATION;
    if (!file || node_find(fs->core, node_make_id(kind, file->serial), &node)) {
        fs_on_unwanted(fs, answer->file);
        fs_reply_error(request->req, -ENOENT);
        return;
    }
    fs_fill_entry(fs, &node, &entry);
    fill_info(&request->info, kind, answer->file);
    fs->answered_file = answer->file;
    fuse_reply_create(request->req, &entry, &request->info);
    fs->answered_file = 0;
}

static int create_entry(struct fs_request *request, uint64_t store, const char *name,
                        const struct service_caller *caller, const struct service_open *open)
{
    char key[NAME_MAX_BYTES + 1];
    int size = name_decode_key(name, key);
    if (size < 0)
        return size;
    return service_create_entry(request->fs->service, store, key, (size_t)size, open, caller,
                                &request->service);
}

void fs_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                  struct fuse_file_info *info)
{
    struct fs *fs = fs_of(req);
    struct service_caller caller;
    struct node directory;
    int error = node_find(fs->core, parent, &directory);
    (void)mode; /* the store's mode counts */
    if (!error && ((directory.kind != NODE_ALLOCATIONS && directory.kind != NODE_METADATA) ||
                   directory.contents))
        error = -EPERM;
    if (!error && strlen(name) > NAME_MAX_BYTES)
        error = -ENAMETOOLONG;
    if (error) {
        fs_reply_error(req, error);
        return;
    }
    struct fs_request *request = fs_request_new(req, reply_created, 0);
    if (!request)
        return;
    request->takes_errors = true;
    request->info = *info;
    struct service_open open = describe(fs->core, &directory, info->flags);
    error = fs_get_caller(req, fs_count_callers(req, open.store), &caller);
    if (error) {
        fs_request_finish(request, error, NULL);
        return;
    }
    if (!fs_request_may_wait(request))
        return;
    if (directory.kind == NODE_METADATA) {
        error = create_entry(request, open.store, name, &caller, &open);
    } else {
        open.kind = CORE_KIND_ALLOCATION;
        error = service_create(fs->service, open.store, name, &open, &caller, &request->service);
    }
    fs_request_submitted(request, error);
}

/* ---- closing ----------------------------------------------------------------------------- */

void fs_op_flush(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *info)
{
    struct fs *fs = fs_of(req);
    enum node_kind kind = node_get_kind(id);
    struct service_caller caller;
    int error = 0;
    if (kind == NODE_ENTRY)
        error = fs_entry_put(fs, info->fh);
    if (asks_flush(kind)) {
        int asked = fs_get_caller(req, service_flush_asks(fs->service, info->fh), &caller);
        int flushed = service_flush(fs->service, info->fh, &caller);
        error = error ? error : flushed;
        error = error ? error : asked; /* `error` may report a lost write */
    }
    if (!error && kind == NODE_ALLOCATION) {
        struct fs_request *request = fs_request_new_closing(req, fs_reply_done);
        if (request)
            fs_request_submitted(request, service_settle(fs->service, info->fh, &request->service));
        return;
    }
    fs_reply_error(req, error);
}

void fs_op_release(fuse_req_t req, fuse_ino_t id, struct fuse_file_info *info)
{
    struct fs *fs = fs_of(req);
    if (node_get_kind(id) == NODE_ENTRY)
        fs_entry_put(fs, info->fh); /* a FLUSH has reported its error; no client waits now */
    fs_mapped_close(fs, info->fh);
    fs_handle_drop(fs, info->fh);
    service_close(fs->service, info->fh);
    fs_reply_error(req, 0);
    if (fs->detached && service_count_open_files(fs->service) == 0)
        fs_fds_drop_all(fs);
}
