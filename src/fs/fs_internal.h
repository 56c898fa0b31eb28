/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs_internal - what the files of src/fs share
 *
 * For src/fs/<name>.c alone. Two kinds of objects stand beside the service's state: a request that
 * is not answered yet (struct fs_request), and what an open file needs here and nowhere else
 * (struct fs_handle: a text that is being read, a poll, gathered bytes). A handle is made when it
 * is first needed, and found by the fh that the kernel knows, which is the core's file id.
 */
#ifndef GMSFS_FS_FS_INTERNAL_H
#define GMSFS_FS_FS_INTERNAL_H

#include "base/rota.h"
#include "fs/deaths.h"
#include "fs/fs.h"
#include "fs/gather.h"
#include "fs/graph_entry.h"
#include "fs/init.h"
#include "fs/node.h"
#include "fs/order.h"
#include "fs/shown.h"
#include "fs/size.h"
#include "gmsfs_abi.h"
#include "service/allocations.h"
#include "service/bounds.h"
#include "service/metadata.h"
#include "service/regions.h"
#include "service/rights.h"
#include "service/sessions.h"
#include "service/tickets.h"
#include "service/views.h"

#include <fuse_lowlevel.h>
#include <stdio.h>

/* Requests served in one turn where several clients wait. */
#define FS_REQUESTS_PER_TURN 16u
/* After so long a turn of one client ends, and timers and sockets have theirs. */
#define FS_TURN_US           300u
#define FS_LEAST_WRITE_BYTES 4096u
/* After so many requests that were served one by one, a look whether several wait. */
#define FS_QUIET_LOOK    16u
#define FS_BUSY_LOOK     64u
#define FS_SPARE_BUFFERS 4u
/* A write of less is copied: the buffer, of 1 MiB and 64 KiB, would count for the write's bytes. */
#define FS_STEAL_FROM_BYTES  (960u << 10)
#define FS_MAX_WRITE_BYTES   FS_INIT_MAX_WRITE
#define FS_MAX_WARNINGS      5u     /* about bad clients, between two ticks */
#define FS_STALL_MS          30000u /* a client that does not read its descriptors is dropped */
#define FS_MESSAGES_PER_TURN 4u
#define FS_ACCEPTS_PER_TURN  16u
#define FS_LOOK_MS           1000u

/* ---- handles (handle.c) ------------------------------------------------------------------ */

struct fs_handle {
    uint64_t id;    /* fh; first for idvec */
    uint64_t node;  /* id */
    uint64_t store; /* these two: whose share it is of */
    uint32_t uid;
    struct fs_shown shown;
    uint64_t position; /* events: the next one; 0: nothing was read */
    uint64_t offset;   /* events: of the file, where the next read goes on there */
    uint64_t version;  /* state: as last read */
    bool has_version;
    struct fs_gathered gathered; /* ctl: a document; entry: its new value */
    uint64_t counted_bytes;      /* of what was gathered, documents that are being applied too */
    uint64_t noted_bytes;        /* likewise, for a next worker: SERVICE_BOUND_NOTES counts them */
    bool notes_nothing;          /* too much was gathered: it would be lost with the worker */
    bool is_lost;                /* and was lost with the last one, which nobody was told yet */
    bool has_gathered, dirty;    /* entry: there is a new value; it differs from the stored one */
    struct fs_kept_handle *kept; /* NULL: nothing of it outlives the worker */
    struct fuse_pollhandle *poll;
    struct fs_handle *poll_next, **poll_link; /* list of those with a poll */
};

struct connection;
struct fs_connections;

struct fs_former { /* a request that the kernel sends again; by their numbers */
    uint64_t unique, since_ms;
    uint32_t slot; /* its own in the ledger; 0: it has come, and has it again */
};

/* ---- requests that wait for their turn (ahead.c) ------------------------------------------ */

#define FS_AHEAD_BUCKETS 1024u

