/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs_internal - declarations that the files of src/fs share
 *
 * For src/fs/<name>.c alone. Two kinds of objects stand beside the service's state: a request that
 * is not answered yet (struct fs_request), and the state that an open file has in the front end
 * only (struct fs_handle: a text that is being read, a poll, gathered bytes). A handle is made when
 * it is first needed, and found by the kernel's fh, which is the core's file id.
 */
#ifndef GMSFS_FS_FS_INTERNAL_H
#define GMSFS_FS_FS_INTERNAL_H

#include "base/rota.h"
#include "fs/deaths.h"
#include "fs/fs.h"
#include "fs/gather.h"
#include "fs/graph_entry.h"
#include "fs/init.h"
#include "fs/mapped.h"
#include "fs/node.h"
#include "fs/order.h"
#include "fs/shown.h"
#include "fs/size.h"
#include "gmsfs_abi.h"
#include "service/allocations.h"
#include "service/bounds.h"
#include "service/contents.h"
#include "service/metadata.h"
#include "service/regions.h"
#include "service/rights.h"
#include "service/sessions.h"
#include "service/tickets.h"
#include "service/views.h"

#include <fuse_lowlevel.h>
#include <stdio.h>

/* Requests served in one turn if several clients wait. */
#define FS_REQUESTS_PER_TURN 16u
/* After this time a turn of one client ends, and timers and sockets get theirs. */
#define FS_TURN_US           300u
#define FS_LEAST_WRITE_BYTES 4096u
/* After this many requests that were served one by one, the front end looks whether several
 * wait. */
#define FS_QUIET_LOOK    16u
#define FS_BUSY_LOOK     64u
#define FS_SPARE_BUFFERS 4u
/* A smaller write is copied: the buffer, of 1 MiB and 64 KiB, would count for the write's bytes. */
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
    uint64_t store; /* store and uid: the shares that this handle counts against */
    uint32_t uid;
    struct fs_shown shown;
    uint64_t position; /* events: the next one; 0: nothing was read yet */
    uint64_t offset;   /* events: of the file, where the next sequential read begins */
    uint64_t version;  /* state: as last read */
    bool has_version;
    struct fs_gathered gathered; /* ctl: a document; entry: its new value */
    uint64_t counted_bytes;      /* gathered, including documents that are being applied */
    uint64_t noted_bytes; /* bytes noted for the next worker; SERVICE_BOUND_NOTES counts them */
    bool notes_nothing;   /* too many bytes were gathered: they would be lost with the worker */
    bool is_lost;         /* they were lost with the last worker, and no answer has said so yet */
    bool has_gathered, dirty;    /* entry: there is a new value; it differs from the stored one */
    struct fs_kept_handle *kept; /* NULL: none of it outlives the worker */
    struct fs_mapped *mapped;    /* NULL: it is open directly */
    struct file_plan *made;      /* of a made file, from the first read on */
    uint64_t made_bytes;         /* counted for it */
    struct fuse_pollhandle *poll;
    struct fs_handle *poll_next, **poll_link; /* list of handles with a poll */
};

struct connection;
struct fs_connections;

struct fs_former { /* a request that the kernel sends again; both workers' numbers */
    uint64_t unique, since_ms;
    uint32_t slot; /* its slot in the ledger; 0: it has arrived and has the slot again */
};

/* ---- requests that wait for their turn (ahead.c) ------------------------------------------ */

#define FS_AHEAD_BUCKETS 1024u

