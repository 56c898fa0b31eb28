/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs - the FUSE front end and the ticket socket of one mount
 *
 * Decodes the requests of the kernel and of clients of `.fds`, calls the service, encodes the
 * answers. Owns the libfuse session (on a descriptor that is mounted already) and the socket's
 * connections; the event loop belongs to the daemon and is reached through struct fs_host. Called
 * by src/daemon/worker.c only, on the loop's thread. Parses clients' bytes and trusts none of them.
 */
#ifndef GMSFS_FS_FS_H
#define GMSFS_FS_FS_H

#include "base/event.h"
#include "base/histogram.h"
#include "base/log.h"
#include "service/service.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct fs_host {
    void *context;
    struct event_loop loop;
    /* Finds the process of a thread whose request is blocked. Fills processes (at most `max`) and
     * comm; the caller sets uid and gid. process_count is 0 if tid is 0 or the thread is gone. A
     * negative errno: the process cannot be found now, and the caller must not treat the client as
     * a stranger. */
    int (*resolve)(void *context, uint32_t tid, size_t max, struct service_caller *caller);
    /* Tells the keeper that a client with the right to do so asked for an unmount (`.fds`, op
     * UNMOUNT). */
    void (*request_unmount)(void *context);
    /* Passes a duplicate of the connection to the keeper, which serves the ops UPGRADE and
     * TAKEOVER. The client has the right to ask. */
    void (*introduce)(void *context, uint32_t op, int fd);
    /* Returns the numbers of audit lines; false: there is no audit. */
    bool (*get_audit)(void *context, uint64_t *written, uint64_t *dropped);
    /* Answers the kernel as writev(2) does; returns bytes or a negative errno. The answer may leave
     * later, when the records that it depends on are written; if the kernel refuses it then, and
     * `file` is not 0, fs_on_unwanted(file) follows. */
    ssize_t (*answer)(void *context, int fd, const struct iovec *parts, int count, uint64_t file);
    /* Adds a note for the next worker (fs_restore_note), written with this step's records. Returns
     * 0 or -ENOMEM. */
    int (*note)(void *context, const struct iovec *parts, int count);
    /* Delays a send by a socket until this step's records are written: see event.h. False: the step
     * has recorded nothing, and the send can happen now. */
    bool (*hold)(void *context, struct event_held *held);
    void (*unhold)(void *context, struct event_held *held);
    /* Gives a connection of `.fds`, whose client is about to have unread descriptors, to the
     * keeper; the next worker gets it (fs_take_unread) until it is dropped. Never waits. False: the
     * keeper cannot be told now. */
    bool (*keep_unread)(void *context, uint64_t id, int fd);
    bool (*drop_unread)(void *context, uint64_t id);
    /* Sets the level of the log, of later workers too. */
    void (*set_log_level)(void *context, enum log_level level);
    /* Called after each request that was served. */
    void (*end_step)(void *context);
    /* Called when the FUSE session is over: the mount is gone or was aborted. */
    void (*session_over)(void *context, int error);
    /* may_take returns false if a client's descriptor must be refused, because closes of
     * descriptors of this user hang. close_foreign closes such a descriptor elsewhere: the close
     * may never end. */
    bool (*may_take)(void *context, uint32_t uid);
    void (*close_foreign)(void *context, uint32_t uid, int fd);
    /* Called after FUSE_INIT was answered: the mount serves. */
    void (*session_ready)(void *context);
    /* Called after fs_resume, when the requests that the kernel sent again have been read. */
    void (*session_resumed)(void *context);
};

/* Version of struct fs_ledger below. */
#define FS_LEDGER_VERSION 7u
/* Version of the facts that the kernel remembers of a mount across workers: the numbers of nodes
 * (enum node_kind) and of directories' entries, and the answer to FUSE_INIT
 * (tests/unit/test_fs_frozen.c). */
#define FS_KERNEL_VERSION 1u

/* A position in `events`: `at` bytes into the line before `position`, and the request whose answer
 * leads there. */
struct fs_kept_position {
    uint64_t position, at;
    uint64_t offset; /* of the file, where the next sequential read begins */
    uint64_t unique;
};

/*
 * The state of an open file that its client relies on. The worker may be killed between any two
 * stores, so values that belong together become valid by one last store. If the answer to the last
 * read did not arrive, the kernel sends the request again, which begins at the position before.
 */
struct fs_kept_handle {
    _Atomic uint64_t file; /* 0: the place is free */
    uint64_t node;
    _Atomic uint64_t poll; /* the kernel's number of a poll on it; 0: none */
    _Atomic uint32_t last; /* index of the last read's position */
    struct fs_kept_position positions[2];
};

