/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keeper_internal - what the files of the keeper share: keeper.c begins, waits and ends,
 * keeper_restart.c starts the next worker where one has ended, keeper_events.c does what the
 * worker, the mount table, signals and children ask for, keeper_visit.c has others go on,
 * keeper_takeover.c goes on for another keeper, keeper_store.c for one that has ended,
 * keeper_poison.c gives it nothing that others have died of, keeper_worker.c starts a worker,
 * keeper_dead.c leaves one that is dead and does not go, keeper_starved.c tells which one the
 * kernel killed for want of memory, keeper_describe.c writes what is handed over, keeper_tools.c is
 * below all of them.
 */
#ifndef GMSFS_DAEMON_KEEPER_INTERNAL_H
#define GMSFS_DAEMON_KEEPER_INTERNAL_H

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

#define KEEPER_ENDING_MS 10000u /* for the worker, then SIGKILL */
/* Restarts in a row whose worker ended before it served; or soon after: some two minutes, for they
 * are started more and more slowly. */
#define KEEPER_MAX_VAIN   5u
#define KEEPER_MAX_IN_ROW 20u
#define KEEPER_MAX_DEAD   8u    /* workers that cannot be reaped; one more is waited for */
#define KEEPER_YIELD_MS   5000u /* for a worker that is to end because another one goes on */

struct keeper_restarts {
    unsigned in_vain;    /* since a worker served */
    uint64_t served_ms;  /* when one last did */
    unsigned in_row;     /* since one served for a while, or was killed by somebody */
    uint64_t resumed_ms; /* since when the present one serves; 0: it does not */
    uint64_t next_ms;    /* there is no worker until then; 0: there is one */
    unsigned starved; /* workers in a row that ended for want of memory, which count as no other */
    bool was_starved; /* the last one did */
    uint64_t kills;   /* the kernel's count of OOM kills when the present worker was started */
};

/* What the last worker was at when it ended, of those that the ledger tells. */
struct keeper_suspect {
    uint64_t what;          /* of a connection: fs_at_connection with this frame, or 0 for any */
    unsigned killed, ended; /* workers in a row; those of them that nobody killed */
    unsigned in_vain;       /* and those that had not served before */
    uint64_t first;         /* at the how manieth death of a worker it was first among them */
    uint64_t first_ms;      /* when that was */
};

struct keeper_suspects {
    uint64_t deaths;
    size_t count;
    struct keeper_suspect items[2 * FS_LEDGER_AT]; /* a connection's frame, and the connection */
};

/* What the worker runs. */
struct keeper_program {
    int fd;                   /* -1: this process's own, by fork */
    char abi[ABI_TEXT_BYTES]; /* its numbers */
};

/* Somebody who has asked the keeper for another worker, or to be the keeper: one at a time. */
enum keeper_visit_stage {
    VISIT_NONE,
    VISIT_UPGRADE, /* the worker is to end, the next one to serve */
    VISIT_OFFERED, /* the next keeper looks whether it can go on */
    VISIT_GIVING,  /* the worker is to end, then all goes to the next keeper */
};

/* Of what the present keeper answers, behind the header: why not, or what there is and where it is
 * (abi.h, namespaces.h), each ended by NUL. */
#define KEEPER_ANSWER_BYTES 512u

/* Which keeper goes on is one byte behind the text that is given, in memory that both see: a
 * message may not arrive. The former writes it; as long as it is open, the next one waits for its
 * word. */
#define KEEPER_UNDECIDED 'u' /* a former that is dead by then will not go on */
#define KEEPER_GIVEN     'g'
#define KEEPER_KEPT      'k'

struct keeper_visit {
    enum keeper_visit_stage stage;
    int fd;
    uint64_t
        until_ms;  /* of the worker, or of the offer: when it is killed; 0: it was, or is gone */
    bool is_trial; /* the worker is new, and has not served yet: */
    bool is_late;  /* and was killed, for it did not in its time */
    struct keeper_program next, former; /* what it becomes, and goes back to if that never serves */
};

/* In the service manager's descriptor store, but for `holdings`. */
#define KEEPER_PARTS 24u

