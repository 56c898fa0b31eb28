/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs - the FUSE front end and the ticket socket of one mount
 *
 * Decodes what the kernel and clients of `.fds` ask, calls the service, encodes the answers. Owns
 * the libfuse session (on a descriptor that is mounted already) and the socket's connections; the
 * event loop belongs to the daemon and is reached through struct fs_host. Called by
 * src/daemon/worker.c only. One thread: the loop's. It parses what clients send and trusts none of
 * it.
 */
#ifndef GMSFS_FS_FS_H
#define GMSFS_FS_FS_H

#include "base/event.h"
#include "service/service.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct fs_host {
    void *context;
    struct event_loop loop;
    /* Who is this thread (of a request that is blocked)? Fills processes (`max` of them), comm; uid
     * and gid are set by the caller. tid 0 or gone: process_count 0. A negative errno: it cannot
     * be told now, and whoever asks is not to be taken for a stranger. */
    int (*resolve)(void *context, uint32_t tid, size_t max, struct service_caller *caller);
    /* A client may ask for an unmount (`.fds`, op UNMOUNT): tells the keeper. */
    void (*request_unmount)(void *context);
    /* A client that may asks for what the keeper does: who goes on with the mount (ops UPGRADE and
     * TAKEOVER). It gets a duplicate of the connection. */
    void (*introduce)(void *context, uint32_t op, int fd);
    /* Lines of the audit; false: there is none. */
    bool (*get_audit)(void *context, uint64_t *written, uint64_t *dropped);
    /* An answer to the kernel, as writev(2) would have it; bytes or a negative errno. It may leave
     * later, when what it tells of is recorded; where the kernel does not want it then, and `file`
     * is not 0, fs_on_unwanted(file) follows. */
    ssize_t (*answer)(void *context, int fd, const struct iovec *parts, int count, uint64_t file);
    /* Something that a next worker is to be told (fs_restore_note), with this step's records.
     * -ENOMEM */
    int (*note)(void *context, const struct iovec *parts, int count);
    /* What is about to be sent by a socket waits for what this step has recorded: see event.h.
     * False: it was nothing, and it can be sent now. */
    bool (*hold)(void *context, struct event_held *held);
    void (*unhold)(void *context, struct event_held *held);
    /* A connection of `.fds` whose client is about to have descriptors unread: a next worker gets
     * it (fs_take_unread) until it is dropped. Nothing waits. False: the keeper cannot be told now.
     */
    bool (*keep_unread)(void *context, uint64_t id, int fd);
    bool (*drop_unread)(void *context, uint64_t id);
    /* A request has been served. */
    void (*end_step)(void *context);
    /* The FUSE session is over: the mount is gone (or was aborted). */
    void (*session_over)(void *context, int error);
    /* A descriptor that a client has sent, which may be of a file whose close never ends: it is
     * closed elsewhere. Of a user of whom some do not close none is taken. */
    bool (*may_take)(void *context, uint32_t uid);
    void (*close_foreign)(void *context, uint32_t uid, int fd);
    /* FUSE_INIT was answered: the mount serves. */
    void (*session_ready)(void *context);
    /* After fs_resume: what was sent again has been read. */
    void (*session_resumed)(void *context);
};

/* Of struct fs_ledger below. */
#define FS_LEDGER_VERSION 7u
/* Of what the kernel remembers of a mount, whoever serves it: the numbers of nodes (enum node_kind)
 * and of directories' entries, and what FUSE_INIT was answered (tests/unit/test_fs_frozen.c). */
#define FS_KERNEL_VERSION 1u

/* A position in `events`: behind so many bytes of the line before `position`, and the request whose
 * answer leads there. */
struct fs_kept_position {
    uint64_t position, at;
    uint64_t offset; /* of the file: where the read that goes on there begins */
    uint64_t unique;
};

/*
 * What an open file has here that its client relies on. The worker may be killed between any two
 * stores, so what belongs together counts by one more store, which comes last. Where the answer to
 * the last read did not arrive, the kernel sends the request again, and it begins at the position
 * before.
 */
