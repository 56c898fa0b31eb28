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

struct fs_host {
    void *context;
    struct event_loop loop;
    /* Who is this thread (of a request that is blocked)? Fills processes (`max` of them), comm; uid
     * and gid are set by the caller. tid 0 or gone: process_count 0. A negative errno: it cannot
     * be told now, and whoever asks is not to be taken for a stranger. */
    int (*resolve)(void *context, uint32_t tid, size_t max, struct service_caller *caller);
    /* A client may ask for an unmount (`.fds`, op UNMOUNT): tells the keeper. */
    void (*request_unmount)(void *context);
    /* Lines of the audit; false: there is none. */
    bool (*get_audit)(void *context, uint64_t *written, uint64_t *dropped);
    /* The FUSE session is over: the mount is gone (or was aborted). */
    void (*session_over)(void *context, int error);
    /* A descriptor that a client has sent, which may be of a file whose close never ends: it is
     * closed elsewhere. Of a user of whom some do not close none is taken. */
    bool (*may_take)(void *context, uint32_t uid);
    void (*close_foreign)(void *context, uint32_t uid, int fd);
    /* FUSE_INIT was answered: the mount serves. */
    void (*session_ready)(void *context);
};

/*
 * The requests that are not answered yet, by the kernel's numbers, in memory that the keeper
 * shares: when the worker is killed, the keeper answers them ENOTCONN, for the kernel alone would
 * say ECONNABORTED. Slot 0 is the request being served. One that finds no slot is only less well
 * answered. 0: free.
 */
#define FS_LEDGER_SLOTS 16384u

struct fs_ledger {
    _Atomic uint64_t unique[FS_LEDGER_SLOTS];
};

struct fs_options {
    struct fs_ledger *ledger; /* NULL: none is kept */
    int fuse_fd;              /* mounted already; becomes the session's */
    const char *mountpoint;   /* for messages */
    bool allow_other;
    bool debug;           /* libfuse's debug output */
    uint32_t owner_uid;   /* of the top of the tree: who mounted */
    uint64_t wait_max_ms; /* the kernel's bound on unanswered requests; UINT64_MAX: none */
    const char *version;  /* of gmsfs, for `device` */
    bool evicts;          /* for `device`, as the next: does the service evict stores? */
    uint64_t min_stay_ms; /* not before they were there so long */
};

struct fs;

int fs_new(struct service *service, const struct fs_options *options, const struct fs_host *host,
           struct fs **fs);
void fs_free(struct fs *fs);

/* The keeper bound `.fds`: start to accept (-1: stop to accept; open connections stay). */
void fs_set_listener(struct fs *fs, int listen_fd);
/* The mount is no longer in the tree (umount, umount -l): drop connections once no file is open. */
void fs_on_detached(struct fs *fs);
/* Once a second or so is enough: connections whose client never reads are dropped. True: something
 * waits for the next one. */
bool fs_on_tick(struct fs *fs, uint64_t now_ms);

#endif
