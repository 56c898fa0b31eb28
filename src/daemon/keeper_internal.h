/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper_internal - shared by the files of the keeper
 *
 * keeper.c begins, waits and ends; keeper_restart.c starts the next worker after one has ended;
 * keeper_events.c handles the messages of the worker, changes of the mount table, signals and
 * children; keeper_visit.c hands the mount to another worker or keeper; keeper_takeover.c continues
 * for another keeper, keeper_store.c for one that has ended; keeper_poison.c withholds requests
 * that have killed workers; keeper_worker.c starts a worker; keeper_dead.c leaves dead workers
 * behind that cannot be reaped; keeper_starved.c recognizes workers that the kernel killed for lack
 * of memory; keeper_describe.c writes the handover; keeper_tools.c is below all of them.
 */
#ifndef GMSFS_DAEMON_KEEPER_INTERNAL_H
#define GMSFS_DAEMON_KEEPER_INTERNAL_H

#include "daemon/backings.h"
#include "daemon/errand.h"
#include "daemon/fdstore.h"
#include "daemon/gms_sockets.h"
#include "daemon/handover.h"
#include "daemon/holdings.h"
#include "daemon/keeper.h"
#include "daemon/mountinfo.h"
#include "fs/fs.h"
#include "journal/journal.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define KEEPER_ENDING_MS 10000u /* for the worker to end, then SIGKILL */
/* Bounds on workers in a row: ended before they served; ended soon after their start. The second
 * takes about two minutes, because the pauses grow. */
#define KEEPER_MAX_UNSERVED 5u
#define KEEPER_MAX_IN_ROW   20u
#define KEEPER_MAX_DEAD     8u    /* workers that cannot be reaped; it waits for one more */
#define KEEPER_YIELD_MS     5000u /* for a worker to end so that another one continues */

struct keeper_restarts {
    unsigned unserved;  /* workers in a row that ended before they served */
    uint64_t served_ms; /* when a worker last served */
    /* Restarts since a worker served for a while, or was killed from outside. */
    unsigned in_row;
    uint64_t resumed_ms; /* since when the present worker serves; 0 if it does not */
    uint64_t next_ms;    /* when the next worker is started; 0 if there is a worker */
    /* Workers in a row that the kernel killed for lack of memory; the other counts ignore them. */
    unsigned starved;
    bool was_starved; /* the last worker was one of these */
    uint64_t kills;   /* the kernel's count of OOM kills when the present worker was started */
};

/* A request or client that the dead worker served, with its history. */
struct keeper_suspect {
    /* For a connection: fs_at_connection with this frame, or 0 for all its frames. */
    uint64_t request;
    /* Workers in a row that ended here; those of them that were not killed from outside. */
    unsigned killed, ended;
    unsigned unserved; /* those of them that had not served before */
    uint64_t first;    /* number of the worker's death at which it was first seen */
    uint64_t first_ms; /* time of that death */
};

struct keeper_suspects {
    uint64_t deaths;
    size_t count;
    /* A connection's frame, and the connection as a whole. */
    struct keeper_suspect items[2 * FS_LEDGER_AT];
};

/* The program that the worker runs. */
struct keeper_program {
    int fd;                   /* -1 for this process's own, by fork */
    char abi[ABI_TEXT_BYTES]; /* its numbers */
};

/* The stages of a visitor that asked the keeper for another worker, or to become the keeper; one at
 * a time. */
enum keeper_visit_stage {
    VISIT_NONE,
    VISIT_UPGRADE, /* the worker has to end, so that the next one serves */
    VISIT_OFFERED, /* the next keeper checks whether it can continue */
    VISIT_GIVING,  /* the worker has to end, then the next keeper gets everything */
};

/* Room of the present keeper's answer after the header: the reason against it, or its numbers and
 * namespaces (abi.h, namespaces.h), each ended by NUL. */
#define KEEPER_ANSWER_BYTES 512u

/* Which keeper continues is a byte after the text of the handover, in memory that both map, because
 * a message may get lost. The former keeper writes it; while that keeper has the connection open,
 * the next one waits for its decision. */
#define KEEPER_UNDECIDED 'u' /* a former keeper that is dead by then will not continue */
#define KEEPER_GIVEN     'g'
#define KEEPER_KEPT      'k'