struct fs_kept_handle {
    _Atomic uint64_t file; /* 0: the place is free */
    uint64_t node;
    _Atomic uint64_t poll; /* the kernel's number of a poll on it; 0: none */
    _Atomic uint32_t last; /* which of the positions is that of the last read */
    struct fs_kept_position positions[2];
};

/*
 * What outlives the worker, in memory that the keeper shares.
 *
 * The requests that are not answered yet, by the kernel's numbers: when the mount ends although
 * they wait, the keeper answers them ENOTCONN, for the kernel alone would say ECONNABORTED; and
 * where the kernel does not send them again, the next worker answers EIO. So one leaves a while
 * after its answer has left. Slot 0 is the request being served; of a worker that died the keeper
 * puts it with the others. No more can be unanswered than there are slots for
 * (SERVICE_BOUND_REQUESTS and FS_LEDGER_CLOSING); beyond that a close is only less well answered.
 * How many there are is said in the ledger, for whoever made it may be of a build with more, or
 * with fewer.
 */
#define FS_LEDGER_SLOTS 16384u
/* Of these, for requests that are not refused whatever waits: closes. One is the keeper's. */
#define FS_LEDGER_CLOSING 1024u
/* In such a number: the kernel has sent the request again. */
#define FS_RESENT_BIT (UINT64_C(1) << 63)
#define FS_INIT_BYTES 512u
/* What a worker can be at at a time: its loop, and its helper threads. */
#define FS_LEDGER_AT 256u
/* Of a frame of a GMS connection, where the numbers of the kernel's requests are as well. */
#define FS_AT_CONNECTION     (UINT64_C(1) << 63)
#define FS_AT_ID_BITS        40u
#define FS_AT_ID_MASK        ((UINT64_C(1) << FS_AT_ID_BITS) - 1)
#define FS_INIT_ANSWER_BYTES 128u
/* Of what a process asks on `.fds`. */
#define FS_AT_ASKER    (UINT64_C(1) << 62)
#define FS_AT_UID_BITS 32u
#define FS_AT_PID_BITS 22u /* Linux has no larger ones */
#define FS_AT_OP_BITS  8u

/* Whoever sends one frame after the other is at another one each time. */
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

/* Whatever a user's processes ask there. */
static inline uint64_t fs_at_any_asker(uint32_t uid)
{
    return fs_at_asker(uid, 0, (1u << FS_AT_OP_BITS) - 1);
}

/* Too many workers died of what was asked; EIO to whoever asks it until then. */
struct fs_refused_asker {
    _Atomic uint64_t what; /* 0: the place is free */
    uint64_t until_ms;     /* monotonic */
};

#define FS_REFUSED_ASKERS 16u

/* A cause of a recovery: the next worker refuses new work until there is room for it. */
#define FS_RECOVERY_STARVED "was killed by the kernel for want of memory"

/* The last time that a worker was replaced. */
struct fs_recovery {
    uint64_t noticed_us; /* monotonic: when the keeper knew of the worker's end; 0: never was */
    uint64_t wall_ms;    /* the same, in milliseconds since 1970 */
    uint64_t took_us;    /* until all that was under way was served again; 0: it is not yet */
    char cause[128];     /* as the keeper's log has it */
};

/* A thread that was told to look at a path again; see fs_gone. A worker that is killed between the
 * two stores leaves a place that is taken a little longer, or shorter. */
struct fs_look {
    _Atomic uint32_t tid; /* 0: the place is free */
    uint32_t reserved;
    _Atomic uint64_t until_ms; /* monotonic */
};

#define FS_LOOKS 256u

struct fs_kept_request {
    _Atomic uint64_t unique; /* 0: the slot is free */
    uint64_t since_ms;       /* monotonic: since when it is unanswered */
};

