/* SPDX-License-Identifier: Apache-2.0 */
/* session - the libfuse session on a descriptor that is mounted already, served from the loop */
#include "fs/fs_internal.h"

#include "base/clock.h"
#include "base/container.h"
#include "base/log.h"
#include "base/probe.h"
#include "fs/init.h"
#include "fs/passthrough.h"
#include "fs/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <fuse_log.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Other requests in a row that may come between two resent ones. */
#define RESENT_LAG 256u

/* Requests read from the kernel in a row, if they are served as they are read. */
#define READS_IN_A_ROW 1024u
/* Requests refused in a row: their senders may ask again at once, and other requests wait. */
#define REFUSALS_IN_A_ROW 64u
/* Requests served between two reads of the kernel's queue, if several wait. */
#define SERVED_IN_A_ROW 4u

static void on_init(void *userdata, struct fuse_conn_info *connection)
{
    struct fs *fs = userdata;
    fs_init_choose(connection);
    fs_repeat_choice(fs, connection);
    fs_choose_passing(fs);
    if (!(connection->want & FUSE_CAP_ATOMIC_O_TRUNC))
        log_warning("%s: this kernel truncates files before they are opened: `> file` may change "
                    "an allocation before the lock is held",
                    fs->options.mountpoint);
    fs->can_resend = fs_can_resend(connection->proto_minor);
    if (!fs->can_resend && !fs->options.resumes)
        log_warning("%s: this kernel does not send requests again (Linux 6.9 does): should a "
                    "worker die, those that are under way then fail with EIO, once",
                    fs->options.mountpoint);
    fs->initialized = true;
}

static const struct fuse_lowlevel_ops OPERATIONS = {
    .init = on_init,
    .lookup = fs_op_lookup,
    .getattr = fs_op_getattr,
    .setattr = fs_op_setattr,
    .mknod = fs_op_mknod,
    .mkdir = fs_op_mkdir,
    .unlink = fs_op_unlink,
    .rmdir = fs_op_rmdir,
    .symlink = fs_op_symlink,
    .rename = fs_op_rename,
    .link = fs_op_link,
    .open = fs_op_open,
    .create = fs_op_create,
    .read = fs_op_read,
    .write = fs_op_write,
    .flush = fs_op_flush,
    .release = fs_op_release,
    .fsync = fs_op_fsync,
    .opendir = fs_op_opendir,
    .readdir = fs_op_readdir,
    .releasedir = fs_op_releasedir,
    .fsyncdir = fs_op_fsyncdir,
    .statfs = fs_op_statfs,
    .setxattr = fs_op_setxattr,
    .getxattr = fs_op_getxattr,
    .listxattr = fs_op_listxattr,
    .removexattr = fs_op_removexattr,
    .ioctl = fs_op_ioctl,
    .poll = fs_op_poll,
    .fallocate = fs_op_fallocate,
};

static void on_libfuse_log(enum fuse_log_level level, const char *format, va_list arguments)
{
    char line[512];
    vsnprintf(line, sizeof line, format, arguments);
    line[strcspn(line, "\n")] = '\0';
    log_write(level <= FUSE_LOG_ERR       ? LOG_LEVEL_ERROR
              : level == FUSE_LOG_WARNING ? LOG_LEVEL_WARNING
              : level == FUSE_LOG_DEBUG   ? LOG_LEVEL_DEBUG
                                          : LOG_LEVEL_INFO,
              "libfuse: %s", line);
}

static void end_session(struct fs *fs, int error)
{
    if (fs->over)
        return;
    fs->over = true;
    fs_unwatch(fs, &fs->watch);
    fs->host.loop.clear_timeout(fs->host.loop.context, &fs->backlog);
    fs->host.session_over(fs->host.context, error);
}

/* Ends the resuming: no request is left that the kernel sent again. */
static void end_resuming(struct fs *fs)
{
    if (!fs->resuming)
        return;
    fs->resuming = false;
    fs->plain_requests = 0;
    fs_ledger_forget(fs);
    fs->host.session_resumed(fs->host.context);
}

/* ---- one request ------------------------------------------------------------------------- */

/* Prepares memory for the next write, after the answers have left, while the client prepares its
 * next piece. */
static void make_pages_ahead(struct fs *fs)
{
    struct fs_handle *handle = fs->grows ? fs_handle_find(fs, fs->grows) : NULL;
    if (handle)
        fs_gather_ahead(handle);
    fs->grows = 0;
}

