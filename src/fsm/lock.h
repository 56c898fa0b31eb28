/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock - the lock of one store: its sessions, its queue of waiters, and the next grant
 *
 * Pure: no I/O, no clock (calls take the time as an argument, in milliseconds of any monotonic
 * origin), no knowledge of processes, files or layouts. src/core calls it; it calls no other
 * module. Single-threaded.
 *
 * A request has a wish, a session has a mode. The modes that exclude each other are a table in
 * `lock.c`; the names of states are GMSFS_STATE_LIST in the ABI. The caller chooses the ids of
 * sessions and waiters, increasing and never used twice.
 */
#ifndef GMSFS_FSM_LOCK_H
#define GMSFS_FSM_LOCK_H

#include "gmsfs_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOCK_MAX_SESSIONS 4096u /* per store; beyond: ENOSPC */
#define LOCK_MAX_WAITERS  4096u
#define LOCK_FOREVER      UINT64_MAX

enum lock_wish {
    LOCK_WISH_RO = 1,
    LOCK_WISH_RW = 2,
    LOCK_WISH_AUTO = 3, /* RW if nothing is committed or it is bare at the grant, else RO */
    LOCK_WISH_DATA = 4, /* RW_DATA if there is a sealed layout at the grant, else RW */
};

enum lock_mode {
    LOCK_MODE_NONE = 0,
    LOCK_MODE_RO = 1,
    LOCK_MODE_RW = 2,
    LOCK_MODE_RW_DATA = 3, /* writes the bytes of a sealed layout with a final shape */
};

/* A waiter sleeps while it lacks something that the lock cannot give, such as memory. */
enum lock_sleep {
    LOCK_AWAKE = 0,
    LOCK_ASLEEP,         /* other waiters pass it */
    LOCK_ASLEEP_IN_TURN, /* a writer that no newer waiter passes while it is patient */
};

/* The states that clients see, LOCK_STATE_EMPTY and so on: derived, never stored. */
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
    uint64_t hold_since_ms; /* start of its current patience: since_ms, or the last release */
    uint64_t deadline_ms;   /* LOCK_FOREVER if none */
    /* 0 if active; else the place is kept until then, without a request to answer */
    uint64_t kept_until_ms;
    bool looking; /* a kept place that still holds others off: its client asks again soon */
    enum lock_sleep sleep;
};

#define LOCK_MODES  4u
#define LOCK_WISHES 5u

struct lock {
    bool committed;
    bool bare;    /* the committed layout has lost its bytes: nothing for RO to read, AUTO writes */
    bool sealed;  /* there is a layout with a final shape that is not committed */
    bool closed;  /* grants nothing; waiters stay in the queue */
    bool changed; /* set by every change; a caller that caches derived values clears it */
    uint64_t patience_ms;
    struct lock_session *sessions; /* in order of grant */
    size_t session_count, session_room;
    size_t held[LOCK_MODES];     /* number of sessions by mode */
    struct lock_waiter *waiters; /* in order of arrival */
    size_t waiter_count, waiter_room;
};

void lock_init(struct lock *lock, uint64_t patience_ms);
void lock_free(struct lock *lock);

const char *lock_state_name(enum lock_state state);
/* Return the names that users see: "RO", "RW", "RW_DATA"; for wishes also "AUTO" and "DATA". */
const char *lock_mode_name(enum lock_mode mode);
const char *lock_wish_name(enum lock_wish wish);
enum lock_state lock_get_state(const struct lock *lock);
/* Counts the waiters that want to write (RW, RW_DATA, and AUTO while nothing is committed), also
 * asleep or in a kept place that holds others off. */
size_t lock_count_waiting_writers(const struct lock *lock);

/* Returns the mode that a new request would get now; LOCK_MODE_NONE if it must wait. It overtakes
 * no active waiter that could be granted now and that it would exclude, and no patient writer that
 * sleeps in turn. */
enum lock_mode lock_would_grant(const struct lock *lock, enum lock_wish wish, uint64_t now_ms);

/* Adds a session with the mode that lock_would_grant or lock_next_grant returned; asserts that the
 * other sessions allow it and that the id is new. RW replaces a sealed layout: the caller drops
 * that by lock_set_sealed afterwards. 0, -ENOSPC, -ENOMEM */
int lock_add_session(struct lock *lock, uint64_t session_id, enum lock_mode mode);

/* Makes room for a session that did not wait, in addition to the room for all waiters; call before
 * lock_add_session. -ENOMEM */
int lock_reserve_session(struct lock *lock);

/* Adds a waiter at the end of the queue. 0, -ENOSPC, -ENOMEM. The lock keeps room for the sessions
 * of all waiters: adding them never fails with -ENOMEM. */
