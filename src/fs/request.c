/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request - a request of the kernel, answered now or later
 *
 * libfuse frees a fuse_req_t with its answer, so each gets exactly one, and every error goes
 * through fs_reply_error. The interrupt function runs inside libfuse's handling of INTERRUPT and
 * may answer the request there; it must not be called by its own registration, because libfuse
 * would use the request after the answer: hence the look at fuse_req_interrupted first (one thread:
 * nothing can come between).
 */
#include "base/timeline.h"
#include "fs/fs_internal.h"
#include "fs/trace.h"
#include "service/client_error.h"

#include <errno.h>
#include <linux/fuse.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX_GROUPS 64

/* The number of pages that libfuse reads at once, and more than the headers before them. A request
 * fills one page of the headers' room at most. */
#define FS_MAX_PAGES      256u
#define BUFFER_HEAD_BYTES (64u << 10)

/* ---- buffers ----------------------------------------------------------------------------- */

/* Makes a buffer with the pages of a largest request, and keeps forks from taking them away: if a
 * page is missing, SIGKILL can cut the kernel's copy into the buffer short, and the client gets
 * EIO. */
static void *new_buffer(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t bytes = FS_MAX_PAGES * page + BUFFER_HEAD_BYTES;
    void *buffer = NULL;
    if (posix_memalign(&buffer, page, bytes))
        return NULL;
#ifdef MADV_POPULATE_WRITE
    madvise(buffer, (FS_MAX_PAGES + 1) * page, MADV_POPULATE_WRITE);
#endif
    madvise(buffer, bytes, MADV_DONTFORK);
    return buffer;
}

void *fs_buffer_get(struct fs *fs)
{
    return fs->spare_count ? fs->spare_buffers[--fs->spare_count] : new_buffer();
}

void fs_buffer_give(struct fs *fs, void *buffer)
{
    if (buffer && fs->spare_count < FS_SPARE_BUFFERS)
        fs->spare_buffers[fs->spare_count++] = buffer;
    else
        free(buffer);
}

/* ---- requests ---------------------------------------------------------------------------- */

static void free_request(struct fs_request *request)
{
    struct fs *fs = request->fs;
    if (fs)
        fs_ledger_leave(fs, request);
    if (request->link) {
        *request->link = request->next;
        if (request->next)
            request->next->link = request->link;
    }
    if (request->is_stolen && fs)
        fs_buffer_give(fs, request->buffer);
    else
        free(request->buffer);
    fs_gather_discard(fs, &request->document);
    if (fs && request->is_counted)
        service_give(fs->service, SERVICE_BOUND_REQUESTS, request->uid, 1);
    if (fs)
        service_forget_write(fs->service, &request->admitted);
    free(request);
}

static void note_for_trace(const struct fs *fs, struct fs_request *request)
{
    const struct fuse_in_header *head = fs->served.mem;
    request->unique = head->unique & ~FS_RESENT_BIT;
    request->opcode = head->opcode;
    request->began_us = fs->served_began_us;
}

/* Adds a request that is answered after the step in which it came: it overlaps others. */
static void trace_wait(const struct fs_request *request)
{
    const struct fs *fs = request->fs;
    if (request->req && fs && request->began_us != fs->served_began_us)
        timeline_add("wait", fs_trace_opcode_name(request->opcode), request->unique,
                     request->began_us, request->error ? strerrorname_np(-request->error) : NULL);
}

void fs_request_finish(struct fs_request *request, int error, const struct service_answer *answer)
{
    static const struct service_answer nothing;
    request->error = error;
    if (timeline_is_on())
        trace_wait(request);
    if (request->req && error && !request->takes_errors)
        fs_reply_error(request->req, error);
    else if (request->req)
        request->reply(request, answer ? answer : &nothing);
    free_request(request);
}

static void on_done(struct service_request *service, int error, const struct service_answer *answer)
{
    struct fs_request *request = (struct fs_request *)service;
    int (*step)(struct fs_request *) = request->next_step;
    request->next_step = NULL;
    if (step && !error && request->req)
        fs_request_submitted(request, step(request));
    else
        fs_request_finish(request, error, answer);
}