/* Serves the request in fs->served. Returns when it began. */
static uint64_t serve_request(struct fs *fs)
{
    const struct fuse_in_header *head = fs->served.mem;
    size_t size = fs->served.size;
    uint64_t unique = size >= sizeof *head ? head->unique : 0, began_us = clock_now_us();
    uint32_t opcode = size >= sizeof *head ? head->opcode : 0;
    fs->served_began_us = began_us;
    fs_ledger_serve(fs, unique);
    if (unique)
        PROBE_REQUEST(unique & ~FS_RESENT_BIT, PROBE_FUSE, head->opcode, head->uid);
    if (log_is_debug())
        fs_trace_request(fs, head, size);
    if (size >= sizeof *head && !fs->initialized)
        fs_keep_init(fs, fs->served.mem, size);
    fuse_session_process_buf(fs->session, &fs->served);
    fs->host.end_step(fs->host.context);
    fs_ledger_settle(fs);
    make_pages_ahead(fs);
    if (fs->initialized && !fs->ready) {
        fs->ready = true;
        fs->host.session_ready(fs->host.context);
    }
    if (fuse_session_exited(fs->session))
        end_session(fs, 0);
    service_forget_write(fs->service, &fs->admitted);
    fs->admitted = (struct service_admitted){0};
    fs->served_until_us = fs_count_request(fs, opcode, began_us);
    fs->served_began_us = 0;
    return began_us;
}

static uint64_t serve_buffer(struct fs *fs)
{
    fs->served = fs->buffer;
    fs->served_can_be_kept = true;
    uint64_t began_us = serve_request(fs);
    fs->buffer.mem = fs->served.mem;
    return began_us;
}

/* Serves an INTERRUPT, made again from its number and its request's. */
static void serve_interrupt(struct fs *fs, const struct fs_ahead_request *request)
{
    struct {
        struct fuse_in_header head;
        struct fuse_interrupt_in interrupt;
    } message = {
        .head = {.len = sizeof message, .opcode = FUSE_INTERRUPT, .unique = request->interrupt},
        .interrupt = {.unique = request->unique}};
    fs->served = (struct fuse_buf){.mem = &message, .size = sizeof message};
    fs->served_can_be_kept = false;
    serve_request(fs);
}

static void serve_waiting(struct fs *fs, struct fs_ahead_request *request)
{
    fs->served = (struct fuse_buf){.mem = request->bytes, .size = request->size};
    fs->served_can_be_kept = request->is_stolen;
    fs_ledger_serve(fs, request->unique);
    fs_ledger_unshelve(fs, request->ledger_slot);
    serve_request(fs);
    if (request->is_stolen)
        request->bytes = fs->served.mem;
    if (request->interrupt && !fs->over)
        serve_interrupt(fs, request);
    fs_ahead_done(fs, request);
}

/* ---- many -------------------------------------------------------------------------------- */

/* Reads one request into fs->buffer. False: there is none now. */
static bool receive(struct fs *fs)
{
    if (!fs->buffer.mem)
        fs->buffer.mem = fs_buffer_get(fs);
    int size = fuse_session_receive_buf(fs->session, &fs->buffer);
    if (size == -EAGAIN)
        end_resuming(fs);
    else if (size <= 0 && size != -EINTR)
        end_session(fs, size == -ENODEV ? 0 : size);
    return size > 0;
}

bool fs_has_unread(const struct fs *fs)
{
    struct pollfd kernel = {.fd = fs->options.fuse_fd, .events = POLLIN};
    return fs->ahead.rota.count > 0 || (poll(&kernel, 1, 0) > 0 && kernel.revents & POLLIN);
}

/* Serves the requests that the kernel sends again, as they come: until all of them have come, no
 * other client is granted what they waited for. Other requests come in between; it is over when
 * only those come. */
static void serve_resent(struct fs *fs)
{
    while (fs->resuming && !fs->over && receive(fs)) {
        const struct fuse_in_header *head = fs->buffer.mem;
        bool was_resent = fs->buffer.size >= sizeof *head && head->unique & FS_RESENT_BIT;
        serve_buffer(fs);
        fs->plain_requests = was_resent ? 0 : fs->plain_requests + 1;
        if (fs->plain_requests >= RESENT_LAG)
            end_resuming(fs);
    }
}

static void read_ahead(struct fs *fs)
{
    unsigned served = 0, refused = 0;
    while (served < READS_IN_A_ROW && refused < REFUSALS_IN_A_ROW && !fs->over && receive(fs)) {
        enum fs_ahead_taken taken = fs_ahead_take(fs, fs->buffer.size);
        if (taken == FS_AHEAD_REFUSED)
            refused++;
        if (taken != FS_AHEAD_NOW)
            continue;
        serve_buffer(fs);
        served++;
    }
}