struct keeper_part {
    int fd;
    dev_t device;
    ino_t inode;
    uint32_t place; /* 0: none */
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
    int gms_memory_fd; /* of the connections of GMS clients; -1: none are served */
    int ledger_fd;
    struct fs_ledger *ledger; /* shared with the worker */
    bool is_mounted;          /* it was, once */
    bool is_serving;          /* it answered, once */
    bool is_detached;
    uint64_t end_ms; /* when an end in order has to be over; 0: nobody asked for one */
    uint64_t files_lost;
    int worker_status;
    int lifeline_fd;  /* of the worker (lifeline.h); -1: none, it is looked at once a second */
    uint64_t look_ms; /* when the worker is looked at again; UINT64_MAX: when its lifeline ends */
    bool seems_dead;  /* as it did the last time, though it cannot be reaped */
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

void keeper_on_signal(struct keeper *keeper);
/* One message. False: there is none, or will be none any more. */
bool keeper_on_control(struct keeper *keeper);
bool keeper_on_keep(struct keeper *keeper);
void keeper_on_mounts(struct keeper *keeper);
void keeper_on_bound(struct keeper *keeper);

/* ---- keeper_visit.c: others go on --------------------------------------------------------- */

/* Takes the descriptor. */
void keeper_on_introduced(struct keeper *keeper, uint64_t op, int fd);
/* There is something to read on visit.fd. */
void keeper_on_visitor(struct keeper *keeper);
/* visit.until_ms is over. */
void keeper_on_visit_late(struct keeper *keeper);
/* The worker was told to end because another one goes on. */
bool keeper_is_yielding(const struct keeper *keeper);
/* The worker has ended while another one was to go on. False: none of this keeper's. */
bool keeper_succeed_worker(struct keeper *keeper);
/* The worker serves. */
void keeper_end_trial(struct keeper *keeper);
/* The new worker has ended before it served. True: the former program goes on. */
bool keeper_go_back(struct keeper *keeper);
/* In the child that is to be the worker: becomes visit's program. Returns on failure only. */
void keeper_execute_worker(struct keeper *keeper, int control_fd, int keep_fd);
/* From another keeper, all of it: keeper_takeover.c. The reason of a failure was logged. */
int keeper_take_over(struct keeper *keeper);
/* What came by a handover is the keeper's; `handover` stays for good. */
int keeper_adopt(struct keeper *keeper, struct handover *handover, struct failure *failure);
/* The worker of a keeper that has ended was killed by that; it is gone when this returns. */
void keeper_fence(const struct keeper *keeper);

/* ---- keeper_describe.c: what a mount consists of, for whoever goes on with it --------------- */

/* All that there is, and stays the keeper's. */
int keeper_describe(const struct keeper *keeper, int control_fd, int keep_fd,
                    struct handover *handover);
/* Into a file without a name: `head`, and the text. Its descriptor, or a negative errno. */
int keeper_write_text(const void *head, size_t head_size, const struct handover_text *text);

/* ---- keeper_store.c: what the service manager holds ---------------------------------------- */

/* The mount serves. */
void keeper_store_begin(struct keeper *keeper);
/* Something else than `holdings` has changed. */
void keeper_store_update(struct keeper *keeper);
/* Where fdstore_is_offered. The reason of a failure was logged. */
int keeper_go_on_stored(struct keeper *keeper);

/* ---- keeper_dead.c: workers that are dead and do not go ------------------------------------ */

/* All its threads were killed; `status` is as waitpid tells it, 0 where it cannot be told. */
bool keeper_is_dead(pid_t pid, int *status);
/* The worker was started. */
void keeper_expect_worker(struct keeper *keeper);
/* Takes the worker's lifeline: until that hangs up nobody looks at the worker. */
void keeper_trust_lifeline(struct keeper *keeper, int fd);
/* The lifeline has hung up: the worker is looked at from now on. */
void keeper_on_lifeline(struct keeper *keeper);
/* At keeper->look_ms: a worker that is dead and does not go is none any more. */
void keeper_look_at_worker(struct keeper *keeper);
/* Children have ended. */
void keeper_reap_dead(struct keeper *keeper);
/* The mount is at its end. */
void keeper_end_dead(struct keeper *keeper);
/* A process that the worker, or what is left of one, had started and that lives; 0: none. */
pid_t keeper_search_orphan(const struct keeper *keeper);

/* ---- keeper_starved.c: workers that the kernel kills for want of memory --------------------- */

/* A process ended with this status (waitpid), and the kernel's count of OOM kills rose meanwhile:
 * was that process one of them? Pure. */
bool keeper_is_starved(int status, uint64_t kills_before, uint64_t kills_now);
/* The kernel's count of OOM kills; 0 where it tells none. */
uint64_t keeper_read_kills(void);
/* May a worker be started now? Where memory is short even fork(2) has the kernel kill a process:
 * this one, if it is the last. */
bool keeper_has_room(const struct keeper *keeper);
/* Has the OOM killer spare this process, whose end is the end of all memory; and not spare the
 * worker, which another one follows. Where the keeper may not say so (CAP_SYS_RESOURCE), the worker
 * is preferred to it. */
void keeper_spare_itself(void);
void keeper_expose_worker(void);

/* ---- keeper_poison.c ---------------------------------------------------------------------- */

/* A worker has ended although nobody asked it to. */
void keeper_refuse_poison(struct keeper *keeper);

/* ---- keeper_tools.c ----------------------------------------------------------------------- */

struct wire_message;
void keeper_send(struct keeper *keeper, const struct wire_message *message, int passed_fd);
void keeper_tell_worker(struct keeper *keeper, uint32_t type, int passed_fd);
/* A child that the keeper has started itself. */
bool keeper_is_own(const struct keeper *keeper, pid_t child);
int keeper_start_worker(struct keeper *keeper);
/* There is no worker. True: another one goes on, or will after a pause; false: none does. */
bool keeper_restart_worker(struct keeper *keeper);
/* For the next worker, which tells of it in the mount. */
void keeper_note_recovery(struct fs_ledger *ledger, const char *cause);
void keeper_describe_end(int status, char *text, size_t room);
void keeper_close(int *fd);
/* For appending. A descriptor, or a negative errno */
int keeper_open_audit(const char *path);
/* Takes the mount out of the tree if it is on top of its directory. */
bool keeper_detach(struct keeper *keeper);

#endif