static struct fs_request *new_request(struct fs *fs, fuse_req_t req, fs_reply reply, size_t payload)
{
    struct fs_request *request = calloc(1, sizeof *request + payload);
    if (!request)
        return NULL;
    request->service.done = on_done;
    request->service.wait_max_ms = fs->options.wait_max_ms;
    request->fs = fs;
    request->req = req;
    request->reply = reply;
    request->uid = req ? fuse_req_ctx(req)->uid : 0;
    request->next = fs->requests;
    request->link = &fs->requests;
    if (fs->requests)
        fs->requests->link = &request->next;
    fs->requests = request;
    if (req)
        fs_ledger_enter(fs, request);
    if (req && timeline_is_on())
        note_for_trace(fs, request);
    return request;
}

_Static_assert(SERVICE_MAX_REQUESTS + FS_LEDGER_CLOSING + 2 <= FS_LEDGER_SLOTS,
               "the ledger has a slot for each waiting request");

struct fs_request *fs_request_new(fuse_req_t req, fs_reply reply, size_t payload_bytes)
{
    struct fs *fs = fs_of(req);
    uint32_t uid = fuse_req_ctx(req)->uid;
    int error = service_take(fs->service, SERVICE_BOUND_REQUESTS, 0, uid, 1);
    struct fs_request *request = error ? NULL : new_request(fs, req, reply, payload_bytes);
    if (request)
        request->is_counted = true;
    else if (!error)
        service_give(fs->service, SERVICE_BOUND_REQUESTS, uid, 1);
    if (!request)
        fs_reply_error(req, error ? error : -ENOMEM);
    return request;
}

struct fs_request *fs_request_new_closing(fuse_req_t req, fs_reply reply)
{
    struct fs_request *request = new_request(fs_of(req), req, reply, 0);
    if (!request)
        fs_reply_error(req, -ENOMEM);
    return request;
}

struct fs_request *fs_request_new_unheard(struct fs *fs)
{
    return new_request(fs, NULL, NULL, 0);
}

static void on_interrupt(fuse_req_t req, void *data)
{
    struct fs_request *request = data;
    (void)req;
    if (request->fs)
        service_interrupt(request->fs->service, &request->service);
}

bool fs_request_may_wait(struct fs_request *request)
{
    if (fuse_req_interrupted(request->req)) {
        fs_request_finish(request, -EINTR, NULL);
        return false;
    }
    fuse_req_interrupt_func(request->req, on_interrupt, request);
    return true;
}

void fs_request_submitted(struct fs_request *request, int error)
{
    if (error)
        fs_request_finish(request, error, NULL);
}

/* Abandons all requests when the session ends: libfuse's requests go with it, ours when the service
 * releases them. */
void fs_requests_abandon(struct fs *fs)
{
    struct fs_request *next;
    for (struct fs_request *request = fs->requests; request; request = next) {
        next = request->next;
        if (request->req)
            fs_reply_error(request->req, -ENOTCONN);
        request->req = NULL;
        request->fs = NULL;
        request->link = NULL;
        request->next = NULL;
    }
    fs->requests = NULL;
}

void fs_reply_error(fuse_req_t req, int error)
{
    fuse_reply_err(req, -service_error_for_client(error));
}

void fs_reply_done(struct fs_request *request, const struct service_answer *answer)
{
    (void)answer;
    fs_reply_error(request->req, 0);
}

void fs_reply_read(struct fs_request *request, const struct service_answer *answer)
{
    struct iovec parts[] = {{(void *)(uintptr_t)answer->data, answer->bytes},
                            {(void *)(uintptr_t)answer->rest, answer->rest_bytes}};
    if (answer->rest_bytes)
        fuse_reply_iov(request->req, parts, 2);
    else
        fuse_reply_buf(request->req, answer->data, answer->bytes);
}

void fs_fill_entry(struct fs *fs, const struct node *node, struct fuse_entry_param *entry)
{
    *entry = (struct fuse_entry_param){.ino = node_get_id(node)};
    fs_stat(fs, node, &entry->attr);
}

void fs_reply_entry(fuse_req_t req, const struct node *node)
{
    struct fuse_entry_param entry;
    fs_fill_entry(fs_of(req), node, &entry);
    fuse_reply_entry(req, &entry);
}

/* Returns true if the thread was told a moment ago to look up its path again. A place belongs to
 * one thread for a while: otherwise two threads in turns would look again for ever. */