/*
 * State that outlives the worker, in memory that the keeper shares.
 *
 * It lists the unanswered requests by the kernel's numbers. If the mount ends while they wait, the
 * keeper answers them ENOTCONN, because the kernel alone would say ECONNABORTED; if the kernel does
 * not send them again, the next worker answers EIO. Therefore a request stays in the list for a
 * while after its answer has left. Slot 0 is the request being served; if the worker died, the
 * keeper moves it to the other slots. SERVICE_BOUND_REQUESTS and FS_LEDGER_CLOSING bound the
 * unanswered requests to the number of slots; a close beyond that bound has no slot, so its client
 * may see the kernel's own error. The ledger states its number of slots, because another build may
 * have made it with more or fewer.
 */
#define FS_LEDGER_SLOTS 16384u
/* The slots for requests that are never refused: closes. One is the keeper's. */
#define FS_LEDGER_CLOSING 1024u
/* Set in a request's number if the kernel has sent the request again. */
#define FS_RESENT_BIT (UINT64_C(1) << 63)
#define FS_INIT_BYTES 512u
/* Places for the tasks that a worker works on at one time: one for its loop, the others for its
 * helper threads. */
#define FS_LEDGER_AT 256u
/* Marks a frame of a GMS connection in a place that else has the number of a kernel's request. */
#define FS_AT_CONNECTION     (UINT64_C(1) << 63)
#define FS_AT_ID_BITS        40u
#define FS_AT_ID_MASK        ((UINT64_C(1) << FS_AT_ID_BITS) - 1)
#define FS_INIT_ANSWER_BYTES 128u
/* Marks a request of a process on `.fds`. */
#define FS_AT_ASKER    (UINT64_C(1) << 62)
#define FS_AT_UID_BITS 32u
#define FS_AT_PID_BITS 22u /* Linux has no larger ones */
#define FS_AT_OP_BITS  8u

/* Each frame of a connection has a number of its own. */
static inline uint64_t fs_at_connection(uint64_t id, uint64_t frame)
{
    return FS_AT_CONNECTION | (id & FS_AT_ID_MASK) |
           (frame << FS_AT_ID_BITS & ~(FS_AT_CONNECTION | FS_AT_ID_MASK));
}

static inline bool fs_is_at_connection(uint64_t at, uint64_t id)
{
    return at & FS_AT_CONNECTION && (at & FS_AT_ID_MASK) == (id & FS_AT_ID_MASK);
}

/* op: 0 while it is not known yet. */
static inline uint64_t fs_at_asker(uint32_t uid, uint32_t pid, uint32_t op)
{
    uint64_t process = pid & ((UINT64_C(1) << FS_AT_PID_BITS) - 1);

    return FS_AT_ASKER | uid | process << FS_AT_UID_BITS |
           (uint64_t)(op & ((1u << FS_AT_OP_BITS) - 1)) << (FS_AT_UID_BITS + FS_AT_PID_BITS);
}

/* Stands for all requests of a user's processes on `.fds`. */
static inline uint64_t fs_at_any_asker(uint32_t uid)
{
    return fs_at_asker(uid, 0, (1u << FS_AT_OP_BITS) - 1);
}

/* A request that killed too many workers; it is answered EIO until until_ms. */
struct fs_refused_asker {
    _Atomic uint64_t what; /* 0: the place is free */
    uint64_t until_ms;     /* monotonic */
};

#define FS_REFUSED_ASKERS 16u

/* A cause of a recovery: the next worker refuses new work until there is room for it. */
#define FS_RECOVERY_STARVED "was killed by the kernel for want of memory"

/* The last replacement of a worker. */
struct fs_recovery {
    uint64_t noticed_us; /* monotonic: when the keeper noticed the worker's end; 0: no worker was
                            replaced */
    uint64_t wall_ms;    /* the same, in milliseconds since 1970 */
    uint64_t took_us;    /* until all work in progress was served again; 0: not yet */
    char cause[128];     /* as in the keeper's log */
};

/* A thread that was told to look up a path again; see fs_gone. If a worker is killed between the
 * two stores, the place stays taken a little longer or shorter. */
struct fs_look {
    _Atomic uint32_t tid; /* 0: the place is free */
    uint32_t reserved;
    _Atomic uint64_t until_ms; /* monotonic */
};

#define FS_LOOKS 256u

struct fs_kept_request {
    _Atomic uint64_t unique; /* 0: the slot is free */
    uint64_t since_ms;       /* monotonic: when it arrived */
};

struct fs_ledger {
    uint32_t slots;              /* of `requests` */
    _Atomic uint32_t init_bytes; /* of the kernel's first request, set once; 0: not yet */
    _Alignas(8) uint8_t init[FS_INIT_BYTES];
    uint64_t started_ms;          /* wall clock: when the mount began */
    _Atomic uint32_t handles_end; /* places from here on were never used */
    struct fs_kept_handle handles[CORE_MAX_FILES];
    struct fs_recovery recovery;
    _Atomic uint32_t init_answer_bytes; /* of the answer to `init`; 0: none yet */
    uint8_t init_answer[FS_INIT_ANSWER_BYTES];
    /* The tasks that the worker works on: requests by their numbers without FS_RESENT_BIT, GMS
     * connections, and requests on `.fds`; 0: none. The first place is the loop's. The keeper
     * counts the workers that died at each task. */
    _Atomic uint64_t at[FS_LEDGER_AT];
    /* The task at which too many workers died: the next worker does not serve it again. */
    _Atomic uint64_t refused;
    struct fs_refused_asker refused_askers[FS_REFUSED_ASKERS];
    struct fs_look looks[FS_LOOKS]; /* by thread */
    struct fs_kept_request requests[];
};