/* What the kernel has sent and nobody has served yet. */
struct fs_ahead_request {
    struct rota_item item; /* first */
    uint64_t unique;
    uint64_t interrupt; /* the number of an INTERRUPT of it; 0: none came */
    uint32_t uid;       /* whose shares it counts for */
    uint32_t ledger_slot;
    uint64_t since_ms;                /* monotonic: when it was read */
    uint64_t counted_bytes;           /* within SERVICE_BOUND_AHEAD */
    struct service_admitted admitted; /* of a WRITE */
    bool is_counted;                  /* within SERVICE_BOUND_REQUESTS */
    bool is_stolen;                   /* `bytes` is one of the session's buffers */
    struct fs_ahead_request *next;    /* of the same bucket */
    void *bytes;
    size_t size;
    _Alignas(8) uint8_t copy[];
};

struct fs_ahead {
    struct rota rota;
    struct fs_ahead_request *buckets[FS_AHEAD_BUCKETS]; /* by number */
};

struct fs {
    struct service *service;
    const struct core *core;
    struct service_observer observer;
    struct fs_host host;
    struct fs_options options;
    struct fuse_session *session;
    struct fuse_buf buffer;           /* requests are read into it */
    struct fuse_buf served;           /* the request in work; mem NULL: its buffer was kept */
    bool served_can_be_kept;          /* it lies in a buffer of the session's size */
    struct service_admitted admitted; /* of the WRITE in work, before its turn */
    uint64_t served_since_ms;         /* when the request in work was read; 0: now */
    struct fs_ahead ahead;
    struct event_timeout backlog; /* requests wait that no event of the kernel's tells of */
    uint64_t answered_file;       /* what is answered now is the open of this one; 0: it is none */
    void *spare_buffers[FS_SPARE_BUFFERS];
    size_t spare_count;
    struct event_watch watch;
    bool is_crowded;     /* the last look found several requests that wait */
    bool is_busy;        /* the last request had another one behind it as soon as it was served */
    unsigned since_look; /* requests that were served one by one */
    bool initialized, ready, over;
    bool init_differs;       /* the kernel was answered otherwise when the mount began */
    bool can_resend;         /* the kernel, what was not answered */
    bool resuming;           /* what the kernel sends again is being read */
    unsigned plain_requests; /* of others, since the last of these */
    bool mutes_answers;      /* the kernel has had them */
    struct node_top top;
    struct idvec files, dirs; /* struct fs_handle */
    uint64_t next_dir;
    struct fs_handle *polls;
    struct fs_request *requests; /* not answered yet */
    uint32_t ledger_next, ledger_used;
    struct fs_former *former; /* that the last worker had not answered; NULL: none, or forgotten */
    size_t former_count;
    uint32_t *ledger_left, ledger_left_count; /* answered in this step; room for all slots */
    uint32_t kept_next;                       /* kept.c's */
    struct fs_opened opened[FS_OPENED];       /* size.c's: by node */
    struct fs_measured measured;              /* size.c's */
    struct idvec viewed;                      /* layouts that files show: shown.c's */
    uint64_t gathered_heap_bytes;
    uint64_t grows; /* the file with a document that grew in this step; 0 if there is none */
    unsigned warnings, warnings_suppressed;
    uint64_t now_ms; /* of the last tick */
    bool detached;
    struct event_watch listener;
    struct fds_unread *unread; /* connections that are over and whose clients have not read all */
    uint64_t unread_count;     /* so many descriptors are unread at most, of those and all others */
    uint64_t unread_last;      /* the last number that the keeper holds one under */
    bool share_is_awaited;     /* by a connection, since the last tick */
    bool unread_is_counted;    /* in this tick: not again for each that waits */
    bool listener_rests;       /* no descriptor is left to accept with; the tick tries again */
    struct fs_connections *connections;
    uint64_t unclaimed_until_ms; /* drains of the last worker's connections; 0: there are none */
    struct connection *drainer;  /* whose end makes the mount serve again; NULL: nobody's */
    struct connection *governor; /* it governs the mount; NULL if none does */
    int governor_pid;            /* of the process that asked for that; 0 if it cannot be seen */
    struct fs_orders orders;     /* order.c's */
};

static inline int fs_watch(struct fs *fs, struct event_watch *watch, uint32_t events)
{
    return fs->host.loop.watch(fs->host.loop.context, watch, events);
}

static inline void fs_unwatch(struct fs *fs, struct event_watch *watch)
{
    fs->host.loop.unwatch(fs->host.loop.context, watch);
}