static bool is_looking_again(struct fs *fs, uint32_t tid)
{
    struct fs_look *look = &fs->options.ledger->looks[tid % FS_LOOKS];
    bool is_mine = look->tid == tid, is_free = look->tid == 0 || fs->now_ms > look->until_ms;
    if (is_mine || !is_free || tid == 0) {
        if (is_mine)
            look->tid = 0;
        return true;
    }
    look->until_ms = fs->now_ms + FS_LOOK_MS;
    look->tid = tid;
    return false;
}

int fs_gone(fuse_req_t req, const struct fuse_file_info *info)
{
    uint32_t tid = (uint32_t)fuse_req_ctx(req)->pid;
    return !info && is_looking_again(fs_of(req), tid) ? -ENOENT : -ESTALE;
}

/* Takes the buffer of a large write over instead of copying it; the next request is read into
 * another buffer. */
const void *fs_request_keep_bytes(struct fs_request *request, const void *from, size_t bytes)
{
    struct fs *fs = request->fs;
    uintptr_t at = (uintptr_t)from, start = (uintptr_t)fs->served.mem;
    if (bytes >= FS_STEAL_FROM_BYTES && fs->served_can_be_kept && fs->served.mem && at >= start &&
        at + bytes <= start + fs->served.size) {
        request->buffer = fs->served.mem;
        request->is_stolen = true;
        fs->served.mem = NULL;
        return from;
    }
    request->buffer = malloc(bytes ? bytes : 1);
    if (request->buffer)
        memcpy(request->buffer, from, bytes);
    return request->buffer;
}

size_t fs_count_callers(fuse_req_t req, uint64_t store)
{
    return core_has_joinable(fs_of(req)->core, store) ? SERVICE_MAX_ANCESTORS : 1;
}

/* Reads the groups from /proc, while the client is blocked: only called if they decide. */
static int has_group(const struct service_caller *caller, uint32_t gid)
{
    gid_t some[MAX_GROUPS];
    int count = fuse_req_getgroups((fuse_req_t)(uintptr_t)caller->context, MAX_GROUPS, some);
    gid_t *groups = some;
    if (count > (int)MAX_GROUPS) {
        groups = malloc((size_t)count * sizeof *groups);
        if (groups)
            count = fuse_req_getgroups((fuse_req_t)(uintptr_t)caller->context, count, groups);
    }
    bool found = false;
    for (int i = 0; groups && i < count && !found; i++)
        found = groups[i] == gid;
    if (groups != some)
        free(groups);
    return count < 0 ? count : found;
}

int fs_get_caller(fuse_req_t req, size_t max, struct service_caller *caller)
{
    struct fs *fs = fs_of(req);
    const struct fuse_ctx *context = fuse_req_ctx(req);
    int error = 0;
    caller->process_count = 0;
    caller->has_group = has_group;
    caller->context = req;
    memset(caller->comm, 0, sizeof caller->comm);
    if (max)
        error = fs->host.resolve(fs->host.context, (uint32_t)context->pid, max, caller);
    caller->uid = context->uid;
    caller->gid = context->gid;
    return error;
}

int fs_get_actor(fuse_req_t req, uint64_t store, struct service_caller *caller,
                 struct service_actor *by)
{
    bool joinable = core_has_joinable(fs_of(req)->core, store);
    *by = (struct service_actor){.store = store, .caller = caller};
    return fs_get_caller(req, joinable ? SERVICE_MAX_ANCESTORS : 0, caller);
}

int fs_check_right(fuse_req_t req, const struct node *node, unsigned rights)
{
    struct service_caller caller;
    fs_get_caller(req, 0, &caller);
    if (node->kind == NODE_REGION || node->kind == NODE_REGION_OWNER)
        return service_check_region_right(caller.uid, node->owner);
    if (node->kind == NODE_REGIONS && (rights & ~SERVICE_SEARCH))
        return service_is_admin(fs_of(req)->service, caller.uid) ? 0 : -EACCES;
    return service_check_right(fs_of(req)->service, node->store ? node->store->id : 0, &caller,
                               rights);
}

bool fs_may_warn(struct fs *fs)
{
    if (fs->warnings >= FS_MAX_WARNINGS) {
        fs->warnings_suppressed++;
        return false;
    }
    fs->warnings++;
    return true;
}