/* Serves waiting requests in turn. The kernel's queue is read again after every few of them, so
 * that a new request waits for those few, not for all older ones. */
static void serve_in_turns(struct fs *fs)
{
    struct fs_ahead_request *request;
    bool are_several = false;
    for (unsigned i = 0; i < FS_REQUESTS_PER_TURN && !fs->over; i++) {
        if (i % SERVED_IN_A_ROW == 0 || fs->ahead.rota.count == 0)
            read_ahead(fs);
        are_several |= fs->ahead.rota.count > 1;
        request = fs->over ? NULL : fs_ahead_next(fs);
        if (!request)
            break;
        serve_waiting(fs, request);
        if (fs->ahead.rota.count == 0)
            break;
    }
    fs->is_crowded = are_several;
    if (fs->ahead.rota.count > 0 && !fs->over)
        fs->host.loop.set_timeout(fs->host.loop.context, &fs->backlog, 0);
}

/* Serves one client, which asks, is answered, and asks again. If several of its requests are found
 * in a row, one more read costs less than a wait of the loop. */
static void serve_one_client(struct fs *fs)
{
    unsigned most = fs->is_busy ? FS_BUSY_LOOK - fs->since_look : 1, served = 0;
    uint64_t until_us = 0;
    if (!fs->is_busy && fs->since_look == 0)
        most = 2;
    while (served < most && !fs->over && receive(fs)) {
        fs->since_look++;
        served++;
        uint64_t began_us = serve_buffer(fs);
        if (served == 1)
            until_us = began_us + FS_TURN_US;
        if (fs->served_until_us >= until_us)
            break;
    }
    if (most > 1)
        fs->is_busy = served > 1;
}

/* Requests of several clients cannot be told from one client's when they are served one by one:
 * after this many, the front end looks. */
static bool is_time_to_look(const struct fs *fs)
{
    return fs->since_look >= (fs->is_busy ? FS_BUSY_LOOK : FS_QUIET_LOOK);
}

/* Serves requests in the kernel's order, reading none before its turn: this kernel would not send
 * them again if the worker died. */
static void serve_in_order(struct fs *fs)
{
    for (unsigned i = 0; i < FS_REQUESTS_PER_TURN && !fs->over && receive(fs); i++) {
        fs->is_crowded = i > 0;
        serve_buffer(fs);
    }
}

static void serve(struct fs *fs)
{
    if (fs->resuming) {
        serve_resent(fs);
    } else if (!fs->is_crowded && !is_time_to_look(fs)) {
        serve_one_client(fs);
    } else {
        fs->since_look = 0;
        if (fs->can_resend)
            serve_in_turns(fs);
        else
            serve_in_order(fs);
    }
}

static void on_readable(struct event_watch *watch, uint32_t events)
{
    (void)events;
    serve(CONTAINER_OF(watch, struct fs, watch));
}

static void on_backlog(struct event_timeout *timeout)
{
    serve(CONTAINER_OF(timeout, struct fs, backlog));
}

/* ---- the session ------------------------------------------------------------------------- */

/* Puts into libfuse's answer what it does not know. */
static void complete_answer(struct fs *fs, const struct iovec *parts, int count)
{
    if (count < 2)
        return;
    if (fs->initialized && !fs->ready && fs->passes &&
        parts[1].iov_len >= sizeof(struct fuse_init_out))
        passthrough_agree(parts[1].iov_base);
    if (fs->answered_backing && parts[1].iov_len >= sizeof(struct fuse_open_out))
        passthrough_open(parts[1].iov_base, fs->answered_backing);
}

/* As writev(2); the answer may be held until the records that it depends on are written. */
static ssize_t answer_kernel(int fd, struct iovec *parts, int count, void *userdata)
{
    struct fs *fs = userdata;
    const struct fuse_out_header *head = parts[0].iov_base;
    size_t bytes = 0;
    for (int i = 0; i < count; i++)
        bytes += parts[i].iov_len;
    if (head->unique) /* notifications have none */
        PROBE_ANSWER(head->unique & ~FS_RESENT_BIT, PROBE_FUSE, head->error);
    if (log_is_debug())
        fs_trace_answer(parts, count, bytes);
    complete_answer(fs, parts, count);
    if (fs->initialized && !fs->ready)
        fs_keep_init_answer(fs, parts, count, bytes);
    if (fs->mutes_answers)
        return (ssize_t)bytes;
    fs_die_if_told("GMSFS_DIE_ANSWERING");
    ssize_t put = fs->host.answer(fs->host.context, fd, parts, count, fs->answered_file);
    if (put >= 0)
        return put;
    if (put == -ENOENT && fs->answered_file)
        fs_on_unwanted(fs, fs->answered_file);
    errno = (int)-put;
    return -1;
}