struct fs_handle *fs_handle_find(struct fs *fs, uint64_t fh);
/* Finds or makes it; NULL: no memory. */
struct fs_handle *fs_handle_get(struct fs *fs, uint64_t fh, uint64_t node);
void fs_handle_drop(struct fs *fs, uint64_t fh); /* if there is one */
void fs_handle_free(struct fs *fs, struct fs_handle *handle);
void fs_handle_set_poll(struct fs *fs, struct fs_handle *handle, struct fuse_pollhandle *poll);
void fs_handles_free(struct fs *fs);

/* kept.c */
/* Its place in what outlives the worker; NULL: there is none left. */
struct fs_kept_handle *fs_handle_keep(struct fs *fs, struct fs_handle *handle);
void fs_handle_unkeep(struct fs_handle *handle);
/* Goes on there, if the request that is served now has its answer. */
void fs_kept_move(struct fs *fs, struct fs_kept_handle *kept, struct fs_kept_position to);
/* The request that is served now is the last one sent again: back to where it began. True: so it
 * was. */
bool fs_kept_return(struct fs *fs, struct fs_kept_handle *kept);
const struct fs_kept_position *fs_kept_position(const struct fs_kept_handle *kept);

/* ---- requests (request.c) ---------------------------------------------------------------- */

/* The one way in which a request is answered later: the service calls done, done calls `reply` with
 * the request still there, and frees it. `reply` answers in any case. */
struct fs_request {
    struct service_request service; /* first */
    uint32_t ledger_slot;           /* 0: none */
    struct fs *fs;
    fuse_req_t req; /* NULL: nobody is there to be answered */
    void (*reply)(struct fs_request *request, int error, const struct service_answer *answer);
    /* The service's answer begins another call instead of being the reply; it returns as the
     * service does. */
    int (*next_step)(struct fs_request *request);
    struct fs_request *next, **link;
    uint64_t node, file, store;
    uint32_t uid;
    uint64_t offset; /* read of a text */
    size_t bytes;    /* read, write: how many; ioctl: the room for the answer */
    void *buffer;    /* write: the stolen buffer of the request */
    bool is_stolen;  /* `buffer` is one of the session's size */
    bool is_counted; /* within SERVICE_BOUND_REQUESTS */
    char name[256];
    enum fs_reading reading;          /* read of a text */
    struct fuse_file_info info;       /* open, create */
    struct service_export export;     /* EXPORT, ACQUIRE */
    struct fs_gathered document;      /* APPLY */
    struct service_admitted admitted; /* write: what counts of its bytes */
    _Alignas(16) uint8_t payload[];   /* ioctl: the argument, zero-extended */
};

typedef void (*fs_reply)(struct fs_request *request, int error,
                         const struct service_answer *answer);

static inline struct fs *fs_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* A buffer for requests of the largest size; NULL: libfuse is to make one. */
void *fs_buffer_get(struct fs *fs);
void fs_buffer_give(struct fs *fs, void *buffer);

/* ahead.c */
enum fs_ahead_taken {
    FS_AHEAD_QUEUED,  /* it is served in its turn */
    FS_AHEAD_REFUSED, /* its user is beyond its share: it was answered */
    FS_AHEAD_NOW,     /* it is to be served now */
};
/* Takes the request of `size` bytes that lies in fs->buffer. */
enum fs_ahead_taken fs_ahead_take(struct fs *fs, size_t size);
/* The next one in turn, which fs_ahead_done frees; NULL: none waits. */
struct fs_ahead_request *fs_ahead_next(struct fs *fs);
void fs_ahead_done(struct fs *fs, struct fs_ahead_request *request);
void fs_ahead_free(struct fs *fs);

/* The kernel's number of the request that is served now. */
void fs_ledger_serve(struct fs *fs, uint64_t unique);
/* One that waits for its turn is unanswered as well. The slot, 0: there is none left. */
uint32_t fs_ledger_shelve(struct fs *fs, uint64_t unique, uint64_t *since_ms);
void fs_ledger_unshelve(struct fs *fs, uint32_t slot);
/* Those that the last worker had not answered are the kernel's again. If they come again, their
 * slots and when they came are kept until then, or until fs_ledger_forget. */