/* A request that was read from the kernel and is not served yet. */
struct fs_ahead_request {
    struct rota_item item; /* first */
    uint64_t unique;
    uint64_t interrupt; /* the number of an INTERRUPT of it; 0: none came */
    uint32_t uid;       /* whose shares it counts against */
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
    struct fuse_buf buffer;  /* requests are read into it */
    struct fuse_buf served;  /* the request in work; mem NULL: its buffer is in use elsewhere */
    bool served_can_be_kept; /* it lies in a buffer of the session's size */
    struct service_admitted admitted; /* of the WRITE in work, before its turn */
    uint64_t served_since_ms;         /* when the request in work was read; 0: now */
    uint64_t served_began_us;         /* of the request in work; 0: none is */
    uint64_t served_until_us;         /* when the last request's work in the loop ended */
    struct fs_ahead ahead;
    struct event_timeout backlog; /* requests wait without an event of the kernel */
    uint64_t answered_file;       /* the file whose open is being answered; 0: none */
    uint32_t answered_backing;    /* the registered file that serves it; 0: none */
    bool passes;                  /* the kernel serves files from registered ones */
    struct fs_mappings mappings;
    void *spare_buffers[FS_SPARE_BUFFERS];
    size_t spare_count;
    struct event_watch watch;
    bool is_crowded;     /* the last look found several waiting requests */
    bool is_busy;        /* another request was waiting as soon as the last one was served */
    unsigned since_look; /* requests served one by one since the last look */
    bool initialized, ready, over;
    bool init_differs; /* this build answers FUSE_INIT otherwise than the mount's first worker */
    bool can_resend;   /* the kernel can send unanswered requests again */
    bool resuming;     /* the requests that the kernel sends again are being read */
    unsigned plain_requests; /* other requests since the last resent one */
    bool mutes_answers;      /* the kernel already has these answers */
    struct node_top top;
    struct idvec files, dirs; /* struct fs_handle */
    uint64_t next_dir;
    struct fs_handle *polls;
    struct fs_request *requests; /* not answered yet */
    uint32_t ledger_next, ledger_used;
    struct fs_former *former; /* unanswered by the last worker; NULL: none, or forgotten */
    size_t former_count;
    uint32_t *ledger_left, ledger_left_count; /* answered in this step; room for all slots */
    uint32_t kept_next;                       /* kept.c's */
    struct fs_opened opened[FS_OPENED];       /* size.c's: by node */
    struct fs_measured measured;              /* size.c's */
    struct idvec viewed;                      /* layouts that files show; shown.c's */
    uint64_t gathered_heap_bytes;
    uint64_t grows; /* the file with a document that grew in this step; 0 if there is none */
    unsigned warnings, warnings_suppressed;
    uint64_t now_ms; /* of the last tick */
    bool detached;
    struct event_watch listener;
    struct fds_unread *unread; /* connections that are over and not read to the end */
    uint64_t unread_count;     /* upper bound of the unread descriptors of all connections */
    uint64_t unread_last;      /* the last number under which the keeper holds a connection */
    bool share_is_awaited;     /* a connection waits for its share, since the last tick */
    bool unread_is_counted;    /* in this tick: not again for each waiting connection */
    bool listener_rests;       /* no descriptor is left to accept with; the tick tries again */
    struct fs_connections *connections;
    uint64_t unclaimed_until_ms; /* drains of the last worker's connections; 0: there are none */
    struct connection *drainer;  /* whose end makes the mount serve again; NULL: none */
    struct connection *governor; /* it governs the mount; NULL if none does */
    int governor_pid;            /* process that asked for that; 0 if it cannot be seen */
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
/* Finds or makes the handle. NULL: no memory. */
struct fs_handle *fs_handle_get(struct fs *fs, uint64_t fh, uint64_t node);
void fs_handle_drop(struct fs *fs, uint64_t fh); /* no-op if there is none */
void fs_handle_free(struct fs *fs, struct fs_handle *handle);
void fs_handle_set_poll(struct fs *fs, struct fs_handle *handle, struct fuse_pollhandle *poll);
void fs_handles_free(struct fs *fs);

/* kept.c */
/* Returns the handle's place in the ledger. NULL: none is free. */
struct fs_kept_handle *fs_handle_keep(struct fs *fs, struct fs_handle *handle);
void fs_handle_unkeep(struct fs_handle *handle);
/* Moves the position, valid once the request that is being served has its answer. */
void fs_kept_move(struct fs *fs, struct fs_kept_handle *kept, struct fs_kept_position to);
/* Moves back to the position before the request that is being served, if that is the last one, sent
 * again. True: it was. */
bool fs_kept_return(struct fs *fs, struct fs_kept_handle *kept);
const struct fs_kept_position *fs_kept_position(const struct fs_kept_handle *kept);

/* request_counts.c */
/* Counts a request whose work in the loop began at began_us and ends now, and returns the time.
 * kind: FUSE's opcode, or FS_COUNTED_FDS */
uint64_t fs_count_request(struct fs *fs, uint32_t kind, uint64_t began_us);
/* Returns the name of the requests that are counted in this place of struct fs_counts. */
const char *fs_count_name(const struct fs *fs, uint32_t place);

/* ---- requests (request.c) ---------------------------------------------------------------- */

/* The only way to answer a request later: the service calls done, done answers an error or calls
 * `reply` with the request still there, and frees it. `reply` must answer in every case. */
struct fs_request {
    struct service_request service; /* first */
    uint32_t ledger_slot;           /* 0: none */
    struct fs *fs;
    fuse_req_t req; /* NULL: no client waits for an answer */
    void (*reply)(struct fs_request *request, const struct service_answer *answer);
    bool takes_errors; /* `reply` is called after an error too */
    int error;         /* for such a reply; 0 or negative */
    /* Called with the service's answer to begin another call instead of replying; returns as the
     * service does. */
    int (*next_step)(struct fs_request *request);
    struct fs_request *next, **link;
    uint64_t node, file, store;
    uint32_t uid;
    uint64_t unique, began_us; /* for the trace; began_us 0: it is not traced */
    uint32_t opcode;
    uint64_t offset; /* read of a text */
    size_t bytes;    /* read, write: how many; ioctl: room for the answer */
    void *buffer;    /* write: the stolen buffer of the request */
    bool is_stolen;  /* `buffer` is one of the session's size */
    bool is_counted; /* within SERVICE_BOUND_REQUESTS */
    char name[256];
    bool asked_map;                   /* open: the memory's registration was asked for first */
    enum fs_reading reading;          /* read of a text */
    struct fuse_file_info info;       /* open, create */
    struct service_export export;     /* EXPORT, ACQUIRE */
    struct fs_gathered document;      /* APPLY */
    struct service_admitted admitted; /* write: the admitted bytes */
    _Alignas(16) uint8_t payload[];   /* ioctl: the argument, zero-extended */
};

typedef void (*fs_reply)(struct fs_request *request, const struct service_answer *answer);

static inline struct fs *fs_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* Returns a buffer for requests of the largest size. NULL: libfuse has to make one. */
void *fs_buffer_get(struct fs *fs);
void fs_buffer_give(struct fs *fs, void *buffer);

/* ahead.c */
enum fs_ahead_taken {
    FS_AHEAD_QUEUED,  /* it waits for its turn */
    FS_AHEAD_REFUSED, /* its user's share is used up: it was answered */
    FS_AHEAD_NOW,     /* the caller has to serve it now */
};
/* Takes the request of `size` bytes in fs->buffer. */
enum fs_ahead_taken fs_ahead_take(struct fs *fs, size_t size);
/* Returns the next request in turn, to be freed by fs_ahead_done. NULL: none waits. */
struct fs_ahead_request *fs_ahead_next(struct fs *fs);
void fs_ahead_done(struct fs *fs, struct fs_ahead_request *request);
void fs_ahead_free(struct fs *fs);

/* Records the kernel's number of the request that is served now. */
void fs_ledger_serve(struct fs *fs, uint64_t unique);
/* Records a request that waits for its turn as unanswered. Returns its slot; 0: none is free. */
uint32_t fs_ledger_shelve(struct fs *fs, uint64_t unique, uint64_t *since_ms);
void fs_ledger_unshelve(struct fs *fs, uint32_t slot);
/* Gives the requests that the last worker did not answer back to the kernel. If they come again,
 * their slots and arrival times are kept until then, or until fs_ledger_forget. */
void fs_ledger_give_back(struct fs *fs, bool come_again);
void fs_ledger_forget(struct fs *fs);
/* Gives the request that is served now a slot until it is answered, if one is free. */
void fs_ledger_enter(struct fs *fs, struct fs_request *request);
void fs_ledger_leave(struct fs *fs, const struct fs_request *request);
/* Clears the slots of the answered requests, after all answers have left. */
void fs_ledger_settle(struct fs *fs);
/* Returns NULL after answering an error: no memory, or too many requests (-EDQUOT: of this user)
 * are unanswered. */
struct fs_request *fs_request_new(fuse_req_t req, fs_reply reply, size_t payload_bytes);
/* Makes a request for a close, which no bound refuses. NULL: no memory, and an error was
 * answered. */
struct fs_request *fs_request_new_closing(fuse_req_t req, fs_reply reply);
/* Makes a request for a call of the service without a client that waits. NULL: no memory. */
struct fs_request *fs_request_new_unheard(struct fs *fs);
/* Allows an INTERRUPT to end the request; called before the service. False: it was interrupted
 * already, and answered. */
bool fs_request_may_wait(struct fs_request *request);
/* Called after the service, with the error that it returned. The request may be gone. */
void fs_request_submitted(struct fs_request *request, int error);
/* Answers and frees now. */
void fs_request_finish(struct fs_request *request, int error, const struct service_answer *answer);
void fs_requests_abandon(struct fs *fs);
/* resume.c */
void fs_keep_init(struct fs *fs, const void *request, size_t bytes);
/* Keeps the answer to FUSE_INIT, parts as in writev(2); it has to equal an earlier worker's. */
void fs_keep_init_answer(struct fs *fs, const struct iovec *parts, int count, size_t bytes);
/* Repeats the choice of an earlier worker, if one answered FUSE_INIT. */
void fs_repeat_choice(const struct fs *fs, struct fuse_conn_info *connection);
/* Decides whether the kernel serves files from registered ones, as an earlier worker did. */
void fs_choose_passing(struct fs *fs);
int fs_repeat_init(struct fs *fs);
/* Returns true if a kernel of FUSE 7.`protocol_minor` can send unanswered requests again. */
bool fs_can_resend(unsigned protocol_minor);
/* Restores the handles and has the kernel send unanswered requests again. Returns as fs_resume. */
int fs_ask_again(struct fs *fs);

/* error: 0 or negative */
void fs_reply_error(fuse_req_t req, int error);
/* A reply without more than success. */
void fs_reply_done(struct fs_request *request, const struct service_answer *answer);
/* A reply with the bytes of a read. */
void fs_reply_read(struct fs_request *request, const struct service_answer *answer);
void fs_reply_entry(fuse_req_t req, const struct node *node);
void fs_fill_entry(struct fs *fs, const struct node *node, struct fuse_entry_param *entry);
/* Returns the error for a number that is gone. By an open file: ESTALE. By a path, which led here a
 * moment ago: ESTALE too, because the kernel then follows the path once more and finds the new
 * object; but a client that loses this race twice in a row would see the ESTALE, which no open,
 * stat or chmod may return, so the second answer is ENOENT. */
int fs_gone(fuse_req_t req, const struct fuse_file_info *info);
/* For the handler of a WRITE: returns the bytes at `from` at a place where they live until the
 * request is freed. NULL: no memory. */
const void *fs_request_keep_bytes(struct fs_request *request, const void *from, size_t bytes);

/* Returns how many processes a request on `store` has to be resolved to: looking at an ancestor
 * takes microseconds, and is useless if no session can be joined. */
size_t fs_count_callers(fuse_req_t req, uint64_t store);
/* Finds the caller. max 0: its user only; 1: its process too; more: ancestors too. Returns 0, or
 * the error that prevents it now (-EMFILE, -ENFILE, -ENOMEM). */
int fs_get_caller(fuse_req_t req, size_t max, struct service_caller *caller);
/* Finds the actor that changes `store` by a path. `caller` is filled and has to live as long.
 * Returns as fs_get_caller. */
int fs_get_actor(fuse_req_t req, uint64_t store, struct service_caller *caller,
                 struct service_actor *by);
/* Checks that the caller may do this (SERVICE_READ, …) with the store's contents, by a path.
 * Returns 0 or -EACCES. */
int fs_check_right(fuse_req_t req, const struct node *node, unsigned rights);

/* Returns true if one more warning may be logged; bad clients must not flood the log. */
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
/* Returns the version of `state` or `residency` that a poll compares. */
uint64_t fs_shown_version(const struct node *node);
/* Wakes polls from now on. */
void fs_observe(struct fs *fs);

/* ---- files of one kind ------------------------------------------------------------------- */

/* entry.c: the value of a metadata entry that is open */
void fs_entry_read(fuse_req_t req, uint64_t node, uint64_t fh, size_t size, uint64_t offset);
void fs_entry_write(fuse_req_t req, uint64_t node, const char *from, size_t size, uint64_t offset,
                    const struct fuse_file_info *info);
/* Stores the written value as the entry's. 0 if there is nothing to do. */
int fs_entry_put(struct fs *fs, uint64_t fh);
int fs_entry_resize(struct fs *fs, uint64_t node, const struct service_actor *by, uint64_t size);
/* Empties the entry's value: the file was opened with O_TRUNC. */
int fs_entry_truncate_opened(struct fs *fs, uint64_t node, uint64_t fh);

/* gather_note.c: notes gathered bytes for the next worker */
enum fs_gathered_change {
    FS_GATHERED_BEGIN = 1, /* an entry's new value begins as these bytes */
    FS_GATHERED_WRITE,     /* these bytes at this offset */
    FS_GATHERED_RESIZE,    /* an entry's value: it has `offset` bytes */
    FS_GATHERED_PUT,       /* the value is the entry's */
    FS_GATHERED_DROP,      /* nothing is gathered */
    FS_GATHERED_LOST,      /* the gathered bytes would be lost with this worker */
    FS_GATHERED_TEXT,      /* nothing is gathered; these bytes are the text that the file shows */
};
/* Notes the text that the handle shows. False: it would be lost with this worker. */
bool fs_note_text(struct fs *fs, struct fs_handle *handle);
/* Notes a change of the gathered bytes. -ENOMEM: the caller must not make the change. */
int fs_note_gathered(struct fs *fs, struct fs_handle *handle, enum fs_gathered_change change,
                     uint64_t offset, const void *bytes, size_t size);
/* Returns true if bytes that a client wrote to the file were lost with a worker. */
bool fs_has_lost_bytes(struct fs *fs, uint64_t fh);
/* Returns -EIO once if bytes of the file were lost with a worker. */
int fs_take_loss(struct fs *fs, uint64_t fh);

/* made.c: reads the file of a store's tensors */
void fs_made_read(fuse_req_t req, uint64_t node, uint64_t fh, size_t size, uint64_t offset);

/* pseudo.c */
void fs_pseudo_read(fuse_req_t req, uint64_t node, uint64_t fh, size_t size, uint64_t offset,
                    enum fs_reading reading);
/* control.c: writes to `commit`, `abort` and `ctl` */
void fs_control_write(fuse_req_t req, const struct node *node, const char *from, size_t size,
                      const struct fuse_file_info *info);
/* pools.c */
/* Wall clock; now while a client holds the store; 0: never. */
uint64_t fs_get_last_used_ms(const struct core_store *store);
void fs_pools_write(fuse_req_t req, const char *from, size_t size, uint64_t fh);
/* events.c */
void fs_events_read(fuse_req_t req, uint64_t node, uint64_t fh, size_t size, uint64_t offset,
                    enum fs_reading reading);
void fs_events_restore(struct fs *fs, struct fs_handle *handle,
                       const struct fs_kept_position *from);
bool fs_events_are_readable(struct fs *fs, const struct fs_handle *handle);

/* text_json.c, text.c, metrics.c: a text, malloc'ed. 0; -ENOMEM; -EDQUOT of
 * one that may be long (text_stream.c) */
struct fs_text {
    char *data;
    size_t size;
    uint64_t store; /* subject of the text; 0: none */
    uint32_t uid;   /* user it counts for while it is written */
    size_t counted_bytes;
    struct service *service;
    int error;
};
int fs_text_device(const struct fs *fs, struct fs_text *text);
int fs_text_info(const struct fs *fs, const struct core_store *store, struct fs_text *text);
/* Finds the entry of an awake graph pool in its store. False: the store is of no pool. */
bool fs_text_find_graph(const struct core *core, const struct core_store *store,
                        struct fs_graph *graph);
/* reader: uid of the reader. */
int fs_text_sessions(const struct fs *fs, const struct core_store *store, uint32_t reader,
                     struct fs_text *text);
int fs_text_metrics(const struct fs *fs, struct fs_text *text);
int fs_text_pools(const struct fs *fs, struct fs_text *text);
/* text_stream.c: begins a text of any length, written to a stream, which takes bytes of
 * SERVICE_BOUND_TEXTS before it grows. NULL: no memory. */
FILE *fs_text_begin(const struct fs *fs, struct fs_text *text);
/* Ends the text and gives back its bytes to the bound; the caller counts them from then on. Frees a
 * failed text. */
int fs_text_end(struct fs_text *text, FILE *out);
/* text.c: a copy of these bytes */
int fs_text_copy(const void *from, size_t size, struct fs_text *text);
/* Renders the text of any node, as `reader` sees it, for text->uid. -EINVAL: it has none. */
int fs_text_render(struct fs *fs, const struct node *node, uint32_t reader, struct fs_text *text);
const char *fs_text_health(enum core_health health);

/* fds.c */
/* Returns true if a connection waits for a later tick. */
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
/* Answers one of the FENCE ops for the client at the other end of fd. */
void fs_fds_fence(const struct fs *fs, int fd, const struct gmsfs_fds_request *request,
                  struct fs_fence_answer *out);

#endif