struct keeper_visit {
    enum keeper_visit_stage stage;
    int fd;
    /* When the worker is killed, or the offer ends; 0 if that was done, or there is nothing to wait
     * for. */
    uint64_t until_ms;
    bool is_trial; /* the worker is new, and has not served yet */
    bool is_late;  /* and it was killed because it took too long */
    /* The program to continue with, and to go back to if that never serves. */
    struct keeper_program next, former;
};

/* Parts in the service manager's descriptor store, besides `holdings`. */
#define KEEPER_PARTS 24u

struct keeper_part {
    int fd;
    dev_t device;
    ino_t inode;
    uint32_t place; /* 0 if none */
};

struct keeper {
    const struct keeper_setup *setup;
    pid_t worker, unmounter;                       /* -1 if none */
    int signal_fd, mounts_fd, control_fd, keep_fd; /* -1 if none */
    struct errand binder;
    struct errand tracer;  /* replaces the trace's file */
    struct errand auditor; /* opens the audit again */
    bool is_audit_renamed; /* a SIGHUP came while `auditor` runs: start it again */
    int fuse_fd, listen_fd;
    int audit_fd; /* until the worker has it */
    int trace_fd;
    struct gms_sockets gms; /* the keeper's copies; the worker accepts */
    struct mountinfo mount;
    struct holdings holdings;
    struct backings backings;
    struct journal_files journal;
    int gms_memory_fd; /* memory of GMS clients' connections; -1 if none are served */
    int ledger_fd;
    struct fs_ledger *ledger; /* shared with the worker */
    bool is_mounted;          /* stays true once it was mounted */
    bool is_serving;          /* stays true once the mount answered */
    bool is_detached;
    uint64_t end_ms; /* when an ordered end has to be over; 0 if none was asked for */
    uint64_t files_lost;
    int worker_status;
    int lifeline_fd;  /* the worker's (lifeline.h); -1 if none, then it is checked once a second */
    uint64_t look_ms; /* when the worker is checked next; UINT64_MAX: when its lifeline ends */
    bool seems_dead;  /* the last check found it dead, but it cannot be reaped */
    pid_t dead[KEEPER_MAX_DEAD];
    size_t dead_count;
    struct keeper_restarts restarts;
    char program_path[PATH_MAX];
    struct keeper_program program;
    struct keeper_visit visit;
    bool is_taken_over; /* from another keeper, and the worker has not served yet */
    bool is_given;      /* to another keeper: this one ends and touches nothing */
    struct keeper_suspects suspects;
    int status; /* the exit status */
    struct fdstore store;
    struct keeper_part parts[KEEPER_PARTS];
    uint32_t text_place;
};

static inline const char *keeper_path(const struct keeper *keeper)
{
    return keeper->setup->mountpoint;
}

void keeper_on_signal(struct keeper *keeper);
/* Handles one message. Returns false if there is none, now or ever. */
bool keeper_on_control(struct keeper *keeper);
bool keeper_on_keep(struct keeper *keeper);
void keeper_on_mounts(struct keeper *keeper);
void keeper_on_bound(struct keeper *keeper);
void keeper_on_traced(struct keeper *keeper);
void keeper_on_audited(struct keeper *keeper);

/* ---- keeper_visit.c: another worker or keeper continues ------------------------------------- */

/* Takes the descriptor. */
void keeper_on_introduced(struct keeper *keeper, uint64_t op, int fd);
/* Call it when visit.fd is readable. */
void keeper_on_visitor(struct keeper *keeper);
/* Call it at visit.until_ms. */
void keeper_on_visit_late(struct keeper *keeper);
/* Returns true if the worker was told to end because another one continues. */
bool keeper_is_yielding(const struct keeper *keeper);
/* Call it when the worker has ended so that another one continues. Returns false if no worker of
 * this keeper follows. */
bool keeper_succeed_worker(struct keeper *keeper);
/* Call it when the worker serves. */
void keeper_end_trial(struct keeper *keeper);
/* Call it when the new worker has ended before it served. Returns true if the former program
 * continues. */
bool keeper_go_back(struct keeper *keeper);
/* Replaces this child, which is to be the worker, by the visit's program. Returns only on
 * failure. */
void keeper_execute_worker(struct keeper *keeper, int control_fd, int keep_fd);
/* Takes everything from another keeper (keeper_takeover.c). On failure the reason was logged. */
int keeper_take_over(struct keeper *keeper);
/* Makes the parts of a handover this keeper's; `handover` has to stay. */
int keeper_adopt(struct keeper *keeper, struct handover *handover, struct failure *failure);
/* Waits until the worker of an ended keeper, which the kernel kills with it, has gone. */
void keeper_fence(const struct keeper *keeper);