void fs_ledger_give_back(struct fs *fs, bool come_again);
void fs_ledger_forget(struct fs *fs);
/* The one that is served now has a slot until it is answered, as far as there are any. */
void fs_ledger_enter(struct fs *fs, struct fs_request *request);
void fs_ledger_leave(struct fs *fs, const struct fs_request *request);
/* All that was answered has left: none is served. */
void fs_ledger_settle(struct fs *fs);
/* NULL: no memory, or too many are not answered yet (-EDQUOT: of its user), and the request was
 * answered so. */
struct fs_request *fs_request_new(fuse_req_t req, fs_reply reply, size_t payload_bytes);
/* Of a close, which is never refused for what else waits. NULL: no memory, and it was answered so.
 */
struct fs_request *fs_request_new_closing(fuse_req_t req, fs_reply reply);
/* For a call of the service that nobody waits for. NULL: no memory */
struct fs_request *fs_request_new_unheard(struct fs *fs);
/* Before the service is called: an INTERRUPT ends it. False: it was interrupted already, and
 * answered. */
bool fs_request_may_wait(struct fs_request *request);
/* After the service was called: `error` is what it returned. The request may be gone. */
void fs_request_submitted(struct fs_request *request, int error);
/* Answers and frees now. */
void fs_request_finish(struct fs_request *request, int error, const struct service_answer *answer);
void fs_requests_abandon(struct fs *fs);
/* resume.c */
void fs_keep_init(struct fs *fs, const void *request, size_t bytes);
/* Its answer, as writev(2) has it; where one was given before, it is to be the same. */
void fs_keep_init_answer(struct fs *fs, const struct iovec *parts, int count, size_t bytes);
/* What was answered, if a worker before this one did that. */
void fs_repeat_choice(const struct fs *fs, struct fuse_conn_info *connection);
int fs_repeat_init(struct fs *fs);
/* Does a kernel of FUSE 7.`protocol_minor` send again what was not answered? */
bool fs_can_resend(unsigned protocol_minor);
/* The kernel sends again what was not answered, and handles are what they were. As fs_resume */
int fs_ask_again(struct fs *fs);

/* error: 0 or negative */
void fs_reply_error(fuse_req_t req, int error);
/* A reply for calls that answer no more than success. */
void fs_reply_done(struct fs_request *request, int error, const struct service_answer *answer);
void fs_reply_entry(fuse_req_t req, const struct node *node);
void fs_fill_entry(struct fs *fs, const struct node *node, struct fuse_entry_param *entry);
/* The error for a number that is gone. By an open file: ESTALE. By a path, which led here a moment
 * ago: ESTALE too, for then the kernel follows it once more, and finds what has taken the place;
 * but who loses this race twice in a row would see the ESTALE, which no open, stat or chmod is to
 * say, and hears ENOENT. */
int fs_gone(fuse_req_t req, const struct fuse_file_info *info);
/* For the handler of a WRITE: the bytes at `from` where they live until the request is freed. NULL:
 * no memory */
const void *fs_request_keep_bytes(struct fs_request *request, const void *from, size_t bytes);

/* How many processes a request on `store` has to be resolved to: looking at an ancestor takes
 * microseconds, and nobody asks for it where no session can be joined. */
size_t fs_count_callers(fuse_req_t req, uint64_t store);
/* Who asks; max 0: its user only; 1: its process too; more: ancestors too. 0, or why
 * that cannot be told now (-EMFILE, -ENFILE, -ENOMEM). */
int fs_get_caller(fuse_req_t req, size_t max, struct service_caller *caller);
/* Who changes `store` by a path. `caller` is filled and has to live as long. As fs_get_caller */
int fs_get_actor(fuse_req_t req, uint64_t store, struct service_caller *caller,
                 struct service_actor *by);
/* May whoever asks do this (SERVICE_READ, …) with what is in the store, by a path? 0, -EACCES */
int fs_check_right(fuse_req_t req, const struct node *node, unsigned rights);

/* True if this one may be logged; bad clients must not flood the log. */
bool fs_may_warn(struct fs *fs);

/* ---- operations -------------------------------------------------------------------------- */