int lock_add_waiter(struct lock *lock, uint64_t waiter_id, enum lock_wish wish, uint64_t now_ms,
                    uint64_t deadline_ms);

/* Finds the first active waiter in order of arrival that can be granted now. False if there is
 * none; also false at LOCK_MAX_SESSIONS sessions, and then the waiters keep waiting. Changes
 * nothing: the caller then calls lock_remove_waiter and lock_add_session, and asks again. Call it
 * after every change of the lock, and at lock_next_moment. A waiter past its deadline can still be
 * granted: a free lock counts more than the clock. */
bool lock_next_grant(const struct lock *lock, uint64_t now_ms, uint64_t *waiter_id,
                     enum lock_mode *mode);

/* Removes a session; restarts the patience of the waiting writers. -ENOENT if unknown */
int lock_remove_session(struct lock *lock, uint64_t session_id, uint64_t now_ms);

/* Commits the writer: LOCK_MODE_NONE ends its session, LOCK_MODE_RO keeps it as a reader. Sets
 * committed; both are a release and restart the patience. -ENOENT if unknown, -EINVAL if not a
 * writer with RW. Asserts that nothing is sealed. */
int lock_commit(struct lock *lock, uint64_t session_id, enum lock_mode stay, uint64_t now_ms);

/* Seals the writer's layout: its session continues as RW_DATA, and the store is no longer
 * committed. -ENOENT if unknown, -EINVAL if not a writer with RW */
int lock_seal(struct lock *lock, uint64_t session_id);

/* Set the contents of the store: never both. Asserts that, and that no session has RW_DATA when the
 * sealed layout goes. */
void lock_set_committed(struct lock *lock, bool committed);
void lock_set_sealed(struct lock *lock, bool sealed);
/* Opening the lock again restarts the patience, as a release does. */
void lock_set_closed(struct lock *lock, bool closed, uint64_t now_ms);
/* Sets whether the committed layout has lost its bytes; asserts that there is one. A change of
 * committed clears it. */
void lock_set_bare(struct lock *lock, bool bare);

/* A kept place is never granted, and only a `looking` one holds others off. A resumed waiter has
 * its old position in the queue and the rest of its patience. Its deadline does not count
 * meanwhile. */
int lock_remove_waiter(struct lock *lock, uint64_t waiter_id); /* -ENOENT */
int lock_keep_place(struct lock *lock, uint64_t waiter_id, uint64_t kept_until_ms,
                    bool looking);                                                  /* -ENOENT */
int lock_resume_place(struct lock *lock, uint64_t waiter_id, uint64_t deadline_ms); /* -ENOENT */

/* Puts a waiter to sleep or wakes it. A sleeping waiter is skipped and holds no other off, as a
 * kept place, but its deadline counts. Awake again, it has its old position in the queue and the
 * rest of its patience. A writer asleep in turn is skipped for older waiters only: newer ones wait
 * behind it until its patience ends, and readers give way to it as to any writer. Keeping and
 * resuming its place wake it. -ENOENT */
int lock_set_sleep(struct lock *lock, uint64_t waiter_id, enum lock_sleep sleep);

/* True if the sessions alone would allow a grant to this waiter (active or `looking`), were it
 * awake. */
bool lock_is_free_for(const struct lock *lock, uint64_t waiter_id);
/* Returns the mode that a wish means for the present contents of the store. */
enum lock_mode lock_get_wish_mode(const struct lock *lock, enum lock_wish wish);

/* Restore a lock from bytes that may be damaged: first committed and sealed, then its sessions,
 * then its waiters, by rising id and awake. -EINVAL for a state that no lock can have; -ENOMEM */
int lock_restore_session(struct lock *lock, const struct lock_session *session);
int lock_restore_waiter(struct lock *lock, const struct lock_waiter *waiter);

const struct lock_waiter *lock_find_waiter(const struct lock *lock, uint64_t waiter_id);
const struct lock_session *lock_find_session(const struct lock *lock, uint64_t session_id);

/* Finds the first waiter in order of arrival that is past its deadline (if active) or the end of
 * its kept place; false if there is none. Changes nothing: the caller removes it and asks again. */
bool lock_next_expired(const struct lock *lock, uint64_t now_ms, uint64_t *waiter_id,
                       bool *was_kept);

/* Returns the earliest later time at which the clock alone changes something (a deadline, the end
 * of a kept place, the end of the patience that a waiter waits for); LOCK_FOREVER if none. Not
 * after now_ms only if lock_next_expired still finds a waiter. */
uint64_t lock_next_moment(const struct lock *lock, uint64_t now_ms);

#endif
