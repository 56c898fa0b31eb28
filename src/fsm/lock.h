/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock - the lock of one store: who holds it, who waits, who is next
 *
 * Pure: no I/O, no clock (every call that needs the time is given it, in milliseconds of any
 * monotonic origin), no knowledge of processes, files or layouts. The store's core calls it; it
 * calls nobody. Single-threaded.
 * A wish is what is asked for, a mode what is granted. Whom a mode excludes is a row of one table
 * (`lock.c`); what a state is called is a row of GMSFS_STATE_LIST in the ABI. Sessions and waiters
 * are known by ids that the caller chooses, increasing and never used twice.
 */
#ifndef GMSFS_FSM_LOCK_H
#define GMSFS_FSM_LOCK_H

#include "gmsfs_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOCK_MAX_SESSIONS 4096u /* of one store; beyond: ENOSPC */
#define LOCK_MAX_WAITERS  4096u
#define LOCK_FOREVER      UINT64_MAX

enum lock_wish {
    LOCK_WISH_RO = 1,
    LOCK_WISH_RW = 2,
    LOCK_WISH_AUTO = 3, /* RW if nothing is committed, or that is bare, when the grant comes, else
                           RO */
    LOCK_WISH_DATA = 4, /* RW_DATA if a sealed layout is there when the grant comes, else RW */
};

enum lock_mode {
    LOCK_MODE_NONE = 0,
    LOCK_MODE_RO = 1,
    LOCK_MODE_RW = 2,
    LOCK_MODE_RW_DATA = 3, /* writes the bytes of a sealed layout, whose shape is final */
};

/* Whether a waiter lacks something that the lock cannot give, such as memory. */
enum lock_sleep {
    LOCK_AWAKE = 0,
    LOCK_ASLEEP,         /* nobody waits for it */
    LOCK_ASLEEP_IN_TURN, /* to write: as long as it is patient, nobody who came later passes it */
};

/* Derived, never stored: LOCK_STATE_EMPTY and so on, the states that clients know. */
#define LOCK_STATE_ENUMERATOR(word, number) LOCK_STATE_##word = number,
enum lock_state {
    GMSFS_STATE_LIST(LOCK_STATE_ENUMERATOR) LOCK_STATE_COUNT
};

struct lock_session {
    uint64_t id;
    enum lock_mode mode;
};

struct lock_waiter {
    uint64_t id;
    enum lock_wish wish;
    uint64_t since_ms;      /* when it first asked */
    uint64_t hold_since_ms; /* start of its present patience: since_ms, or the last release */
    uint64_t deadline_ms;   /* LOCK_FOREVER: none */
    uint64_t kept_until_ms; /* 0: active; else its caller is away, the place kept until then */
    bool looking;           /* kept, but holds others off: its caller only looks around */
    enum lock_sleep sleep;
};

#define LOCK_MODES  4u
#define LOCK_WISHES 5u

struct lock {
    bool committed;
    bool bare;    /* what is committed has no bytes any more: RO would find none, AUTO writes */
    bool sealed;  /* a layout is there whose shape is final, and which is not committed */
    bool closed;  /* nobody is let in; who waits goes on waiting */
    bool changed; /* since whoever remembers what follows from it has set this to false */
    uint64_t patience_ms;
    struct lock_session *sessions; /* in order of grant */
    size_t session_count, session_room;
    size_t held[LOCK_MODES];     /* sessions by mode */
    struct lock_waiter *waiters; /* in order of arrival */
    size_t waiter_count, waiter_room;
};

void lock_init(struct lock *lock, uint64_t patience_ms);
void lock_free(struct lock *lock);

const char *lock_state_name(enum lock_state state);
/* As users see them: "RO", "RW", "RW_DATA"; of a wish also "AUTO" and "DATA". */
const char *lock_mode_name(enum lock_mode mode);
const char *lock_wish_name(enum lock_wish wish);
enum lock_state lock_get_state(const struct lock *lock);
/* Waiters that want to write, those that look around or sleep among them: RW, RW_DATA, and AUTO
 * while nothing is committed */
size_t lock_count_waiting_writers(const struct lock *lock);

/* What a wish would be granted right now, waiting writers considered; LOCK_MODE_NONE: it must wait.
 * It overtakes no active waiter that could be granted now and that it would shut out, and no
 * patient writer that sleeps in turn. */
enum lock_mode lock_would_grant(const struct lock *lock, enum lock_wish wish, uint64_t now_ms);

/* Adds a session. The mode must be what lock_would_grant or lock_next_grant said: one that the
 * sessions exclude, or an id in use, is a bug of the caller and asserted. RW replaces a sealed
 * layout: once it is added, the caller drops that by lock_set_sealed. 0, -ENOSPC, -ENOMEM */
int lock_add_session(struct lock *lock, uint64_t session_id, enum lock_mode mode);

/* Before a session is added of somebody who has not waited: room for it, besides that for all who
 * wait. -ENOMEM */