/* dir.c */
void fs_op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode);
void fs_op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t device);
void fs_op_symlink(fuse_req_t req, const char *to, fuse_ino_t parent, const char *name);
void fs_op_link(fuse_req_t req, fuse_ino_t node, fuse_ino_t parent, const char *name);
void fs_op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t new_parent,
                  const char *new_name, unsigned flags);
void fs_op_statfs(fuse_req_t req, fuse_ino_t node);
/* readdir.c */
void fs_op_opendir(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info);
void fs_op_readdir(fuse_req_t req, fuse_ino_t node, size_t size, off_t offset,
                   struct fuse_file_info *info);
void fs_op_releasedir(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info);
void fs_op_fsyncdir(fuse_req_t req, fuse_ino_t node, int datasync, struct fuse_file_info *info);
/* attr_text.c: a GETATTR of one, now or when the device was measured */
void fs_reply_attr_of_text(fuse_req_t req, const struct node *node);
/* attr.c */
void fs_op_getattr(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info);
void fs_op_setattr(fuse_req_t req, fuse_ino_t node, struct stat *attr, int which,
                   struct fuse_file_info *info);
void fs_op_fallocate(fuse_req_t req, fuse_ino_t node, int mode, off_t offset, off_t length,
                     struct fuse_file_info *info);
/* open.c */
void fs_op_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info);
void fs_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                  struct fuse_file_info *info);
void fs_op_flush(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info);
void fs_op_release(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info);
/* file.c */
void fs_op_read(fuse_req_t req, fuse_ino_t node, size_t size, off_t offset,
                struct fuse_file_info *info);
void fs_op_write(fuse_req_t req, fuse_ino_t node, const char *from, size_t size, off_t offset,
                 struct fuse_file_info *info);
void fs_op_fsync(fuse_req_t req, fuse_ino_t node, int datasync, struct fuse_file_info *info);
/* xattr.c */
void fs_op_getxattr(fuse_req_t req, fuse_ino_t node, const char *name, size_t size);
void fs_op_setxattr(fuse_req_t req, fuse_ino_t node, const char *name, const char *value,
                    size_t size, int flags);
void fs_op_listxattr(fuse_req_t req, fuse_ino_t node, size_t size);
void fs_op_removexattr(fuse_req_t req, fuse_ino_t node, const char *name);
/* ioctl.c */
void fs_op_ioctl(fuse_req_t req, fuse_ino_t node, unsigned command, void *argument,
                 struct fuse_file_info *info, unsigned flags, const void *in, size_t in_bytes,
                 size_t out_bytes);
/* poll.c */
void fs_op_poll(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *info,
                struct fuse_pollhandle *poll);
/* Polls are woken from now on. */
/* Of `state` or `residency`: what a poll on it compares. */
uint64_t fs_shown_version(const struct node *node);
void fs_observe(struct fs *fs);

/* ---- files of one kind ------------------------------------------------------------------- */

/* entry.c: the value of a metadata entry that is open */
void fs_entry_read(fuse_req_t req, uint64_t node, uint64_t fh, size_t size, uint64_t offset);
void fs_entry_write(fuse_req_t req, uint64_t node, const char *from, size_t size, uint64_t offset,
                    const struct fuse_file_info *info);
/* Makes the value that was written the entry's. 0 if there is nothing to do. */
int fs_entry_put(struct fs *fs, uint64_t fh);
int fs_entry_resize(struct fs *fs, uint64_t node, const struct service_actor *by, uint64_t size);
/* The file was opened with O_TRUNC. */
int fs_entry_truncate_opened(struct fs *fs, uint64_t node, uint64_t fh);

/* gather_note.c: what is gathered for a file, for a next worker. */
enum fs_gathered_change {
    FS_GATHERED_BEGIN = 1, /* an entry's new value begins as these bytes */
    FS_GATHERED_WRITE,     /* these bytes at this offset */
    FS_GATHERED_RESIZE,    /* an entry's value: it has `offset` bytes */
    FS_GATHERED_PUT,       /* the value is the entry's */
    FS_GATHERED_DROP,      /* there is nothing gathered */
    FS_GATHERED_LOST,      /* what is gathered would be lost with this worker */
    FS_GATHERED_TEXT,      /* nothing is: these bytes are the text that the file shows */
};
/* The text that the handle shows. False: it would be lost with this worker. */
bool fs_note_text(struct fs *fs, struct fs_handle *handle);
/* -ENOMEM: it must not be done. */
int fs_note_gathered(struct fs *fs, struct fs_handle *handle, enum fs_gathered_change change,
                     uint64_t offset, const void *bytes, size_t size);