/* ---- keeper_describe.c: the parts of a mount, for a process that continues it --------------- */

/* Fills in all parts; they stay the keeper's. */
int keeper_describe(const struct keeper *keeper, int control_fd, int keep_fd,
                    struct handover *handover);
/* Writes `head` and the text into an unnamed file. Returns its descriptor, or a negative errno. */
int keeper_write_text(const void *head, size_t head_size, const struct handover_text *text);

/* ---- keeper_store.c: the service manager's copies ------------------------------------------- */

/* Call it when the mount serves. */
void keeper_store_begin(struct keeper *keeper);
/* Call it when a part other than `holdings` has changed. */
void keeper_store_update(struct keeper *keeper);
/* Continues a stored mount (fdstore_is_offered). On failure the reason was logged. */
int keeper_resume_stored(struct keeper *keeper);

/* ---- keeper_dead.c: dead workers that cannot be reaped -------------------------------------- */

/* Returns true if all its threads were killed; `status` is as waitpid gives it, 0 if unknown. */
bool keeper_is_dead(pid_t pid, int *status);
/* Call it when the worker was started. */
void keeper_expect_worker(struct keeper *keeper);
/* Takes the worker's lifeline; the keeper checks the worker when it hangs up, not every second. */
void keeper_trust_lifeline(struct keeper *keeper, int fd);
/* Call it when the lifeline has hung up: the worker is checked from now on. */
void keeper_on_lifeline(struct keeper *keeper);
/* Checks the worker at keeper->look_ms, and leaves behind one that is dead and cannot be reaped. */
void keeper_look_at_worker(struct keeper *keeper);
/* Call it when children have ended. */
void keeper_reap_dead(struct keeper *keeper);
/* Call it at the end of the mount. */
void keeper_end_dead(struct keeper *keeper);
/* Returns a living process that the worker, or a dead one, had started; 0 if none. */
pid_t keeper_search_orphan(const struct keeper *keeper);

/* ---- keeper_starved.c: workers that the kernel kills for lack of memory --------------------- */

/* Returns true if a process that ended with this status (waitpid), while the kernel's count of OOM
 * kills rose, was one of those kills. Pure. */
bool keeper_is_starved(int status, uint64_t kills_before, uint64_t kills_now);
/* Returns the kernel's count of OOM kills; 0 if it has none. */
uint64_t keeper_read_kills(void);
/* Returns true if a worker may be started now. When memory is short even fork(2) makes the kernel
 * kill a process: this one, if it is the last. */
bool keeper_has_room(const struct keeper *keeper);
/* Make the OOM killer spare this process, because its end frees all memory, and not spare the
 * worker, because another one follows. A keeper without CAP_SYS_RESOURCE makes the worker more
 * likely to be killed than itself. */
void keeper_spare_itself(void);
void keeper_expose_worker(void);

/* ---- keeper_poison.c ---------------------------------------------------------------------- */

/* Call it when a worker has ended without having been told to. */
void keeper_refuse_poison(struct keeper *keeper);

/* ---- keeper_tools.c ----------------------------------------------------------------------- */

struct wire_message;
void keeper_send(struct keeper *keeper, const struct wire_message *message, int passed_fd);
void keeper_tell_worker(struct keeper *keeper, uint32_t type, int passed_fd);
/* Returns true for a dead worker that was left behind. */
bool keeper_is_left_dead(const struct keeper *keeper, pid_t pid);
/* Returns true for a child that the keeper has started itself. */
bool keeper_is_own(const struct keeper *keeper, pid_t child);
int keeper_start_worker(struct keeper *keeper);
/* Call it when there is no worker. Returns true if another one was started, or will be after a
 * pause. */
bool keeper_restart_worker(struct keeper *keeper);
/* For the next worker, which reports it in the mount. */
void keeper_note_recovery(struct fs_ledger *ledger, const char *cause);
void keeper_describe_end(int status, char *text, size_t room);
/* Opens the audit for appending. Returns a descriptor, or a negative errno. */
int keeper_open_audit(const char *path);
/* The same for the trace: a former file becomes FILE.1. */
int keeper_open_trace(const char *path, struct failure *failure);
/* Takes the mount out of the tree if it is on top of its directory. */
bool keeper_detach(struct keeper *keeper);

#endif