int lock_reserve_session(struct lock *lock);

/* Adds a waiter at the end of the queue. 0, -ENOSPC, -ENOMEM. While it waits there is room for
 * the sessions of all who wait: theirs are added without -ENOMEM. */
int lock_add_waiter(struct lock *lock, uint64_t waiter_id, enum lock_wish wish, uint64_t now_ms,
                    uint64_t deadline_ms);

/* The first active waiter in order of arrival that can be granted now. False: none (nor while
 * there are LOCK_MAX_SESSIONS sessions: who waits goes on waiting). Changes nothing; the caller
 * then calls lock_remove_waiter and lock_add_session, and asks again. To be asked after every
 * call that changes the lock, and when lock_next_moment has come. A waiter whose deadline has
 * passed is granted as long as it is there: that the lock is free counts more than the clock. */
bool lock_next_grant(const struct lock *lock, uint64_t now_ms, uint64_t *waiter_id,
                     enum lock_mode *mode);

/* Removes a session; restarts the patience of the waiting writers. -ENOENT if unknown */
int lock_remove_session(struct lock *lock, uint64_t session_id, uint64_t now_ms);

/* A committing writer: LOCK_MODE_NONE ends its session, LOCK_MODE_RO keeps it as a reader. Sets
 * committed; either is a release and restarts the patience. -ENOENT if unknown, -EINVAL if not a
 * writer with RW. That nothing is sealed any more is asserted */
int lock_commit(struct lock *lock, uint64_t session_id, enum lock_mode stay, uint64_t now_ms);

/* A writer whose layout is final: it goes on with RW_DATA, and what was committed is not any more.
 * -ENOENT if unknown, -EINVAL if not a writer with RW */
int lock_seal(struct lock *lock, uint64_t session_id);

/* Nobody may hold RW_DATA when what is sealed goes; both are never set. Asserted: what comes from
 * where it may be damaged is looked at before. */
void lock_set_committed(struct lock *lock, bool committed);
void lock_set_sealed(struct lock *lock, bool sealed);
/* Opened again, it gives the waiting writers patience anew, as a release does. */
void lock_set_closed(struct lock *lock, bool closed, uint64_t now_ms);
/* Only of what is committed, which it may be with every mode; ends with that. Asserted. */
void lock_set_bare(struct lock *lock, bool bare);

/* A kept place is never granted and, unless its caller is only looking around, holds nobody off;
 * resumed, it is where it was in the queue, with the patience that it had left. Its deadline sleeps
 * until then. */
int lock_remove_waiter(struct lock *lock, uint64_t waiter_id); /* -ENOENT */
int lock_keep_place(struct lock *lock, uint64_t waiter_id, uint64_t kept_until_ms,
                    bool looking);                                                  /* -ENOENT */
int lock_resume_place(struct lock *lock, uint64_t waiter_id, uint64_t deadline_ms); /* -ENOENT */

/* A waiter that lacks something which the lock cannot give sleeps: it is passed over and holds
 * nobody off, as a kept place, but its deadline runs. Awake, it is where it was in the queue, with
 * the patience that it has left. A writer that sleeps in turn is passed over as well, by those who
 * came before it alone: whoever came later waits behind it until its patience is over, also while
 * it looks around, and readers do as for any writer. Leaving and resuming its place wake it.
 * -ENOENT */
int lock_set_sleep(struct lock *lock, uint64_t waiter_id, enum lock_sleep sleep);

/* Were it awake and there, could this waiter (active, or looking around) be granted now, by what
 * the sessions hold? */
bool lock_is_free_for(const struct lock *lock, uint64_t waiter_id);
/* The mode that a wish would be granted in now. */
enum lock_mode lock_get_wish_mode(const struct lock *lock, enum lock_wish wish);

/* A lock exactly as it was, from what may be damaged: what it has (committed, sealed), then its
 * sessions, then its waiters, each by rising id and awake. What no lock could have is -EINVAL;
 * -ENOMEM.
 */
int lock_restore_session(struct lock *lock, const struct lock_session *session);
int lock_restore_waiter(struct lock *lock, const struct lock_waiter *waiter);

const struct lock_waiter *lock_find_waiter(const struct lock *lock, uint64_t waiter_id);
const struct lock_session *lock_find_session(const struct lock *lock, uint64_t session_id);

/* The next waiter (in order of arrival) whose deadline (if active) or kept place has passed;
 * false: none. Changes nothing; the caller removes it and asks again. */
bool lock_next_expired(const struct lock *lock, uint64_t now_ms, uint64_t *waiter_id,
                       bool *was_kept);

/* The earliest later moment at which time alone changes something (deadline, kept place, patience
 * that runs out while somebody waits for nothing else); LOCK_FOREVER: none. It is not after now_ms
 * only if lock_next_expired still has something to tell. */
uint64_t lock_next_moment(const struct lock *lock, uint64_t now_ms);

#endif