/* What the file's client has written to it for later was lost with a worker. */
bool fs_has_lost_bytes(struct fs *fs, uint64_t fh);
/* -EIO if so, which is told once. */
int fs_take_loss(struct fs *fs, uint64_t fh);

/* pseudo.c */
void fs_pseudo_read(fuse_req_t req, uint64_t node, uint64_t fh, size_t size, uint64_t offset,
                    enum fs_reading reading);
/* control.c: writes to `commit`, `abort` and `ctl` */
void fs_control_write(fuse_req_t req, const struct node *node, const char *from, size_t size,
                      const struct fuse_file_info *info);
/* pools.c */
/* Wall clock; now while somebody holds it; 0: never. */
uint64_t fs_get_last_used_ms(const struct core_store *store);
void fs_pools_write(fuse_req_t req, const char *from, size_t size, uint64_t fh);
/* events.c */
void fs_events_read(fuse_req_t req, uint64_t node, uint64_t fh, size_t size, uint64_t offset,
                    enum fs_reading reading);
void fs_events_restore(struct fs *fs, struct fs_handle *handle,
                       const struct fs_kept_position *from);
bool fs_events_are_readable(struct fs *fs, const struct fs_handle *handle);

/* text_json.c, text_sessions.c, text_region.c, metrics.c: a text, malloc'ed. 0; -ENOMEM; -EDQUOT of
 * one that may be long (text_stream.c) */
struct fs_text {
    char *data;
    size_t size;
    uint64_t store; /* that it is about; 0: none */
    uint32_t uid;   /* whom it counts for while it is written */
    size_t counted_bytes;
    struct service *service;
    int error;
};
int fs_text_device(const struct fs *fs, struct fs_text *text);
int fs_text_info(const struct fs *fs, const struct core_store *store, struct fs_text *text);
/* What an awake graph pool says in its store. false: the store is none's. */
bool fs_text_find_graph(const struct core *core, const struct core_store *store,
                        struct fs_graph *graph);
/* reader: the uid of who reads it. */
int fs_text_sessions(const struct fs *fs, const struct core_store *store, uint32_t reader,
                     struct fs_text *text);
int fs_text_region(const struct fs *fs, const struct region *region, struct fs_text *text);
int fs_text_metrics(const struct fs *fs, struct fs_text *text);
int fs_text_pools(const struct fs *fs, struct fs_text *text);
/* text_stream.c: a text of any length is written to a stream, and takes of SERVICE_BOUND_TEXTS
 * before it grows. NULL: no memory */
FILE *fs_text_begin(const struct fs *fs, struct fs_text *text);
/* Ends the text and gives back its bytes, which its keeper counts. Frees a failed text. */
int fs_text_end(struct fs_text *text, FILE *out);
/* text.c: a copy of these bytes */
int fs_text_copy(const void *from, size_t size, struct fs_text *text);
/* Of any node, as `reader` sees it, for text->uid. -EINVAL: it has none */
int fs_text_render(struct fs *fs, const struct node *node, uint32_t reader, struct fs_text *text);
/* text_words.c */
void fs_text_uuid(const uint8_t uuid[16], char out[37]);
const char *fs_text_health(enum core_health health);
void fs_text_hex(const uint8_t bytes[16], char out[33]);

/* fds.c */
/* Whether something there still waits for time to pass. */
bool fs_fds_tick(struct fs *fs);
void fs_fds_drop_all(struct fs *fs);

/* fds_region.c */
void fs_describe_region(const struct fs *fs, const struct region *region,
                        struct gmsfs_region_info *info);

/* fds_fence.c */
struct fs_fence_answer {
    struct gmsfs_fds_header header;
    struct gmsfs_fds_fence fence;
};
/* What one of the FENCE ops answers whoever is at the other end of fd. */
void fs_fds_fence(const struct fs *fs, int fd, const struct gmsfs_fds_request *request,
                  struct fs_fence_answer *out);

#endif