/* Makes a ledger of this build's size in new memory. Returns 0 or a negative errno. */
int fs_ledger_make(int *fd, struct fs_ledger **ledger);
/* Maps an existing ledger. -EPROTO: the memory is no ledger. Or another negative errno. */
int fs_ledger_map(int fd, struct fs_ledger **ledger);
/* Grows the ledger to this build's size if it is smaller. No other process has it mapped. On
 * failure it is unchanged. */
int fs_ledger_grow(int fd, struct fs_ledger **ledger);
size_t fs_ledger_bytes(const struct fs_ledger *ledger);

/* Requests by FUSE's opcode; those on `.fds` have a place that no opcode has. */
#define FS_COUNTED_KINDS 64u
#define FS_COUNTED_FDS   (FS_COUNTED_KINDS - 1)
/* Requests of GMS clients by their kind have the places from here on. */
#define FS_COUNTED_GMS 48u
#define FS_GMS_KINDS   (FS_COUNTED_FDS - FS_COUNTED_GMS)

/* Numbers that only grow, from the mount's begin to its end: in memory that outlives the worker and
 * that another build continues. Only append fields. */
struct fs_counts {
    struct {
        uint64_t count, loop_us; /* time that the loop took for them */
    } requests[FS_COUNTED_KINDS];
    struct histogram loop_times; /* of all kinds */
};

/* Counts a request of a GMS client: its work in the loop began at began_us and ends now. */
void fs_count_gms(struct fs_counts *counts, uint32_t kind, uint64_t began_us);

struct fs_options {
    struct fs_ledger *ledger;
    struct fs_counts *counts;
    const char *(*get_gms_kind)(uint32_t kind); /* name of a kind of GMS requests */
    int fuse_fd;                                /* mounted already; becomes the session's */
    const char *mountpoint;                     /* for messages */
    bool allow_other;
    bool debug;                  /* libfuse's debug output */
    uint32_t owner_uid;          /* of the top of the tree: the mounting user */
    uint64_t wait_max_ms;        /* the kernel's bound on unanswered requests; UINT64_MAX: none */
    const char *version;         /* of gmsfs, for `device` */
    int64_t keeper_pid;          /* for `device` too */
    bool resumes;                /* another process served before: fs_resume follows */
    bool evicts;                 /* for `device`: the service evicts stores */
    const char *unshared_reason; /* why no file of memory is registered with the kernel; NULL: they
                                    are, if the kernel takes them */
    uint64_t min_stay_ms; /* for `device`: the shortest stay of a store before it is evicted */
};

struct fs;

int fs_new(struct service *service, const struct fs_options *options, const struct fs_host *host,
           struct fs **fs);
void fs_free(struct fs *fs);

/* Writes an answer that the last worker may have failed to write. Before fs_resume. */
void fs_answer_again(struct fs *fs, const void *answer, size_t bytes);
/* Restores one note of the last worker; called in their order, before fs_resume. */
void fs_restore_note(struct fs *fs, const void *bytes, size_t size);
/* Notes the whole state once more; earlier notes are discarded. */
void fs_note_all(struct fs *fs);
/* Takes a connection that a former worker gave to the keeper (keep_unread): its unread descriptors
 * count again, and its client is told that the connection is over. Before fs_resume. */
void fs_take_unread(struct fs *fs, uint64_t id, int fd);
/* Has the kernel send the unanswered requests again, and serves them. Returns 0, or -EOPNOTSUPP if
 * this kernel cannot (before Linux 6.9); all of them were then answered EIO. */
int fs_resume(struct fs *fs);
/* Returns true if requests of clients wait, in the kernel or here. */
bool fs_has_unread(const struct fs *fs);
/* Closes this file: the kernel refused the answer to its open, because the client has gone, and no
 * RELEASE will come. */
void fs_on_unwanted(struct fs *fs, uint64_t file);
/* Accepts on this socket, to which the keeper bound `.fds`. -1: stops accepting; open connections
 * stay. */
void fs_set_listener(struct fs *fs, int listen_fd);
/* Drops connections once no file is open: the mount is no longer in the tree (umount, umount
 * -l). */
void fs_on_detached(struct fs *fs);
/* Drops connections whose clients never read. Called about once a second. True: work is left for
 * the next tick. */
bool fs_on_tick(struct fs *fs, uint64_t now_ms);

#endif
