/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper_internal - what the files of the keeper share: keeper.c begins, waits and ends,
 * keeper_events.c does what the worker, the mount table, signals and children ask for,
 * keeper_restart.c starts the next worker where one has died.
 */
#ifndef GMSFS_DAEMON_KEEPER_INTERNAL_H
#define GMSFS_DAEMON_KEEPER_INTERNAL_H

#include "daemon/gms_sockets.h"
#include "daemon/holdings.h"
#include "daemon/keeper.h"
#include "daemon/mountinfo.h"
#include "fs/fs.h"
#include "journal/journal.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define KEEPER_ENDING_MS 10000u /* for the worker, then SIGKILL */
/* Restarts in a row whose worker ended before it served; or soon after: some two minutes, for they
 * are started more and more slowly. */
#define KEEPER_MAX_VAIN   5u
#define KEEPER_MAX_IN_ROW 20u
/* So many that end at one request. */
#define KEEPER_POISONED 3u

struct keeper_restarts {
    unsigned in_vain;    /* since a worker served */
    unsigned in_row;     /* since one served for a while, or was killed by somebody */
    uint64_t resumed_ms; /* since when the present one serves; 0: it does not */
    uint64_t next_ms;    /* there is no worker until then; 0: there is one */
};

struct keeper {
    const struct keeper_setup *setup;
    pid_t worker, binder, unmounter;                          /* -1: none */
    int signal_fd, mounts_fd, control_fd, keep_fd, binder_fd; /* -1: none */
    int fuse_fd, listen_fd;
    int audit_fd;           /* for the worker, which has it after that */
    struct gms_sockets gms; /* our copies: the worker accepts */
    struct mountinfo mount;
    struct holdings holdings;
    struct journal_files journal;
    struct fs_ledger *ledger; /* shared with the worker; NULL: no memory for it */
    bool is_mounted;          /* it was, once */
    bool is_serving;          /* it answered, once */
    bool is_detached;
    uint64_t end_ms; /* when an end in order has to be over; 0: nobody asked for one */
    uint64_t files_lost;
    int worker_status;
    struct keeper_restarts restarts;
    uint64_t poison;   /* the request that the last one was at, by its number; 0: none */
    unsigned poisoned; /* how many before it were at that as well */
    int status;        /* the exit status */
};

void keeper_on_signal(struct keeper *keeper);
/* One message. False: there is none, or will be none any more. */
bool keeper_on_control(struct keeper *keeper);
void keeper_on_keep(struct keeper *keeper);
void keeper_on_mounts(struct keeper *keeper);
void keeper_on_bound(struct keeper *keeper);

/* A child that the keeper has started itself. */
bool keeper_is_own(const struct keeper *keeper, pid_t child);
int keeper_start_worker(struct keeper *keeper);
/* There is no worker. True: another one goes on, or will after a pause; false: none does. */
bool keeper_restart_worker(struct keeper *keeper);
void keeper_describe_end(int status, char *text, size_t room);
void keeper_close(int *fd);
/* For appending. A descriptor, or a negative errno */
int keeper_open_audit(const char *path);
/* Takes the mount out of the tree if it is on top of its directory. */
bool keeper_detach(struct keeper *keeper);
uint64_t keeper_now_ms(void);

#endif