static ssize_t read_kernel(int fd, void *to, size_t bytes, void *userdata)
{
    (void)userdata;
    return read(fd, to, bytes);
}

static int new_session(struct fs *fs)
{
    static const struct fuse_custom_io io = {.writev = answer_kernel, .read = read_kernel};
    char name[] = "gmsfs", debug[] = "-odebug";
    char *argv[] = {name, debug, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(fs->options.debug ? 2 : 1, argv);
    fuse_set_log_func(on_libfuse_log);
    fs->session = fuse_session_new(&args, &OPERATIONS, sizeof OPERATIONS, fs);
    fuse_opt_free_args(&args);
    if (!fs->session)
        return -EINVAL;
    if (fuse_session_custom_io(fs->session, &io, fs->options.fuse_fd))
        return -EBADF;
    int flags = fcntl(fs->options.fuse_fd, F_GETFL);
    if (flags < 0 || fcntl(fs->options.fuse_fd, F_SETFL, flags | O_NONBLOCK))
        return -errno;
    return 0;
}

int fs_new(struct service *service, const struct fs_options *options, const struct fs_host *host,
           struct fs **out)
{
    struct fs *fs = calloc(1, sizeof *fs);
    if (!fs)
        return -ENOMEM;
    fs->now_ms = clock_now_ms();
    fs->service = service;
    fs->core = service_get_core(service);
    fs->host = *host;
    fs->options = *options;
    fs->next_dir = clock_wall_us(); /* never a number of another worker */
    if (!options->ledger->started_ms)
        options->ledger->started_ms = clock_wall_ms();
    fs->top = (struct node_top){
        .uid = options->owner_uid,
        .gid = getegid(),
        .started_ms = options->ledger->started_ms,
        .has_socket = options->resumes, /* its listener follows */
    };
    fs->listener.fd = -1;
    if (options->resumes)
        fs->unclaimed_until_ms = fs->now_ms + GMSFS_FDS_DRAIN_MS;
    fs->watch = (struct event_watch){.fd = options->fuse_fd, .ready = on_readable};
    fs->backlog.expired = on_backlog;
    fs->ledger_left = calloc(options->ledger->slots, sizeof *fs->ledger_left);
    int error = fs->ledger_left ? new_session(fs) : -ENOMEM;
    if (!error && options->resumes)
        error = fs_repeat_init(fs);
    if (!error)
        error = fs_watch(fs, &fs->watch, EVENT_READ);
    if (error) {
        fs->over = true; /* nothing is watched */
        fs_free(fs);
        return error;
    }
    fs_observe(fs);
    *out = fs;
    return 0;
}

void fs_free(struct fs *fs)
{
    if (!fs)
        return;
    service_unobserve(fs->service, &fs->observer);
    fs_set_listener(fs, -1);
    fs_fds_drop_all(fs);
    if (!fs->over)
        fs_unwatch(fs, &fs->watch);
    fs->host.loop.clear_timeout(fs->host.loop.context, &fs->backlog);
    fs_ahead_free(fs);
    if (fs->session) {
        fuse_session_exit(fs->session); /* answers that no client takes are no errors now */
        fs_requests_abandon(fs);
    }
    fs_drop_measured(fs);
    fs_handles_free(fs);
    fs_mapped_free(fs);
    if (fs->session)
        fuse_session_destroy(fs->session);
    fs_ledger_forget(fs);
    free(fs->ledger_left);
    free(fs->buffer.mem);
    for (size_t i = 0; i < fs->spare_count; i++)
        free(fs->spare_buffers[i]);
    free(fs);
}

int fs_resume(struct fs *fs)
{
    int error = fs_ask_again(fs);
    fs->resuming = true;
    serve(fs);
    return error;
}

bool fs_on_tick(struct fs *fs, uint64_t now_ms)
{
    fs->now_ms = now_ms;
    if (fs->warnings_suppressed)
        log_warning("%s: %u more warnings of this kind were left out", fs->options.mountpoint,
                    fs->warnings_suppressed);
    fs->warnings = fs->warnings_suppressed = 0;
    bool has_measured = fs_age_measured(fs), has_unread = fs_fds_tick(fs);
    return has_measured || has_unread;
}

/* Drops the socket's connections, which hold the mount, with the last open file. */
void fs_on_detached(struct fs *fs)
{
    fs->detached = true;
    if (service_count_open_files(fs->service) == 0)
        fs_fds_drop_all(fs);
}