struct fs_ledger {
    uint32_t slots;              /* of `requests` */
    _Atomic uint32_t init_bytes; /* of the kernel's first request, said once; 0: not yet */
    _Alignas(8) uint8_t init[FS_INIT_BYTES];
    uint64_t started_ms;          /* wall clock: when the mount began */
    _Atomic uint32_t handles_end; /* places behind were never used */
    struct fs_kept_handle handles[CORE_MAX_FILES];
    struct fs_recovery recovery;
    _Atomic uint32_t init_answer_bytes; /* of what the kernel was answered; 0: nothing yet */
    uint8_t init_answer[FS_INIT_ANSWER_BYTES];
    /* What the worker is at: requests by their numbers, without FS_RESENT_BIT, GMS connections, and
     * what is asked on `.fds`; 0: nothing. The first is the loop's. The keeper counts which of them
     * workers died at. */
    _Atomic uint64_t at[FS_LEDGER_AT];
    /* One of those, at which too many died: the next worker does not serve it again. */
    _Atomic uint64_t refused;
    struct fs_refused_asker refused_askers[FS_REFUSED_ASKERS];
    struct fs_look looks[FS_LOOKS]; /* by thread */
    struct fs_kept_request requests[];
};

/* The memory of a new one, as large as this build has them. 0 or a negative errno. */
int fs_ledger_make(int *fd, struct fs_ledger **ledger);
/* One that is there. -EPROTO: it is none. Or another negative errno */
int fs_ledger_map(int fd, struct fs_ledger **ledger);
/* Has it as large as this build has them, where it is not. Nobody else has it mapped. On failure it
 * stays as it is. */
int fs_ledger_grow(int fd, struct fs_ledger **ledger);
size_t fs_ledger_bytes(const struct fs_ledger *ledger);

struct fs_options {
    struct fs_ledger *ledger;
    int fuse_fd;            /* mounted already; becomes the session's */
    const char *mountpoint; /* for messages */
    bool allow_other;
    bool debug;           /* libfuse's debug output */
    uint32_t owner_uid;   /* of the top of the tree: who mounted */
    uint64_t wait_max_ms; /* the kernel's bound on unanswered requests; UINT64_MAX: none */
    const char *version;  /* of gmsfs, for `device` */
    int64_t keeper_pid;   /* for `device` too */
    bool resumes;         /* another process served before: fs_resume follows */
    bool evicts;          /* for `device`, as the next: does the service evict stores? */
    uint64_t min_stay_ms; /* not before they were there so long */
};

struct fs;

int fs_new(struct service *service, const struct fs_options *options, const struct fs_host *host,
           struct fs **fs);
void fs_free(struct fs *fs);

/* Writes an answer that the last worker may not have got through. Before fs_resume. */
void fs_answer_again(struct fs *fs, const void *answer, size_t bytes);
/* What the last worker noted, in order. Before fs_resume. */
void fs_restore_note(struct fs *fs, const void *bytes, size_t size);
/* Notes all of it once more: what was noted before is not kept. */
void fs_note_all(struct fs *fs);
/* Takes a connection that a former worker had kept (keep_unread): what its client has not read
 * counts, and it is told that the connection is over. Before fs_resume. */
void fs_take_unread(struct fs *fs, uint64_t id, int fd);
/* Has the kernel send again what was not answered, and serves it. 0; -EOPNOTSUPP: this kernel does
 * not (before Linux 6.9), and all of it was answered EIO. */
int fs_resume(struct fs *fs);
/* The open of this file was answered in vain: whoever asked has gone, and no RELEASE will come. */
void fs_on_unwanted(struct fs *fs, uint64_t file);
/* The keeper bound `.fds`: start to accept (-1: stop to accept; open connections stay). */
void fs_set_listener(struct fs *fs, int listen_fd);
/* The mount is no longer in the tree (umount, umount -l): drop connections once no file is open. */
void fs_on_detached(struct fs *fs);
/* Once a second or so is enough: connections whose client never reads are dropped. True: something
 * waits for the next one. */
bool fs_on_tick(struct fs *fs, uint64_t now_ms);

#endif
