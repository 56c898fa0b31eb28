/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core - the whole state of one mount, and the one function that changes it
 *
 * Pure: no I/O, no clock, no randomness, no descriptors. Everything that is not determined by the
 * state comes in with the record: time, process, uid, random bytes, memory handles. The same
 * records applied to a fresh core give the same state, byte by byte (core_encode). A record that
 * fails changes nothing, counters of ids included, and leaves no effects. One exception: a COMMIT
 * refused by layout_check sets the store's last_error, so it has to be replayed like any other; no
 * other record that failed may be, for with more memory it might succeed (outcome.noted).
 *
 * What has to be done outside because of a change (answer a waiter, free memory, wake a poll) is
 * appended to a queue of effects, which the service takes after each record (core_next_effect).
 * Changed by src/service alone, through core_apply; the front ends look at it. Single-threaded.
 * Objects returned as const pointers are valid until the next core_apply.
 */
#ifndef GMSFS_CORE_CORE_H
#define GMSFS_CORE_CORE_H

#include "base/blob.h"
#include "base/failure.h"
#include "base/idvec.h"
#include "base/share.h"
#include "core/event.h"
#include "core/move.h"
#include "core/pool.h"
#include "core/record.h"
#include "core/store_drain.h"
#include "fsm/lock.h"
#include "meta/layout.h"
#include "regions/regions.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Of an encoded state: a change is another version. What was frozen of it (tests/data) says when.
 */
#define CORE_STATE_VERSION 12u
#define CORE_STATE_OLDEST  11u /* that is still read */
#define CORE_STATE_TIMES   12u /* the first that has times of files */

/*
 * Bounds. Beyond each: ENOSPC, of files ENFILE, of gathered bytes ENOMEM. All but the first and the
 * last are shared by the users (base/share.h), as are the sessions and the waiters of a store
 * (fsm/lock.h): beyond a user's share EDQUOT.
 */
#define CORE_MAX_STORES         4096u
#define CORE_MAX_FILES          65536u /* open ones, and those who wait for an open */
#define CORE_MAX_TICKETS        4096u
#define CORE_MAX_GATHERED_BYTES (2ull << 30) /* of documents and values that are being written */
#define CORE_MAX_EVENTS         1024u        /* ring: older ones are overwritten */
#define CORE_MAX_WRITERS        1024u        /* processes that can write a store's memory */
#define CORE_MAX_REGIONS        4096u
#define CORE_MAX_REGION_BYTES   (1u << 20) /* of their names and keys */

#define CORE_MAX_GRANTS    256u /* by one record, which so ends soon; RECORD_TIME goes on */
#define CORE_KEPT_PLACE_MS 1000u
#define CORE_TICKET_MS     30000u
#define CORE_REASON_BYTES  128u
#define CORE_BY_DAEMON     UINT32_MAX /* instead of the uid of who revoked: nobody asked */

/* What a file of a store is; fs/node.h maps its own, finer kinds to these. */
enum core_kind {
    CORE_KIND_NONE = 0,
    CORE_KIND_PSEUDO, /* state, info, sessions, …: text; `serial` is free for the front end */
    CORE_KIND_LOCK,
    CORE_KIND_AUTO,
    CORE_KIND_CTL,
    CORE_KIND_COMMIT,
    CORE_KIND_ABORT,
    CORE_KIND_DATA,
    CORE_KIND_SEAL,
    CORE_KIND_POOLS,
    CORE_KIND_ALLOCATION,
    CORE_KIND_ENTRY,
    CORE_KIND_REGION,
    CORE_KIND_RESIDENCY,
};
#define CORE_KIND_COUNT (CORE_KIND_RESIDENCY + 1)

/* Which bound a record met (struct outcome). Of what is state; what is not (bytes on their way,
 * connections, …) is the service's (bounds.h). */
enum core_bound {
    CORE_BOUND_NONE = 0,
    CORE_BOUND_FILES,
    CORE_BOUND_TICKETS,
    CORE_BOUND_SESSIONS,
    CORE_BOUND_WAITERS,
    CORE_BOUND_GATHERED,
    CORE_BOUND_REGIONS,
    CORE_BOUND_REGION_BYTES,
    CORE_BOUND_MEMORY, /* the daemon's own, of which the state knows nothing: never of a record */
};

enum core_health {
    CORE_HEALTH_OK,
    CORE_HEALTH_SUSPECT, /* bytes of some store may be damaged */
    CORE_HEALTH_LOST,    /* the device is gone, for good */
};

#define CORE_OPEN_READ       (1u << 0)
#define CORE_OPEN_WRITE      (1u << 1)
#define CORE_OPEN_NONBLOCK   (1u << 2)
#define CORE_OPEN_GRACE      (1u << 3) /* waits only for a RELEASE under way: at its deadline EAGAIN */
#define CORE_OPEN_AGAIN      (1u << 4)  /* ACQUIRE: is back soon after its deadline: looks around */
#define CORE_OPEN_LEAVING    (1u << 5)  /* the session that the process is in ends already */
#define CORE_OPEN_OWNED      (1u << 6)  /* ACQUIRE: the session ends with its owner's process */
#define CORE_OPEN_FRESH      (1u << 7)  /* ACQUIRE: a grant of RW drops what is committed */
#define CORE_OPEN_REPLACE    (1u << 8)  /* ACQUIRE: RW wherever the store is, for all is replaced */
#define CORE_OPEN_ANY        (1u << 9)  /* ACQUIRE: RO wherever the store is */
#define CORE_OPEN_CONNECTION (1u << 10) /* FILE_OPEN: a connection's, which no client has open */
#define CORE_OPEN_BY_PROCESS (1u << 11) /* ACQUIRE: the session is not exclusive */

struct core_store {
    uint64_t id; /* serial */
    uint8_t uuid[16];
    char name[256];
    uint32_t uid, gid, mode; /* mode: permission bits */
    uint64_t created_ms;     /* wall clock, from the record */
    uint64_t changed_ms;
    uint64_t generation;
    uint64_t version; /* counts changes of what `state` shows: for poll */
    struct lock lock;
    uint64_t moment_ms; /* when time next changes the lock, while lock.changed is false */
    bool is_touched;    /* it is in the index's `touched` */
    struct share sessions, waiters; /* of the lock, by user */
    bool crowded;                   /* some waiters may sleep, whatever memory there is */
    struct layout *fixed;           /* what is committed, or sealed (lock.sealed); NULL: neither */
    struct layout *working;         /* NULL: no writer, or a writer that has changed nothing */
    struct blob *encoding;          /* canonical bytes of `fixed` */
    struct core_process *writers;   /* who was handed writable descriptors of its memory, and may
                                       live: in order of pid and start */
    size_t writer_count;
    bool unseen_writer; /* so was a process that the daemon cannot see */
    uint8_t hash[16];
    uint8_t group[16];
    char last_error[256];
    uint64_t suspect; /* how many memories of its layouts may be damaged: then no new readers */
    uint64_t grants_rw, grants_ro, commits, aborts, exports; /* for metrics */
    struct core_history history;                             /* of its writers */
    struct core_drain drain;                                 /* lock.closed follows from it */
    struct core_use use;
    struct core_places places;
};

struct core_session {
    uint64_t id; /* what users see: "RW 7" */
    uint64_t store;
    enum lock_mode mode;
    bool exclusive; /* made by ACQUIRE without BY_PROCESS: reached by handle, JOIN and token only */
    bool implicit;  /* taken by opening an allocation */
    bool touched;   /* committed bytes may have changed: no rollback */
    bool owned;     /* ends with its owner's process, whoever has its files open */
    bool ending;    /* closed, or revoked; SESSION_END follows, until then nothing of it begins */
    bool holds;     /* the store is in use while it lives (pool.h): its place gets no slower */
    bool any;       /* it was let in wherever the store is */
    uint64_t opener; /* implicit, exclusive: the file that took it */
    uint8_t token[16];
    struct core_process owner;
    uint32_t uid;
    char comm[CORE_COMM_BYTES];
    uint64_t since_ms;            /* wall clock */
    uint64_t files;               /* open files in it */
    uint64_t tickets;             /* not yet used */
    struct core_file *first_file; /* of these, in no order */
    uint64_t reserved_bytes;      /* set aside for it and not drawn yet; a writer's only */
    uint64_t due_bytes;           /* still to be set aside, of what its store's memory gives back */
    uint64_t making_bytes;        /* charged for memory that is not in its layout yet */
    uint64_t drawn_bytes;         /* of that, so much was set aside for it before */
};

struct core_file {
    uint64_t id; /* fh */
    enum core_kind kind;
    uint64_t store;
    uint64_t serial;  /* allocation, entry, region; a region's ctl: that region; pseudo: the front
                       * end's */
    uint64_t session; /* 0: none. An id that core_find_session no longer knows: ESTALE */
    uint32_t flags;   /* CORE_OPEN_* */
    uint32_t uid;
    struct core_process opener;
    uint64_t gathered_bytes; /* written to it and not yet part of a layout */
    bool holds;              /* a reference to its region */
    struct core_file *next_in_session, **link_in_session; /* NULL: in none that lives */
};

/* What a grant makes, made before: so that no grant fails for want of memory. */
struct core_grant {
    struct core_session *session;
    struct core_file *file; /* NULL: the asker has one, its ctl */
};

struct core_waiter {
    uint64_t id;
    uint64_t store;
    uint64_t file; /* ACQUIRE: the ctl handle; else 0: an open, described by the rest */
    enum core_kind kind;
    uint64_t serial;
    uint32_t flags;
    enum lock_wish wish;
    struct core_process owner;
    uint32_t uid;
    char comm[CORE_COMM_BYTES];
    uint8_t token[16];
    uint64_t since_wall_ms;
    uint64_t reserve_bytes; /* what is to be set aside at the grant of RW; 0: nothing */
    bool away;              /* its place is kept, nobody is there to answer; with CORE_OPEN_AGAIN it
                               only looks around, and counts as waiting all the same */
    struct core_grant grant;
};

struct core_ticket {
    uint64_t id;
    uint8_t secret[16];
    uint64_t session;
    uint32_t uid;          /* who may redeem it */
    uint32_t holder;       /* the user of the file that it was made for: of whose share it is */
    uint64_t first, count; /* ranks */
    uint64_t serial;       /* of one allocation instead of a range; 0: range */
    uint64_t region;       /* of its object, and of no session; 0: of memory of a store */
    bool writable;
    uint64_t expires_ms;
};

/*
 * RESERVATIONS. A waiter that wants bytes set aside gets lock and bytes together or neither: it
 * sleeps in its lock while the device (record.free_bytes, and what its own store has committed,
 * which a writer may replace) cannot give them. Among such waiters, of all stores, one whose lock
 * is free goes before all that came later, so that small ones do not starve it; for as long as it
 * is patient (core_is_patient), so that it does not hold them up for ever. Requests that reserve
 * nothing pass it. Who waits for its store to come to the device stands in the same line,
 * for as much as that has; a move to the device that nobody waits for is behind all of them. At the
 * grant as much as possible is set aside of what is free, and the rest is due: it comes from what
 * the writer frees. The sum over the sessions is reserved_bytes: the service keeps that much of the
 * device's account for them.
 *
 * SEALED LAYOUTS. A writer seals its layout: the shape is final, bytes go on changing. Its session
 * becomes one of RW_DATA, whose end, however it comes, leaves all as it is. RW_DATA is granted only
 * while nobody but the asker itself can write: whoever was handed a writable descriptor
 * (RECORD_LEND) has exited (RECORD_EXIT). Until then who wishes it sleeps in the lock, in turn: who
 * came later waits behind it, as long as it is patient. A grant of RW drops what is sealed.
 *
 * RESUMING. What a worker had under way dies with it, and the memory that it made for that goes:
 * the one that replaces it applies RECORD_RESUME to the state that it found, and nothing but moves
 * is under way any more, whose bytes are copied anew. What was being made for a session is not, and
 * what was drawn for it is set aside again, as far as free_bytes go, and else due. Sessions that
 * were only `ending` are over. Who waits is away, and his place is kept, for he asks again: until
 * CORE_RESUME_END it does not expire, and nobody is granted a lock for which one has not come back
 * yet, for that one may be next.
 */

/* What a COMMIT computes, beforehand (core_commit_new). */
struct core_commit {
    struct layout *layout; /* of which, held: while it is, nobody changes it */
    bool check;            /* for CORE_COMMIT_CHECK: nothing is encoded, and spools pass */
    bool refused;          /* the layout cannot be committed: message says why */
    int error;
    char message[256];
    struct blob *encoding; /* if there is no error */
    uint8_t hash[16];
};

struct outcome {
    uint64_t id, file, session, waiter, serial, slot, rank, generation, count, ticket_first;
    enum lock_mode mode;
    bool rolled_back;
    enum core_bound bound; /* with -EDQUOT and what the whole bound says: which it was, */
    uint32_t bound_uid;    /* and whose */
    uint64_t pool;         /* with -EDQUOT: whose budget it was, of a pool; 0: of none */
    bool noted;            /* a COMMIT that failed has set last_error: it is to be replayed */
    struct core_ticket ticket;
};

enum effect_type {
    EFFECT_GRANTED,      /* waiter, session, file (the new one, or ACQUIRE's) */
    EFFECT_REFUSED,      /* waiter, error (negative) */
    EFFECT_FREE_MEMORY,  /* memory */
    EFFECT_STATE,        /* store: what `state` shows changed */
    EFFECT_EVENT,        /* a line was added to events */
    EFFECT_SESSION_OVER, /* session, store */
    EFFECT_PLACE,        /* store: what `residency` shows changed */
    EFFECT_MOVE_OVER,    /* store, move: it ends without MOVE_END; its memory goes */
    EFFECT_REGION_OVER,  /* memory: its descriptor; file: its ctl, to be closed; either or none */
};

struct effect {
    enum effect_type type;
    uint64_t waiter, session, file, memory, store, move;
    struct core_process owner; /* SESSION_OVER: whose exit would have ended it; pid 0: nobody's */
    int error;
};

/* Layouts and encodings that are no part of the state any more. */
#define CORE_MAX_GARBAGE 16u

struct core_garbage {
    struct layout *layouts[CORE_MAX_GARBAGE];
    struct blob *blobs[CORE_MAX_GARBAGE];
    size_t layout_count, blob_count;
};

/* Lower bounds than those above. 0: that one */
struct core_limits {
    uint64_t files, tickets, gathered_bytes;
    uint64_t sessions, waiters; /* of a store */
    uint64_t events;            /* remembered */
    uint64_t regions, region_bytes;
};

struct core_options {
    uint64_t patience_ms;
    uint64_t granularity_bytes;
    struct core_limits limits;
    uint32_t admin_uid; /* besides root: who mounted */
};

/* A checkpoint of the device is under way: nobody gets a session of the stores of these names. */
struct core_fence {
    bool is_up;
    char names[2][256];   /* "": none. Of the second there may be no store, and none comes */
    uint8_t token[16];    /* of this one, or of the last one */
    uint32_t resolved_by; /* CORE_FENCE_ABORT, _COMPLETE: how the last one ended; 0: none was yet */
};

/* What `state` of a store showed before the record that is being applied. */
struct core_shown {
    uint64_t store;
    enum lock_state state;
    uint64_t generation;
    uint64_t place_version; /* the same of `residency` */
};

/* The store that an allocation or an entry was in when it was last looked for. */
struct core_hint {
    uint64_t serial, store;
};

/* What the stores are found by, and which of them a record has to look at: so most stores cost it
 * nothing. All follows from the stores. */
struct core_index {
    struct core_store **names; /* by name */
    size_t name_count;
    struct idvec waited; /* stores that somebody waits for */
    struct idvec lent;   /* stores with writers that can be seen */
    struct core_shown *touched;
    size_t touched_count;
    size_t room; /* of `names` and `touched`: for so many stores */
    struct core_hint *hints;
};

struct core {
    struct core_options options;
    uint64_t next_id;      /* stores, allocations, entries (node serials) and files */
    uint64_t next_session; /* small numbers for people */
    uint64_t next_waiter, next_ticket, next_event;
    uint64_t event_bytes;      /* of the lines of all events that there ever were */
    uint64_t measured_event;   /* the next one whose line is not among these yet */
    uint64_t event_text_bytes; /* of the texts of those before it that are remembered */
    uint64_t comm_bytes;       /* of the sessions' and the waiters' */
    uint64_t reserved_bytes;   /* the sum over the sessions */
    size_t reserving;          /* waiters with reserve_bytes */
    size_t displaced;          /* stores that are committed, and not on the device */
    bool draining;
    struct core_drainer drainer; /* zero: it does not drain, or is drained for good */
    bool lost;                   /* the device */
    uint64_t resumes;            /* how often a worker was replaced */
    bool is_resuming;            /* who waited for the last one is coming back */
    struct core_fence fence;
    uint64_t suspect;                      /* the sum over the stores */
    char health_reason[CORE_REASON_BYTES]; /* "": it is well */
    struct idvec stores, sessions, waiters, files, tickets, memories;
    struct core_index index;
    struct core_pools pools;
    struct regions regions;
    struct share file_share, ticket_share, gathered_share, region_share, region_bytes_share;
    struct core_event *events; /* ring of options.limits.events by seq */
    struct layout *empty;      /* what a looker sees where there is no layout */
    struct effect *effects;
    size_t effect_first, effect_count, effect_room;
    struct core_garbage garbage;
    uint64_t ticket_moment_ms; /* when the next ticket expires, if that is known */
    bool knows_ticket_moment;
};

int core_new(const struct core_options *options, struct core **core);
void core_free(struct core *core);

/* Applies one record. 0 or a negative errno (state unchanged, no effects). */
int core_apply(struct core *core, const struct record *record, struct outcome *outcome);
bool core_next_effect(struct core *core, struct effect *effect);
/* The layout that a record which changes one copies before; NULL: none. */
const struct layout *core_find_copied(const struct core *core, const struct record *record);
/* The effect at this place of the queue, which stays there; NULL: the queue is shorter. */
const struct effect *core_peek_effect(const struct core *core, size_t at);

/* A commit's check, encoding and hash, away from the core's thread: new and free there, prepare on
 * any one thread in between; then it goes with the record. Anything may be recorded meanwhile: it
 * is of use as long as it is current. NULL: no memory, no such session, or no layout. */
bool core_commit_is_slow(const struct core *core, uint64_t session);
struct core_commit *core_commit_new(const struct core *core, uint64_t session, uint32_t flags);
void core_commit_prepare(struct core_commit *commit);
bool core_commit_is_current(const struct core *core, uint64_t session,
                            const struct core_commit *commit);
void core_commit_free(struct core_commit *commit); /* may be slow: on any thread */

/* After each record: takes what is slow to free, if there is any, which core_garbage_free does on
 * any thread. What nobody takes is bounded, and freed in later records and with the core. */
bool core_take_garbage(struct core *core, struct core_garbage *garbage);
void core_garbage_free(struct core_garbage *garbage);

/* Everything that decides what a record does, as bytes; the caller frees. -ENOMEM */
int core_encode(const struct core *core, uint8_t **bytes, size_t *size);
/* How many bytes that are; no event is being added. Costs the stores. */
uint64_t core_count_encoded(const struct core *core);
/* Most of what that takes: keys and values of all layouts. */
uint64_t core_count_entry_bytes(const struct core *core);
/* The same state from such bytes, which may be damaged: whatever core_apply cannot have led to is
 * refused, and `failure` says what. It encodes to the same bytes and goes on as the one that was
 * encoded; its queue of effects is empty, and who lacks memory or a share sleeps from the next
 * record on, so apply a RECORD_TIME before core_next_moment is asked. -EINVAL; -EPROTONOSUPPORT: a
 * version that is not known; -ENOMEM */
int core_decode(const void *bytes, size_t size, struct core **core, struct failure *failure);
/* What holds between any two records. -EINVAL: it does not, and why; -ENOMEM */
int core_check(const struct core *core, struct failure *failure);
const char *core_bound_name(enum core_bound bound);

/* ---- views (never change anything) ------------------------------------------------------- */

const struct core_store *core_find_store(const struct core *core, uint64_t id);
const struct core_store *core_find_store_name(const struct core *core, const char *name);
const struct core_store *core_find_uuid(const struct core *core, const uint8_t uuid[16]);
const struct core_session *core_find_session(const struct core *core, uint64_t id);
const struct core_session *core_find_token(const struct core *core, const uint8_t token[16]);
/* The store whose drain is that of this token; NULL: none. And is the mount's? */
const struct core_store *core_find_drained(const struct core *core, const uint8_t token[16]);
bool core_is_drainer(const struct core *core, const uint8_t token[16]);
/* Somebody drains the mount, and has not come to the end. */
bool core_has_drainer(const struct core *core);
enum core_health core_get_health(const struct core *core);
/* Of RW or RW_DATA; or NULL */
const struct core_session *core_get_writer(const struct core *core, uint64_t store);
/* Was this process handed a writable descriptor of some store's memory? */
bool core_is_writer(const struct core *core, struct core_process process);
/* Of this store. */
bool core_is_writer_of(const struct core_store *store, struct core_process process);
const struct core_file *core_find_file(const struct core *core, uint64_t id);
const struct core_waiter *core_find_waiter(const struct core *core, uint64_t id);
/* It waits, or only looks around: to others it is the same. */
bool core_waiter_counts(const struct core_waiter *waiter);
const struct core_event *core_find_event(const struct core *core,
                                         uint64_t seq); /* NULL: overwritten or not yet */
/* What a looker sees: the writer's working copy during RW, else the committed layout; never NULL.
 */
const struct layout *core_get_layout(const struct core *core, const struct core_store *store);
/* The oldest event that is remembered; next_event: there is none. */
uint64_t core_first_event(const struct core *core);
/* The event whose line has this byte; NULL: it is not remembered, or not there yet. */
const struct core_event *core_find_event_at(const struct core *core, uint64_t offset);
/* Where the oldest line begins that is remembered. */
uint64_t core_first_offset(const struct core *core);
/* The store in whose visible layout an allocation or entry with this serial is. */
const struct layout_allocation *core_find_allocation(const struct core *core, uint64_t serial,
                                                     const struct core_store **store);
const struct layout_entry *core_find_entry(const struct core *core, uint64_t serial,
                                           const struct core_store **store);
/* Whoever has found one by its name, and will ask for it by its serial, says where it is. */
void core_hint_serial(const struct core *core, uint64_t serial, uint64_t store);
const struct region *core_find_region(const struct core *core, uint64_t id);
/* The allocation that it lies on; NULL: on none. */
const struct layout_allocation *core_find_region_allocation(const struct core *core,
                                                            const struct region *region);
/* The region that this session is for; NULL: for none. */
const struct region *core_find_session_region(const struct core *core,
                                              const struct core_session *session);
/* Is the store of this name behind a fence, or would one be? */
bool core_is_fenced(const struct core *core, const char *name);
/* It has no session, and nobody waits to write it. */
bool core_is_idle(const struct core *core, const struct core_store *store);
/* Is there a non-exclusive session of `store` that does not end already? */
bool core_has_joinable(const struct core *core, uint64_t store);
/* The non-exclusive session of `store` of which processes[0], or else one of its ancestors
 * processes[1..], is a member (owner, or opener of a live file). NULL: none. */
const struct core_session *core_find_membership(const struct core *core, uint64_t store,
                                                const struct core_process *processes, size_t count);
/* Who this user is where a bound is about `store` (NULL: no store). */
enum share_rank core_get_rank(const struct core *core, const struct core_store *store,
                              uint32_t uid);
/* The store's, and the one of this name (NULL: there is none). */
const struct core_pool *core_find_pool(const struct core *core, const struct core_store *store);
const struct core_pool *core_find_pool_name(const struct core *core, const char *name);
/* What it has not used of its min: no other pool's. */
uint64_t core_get_unfilled(const struct core_pool *pool);
bool core_is_pool_name(const char *name);
const char *core_pool_class_name(enum pool_class class);
/* Could the store have so much more, of what is free? -EDQUOT: its pool does not allow it;
 * -ENOMEM */
int core_check_room(const struct core *core, const struct core_store *store, uint64_t bytes,
                    uint64_t free_bytes);

/* The same for the store's coming to the device, besides all that are on their way there;
 * `free_bytes` are what would be left. */
int core_check_promotion(const struct core *core, const struct core_store *store,
                         uint64_t free_bytes);
/* True if the memory of this allocation is also part of the fixed layout. */
bool core_is_fixed_memory(const struct core *core, const struct core_store *store, uint64_t memory);
/* Bytes held by freed allocations that only the committed layout still holds (RW): what GIVE_UP
 * frees. */
uint64_t core_count_given_up_bytes(const struct core *core, const struct core_store *store);
/* Of this store somebody waits until it is on the device, and nothing brings it there yet. Not
 * while it is drained: nobody would be let in. */
bool core_wants_promotion(const struct core *core, const struct core_store *store);
/* It is suspect, nobody has it, and there is a spare on the disk, which is to be its place when all
 * of it was read: a spare in the host's memory has been by the end of a record. */
bool core_wants_heal(const struct core *core, const struct core_store *store);
/* That spare is being read. */
bool core_is_healing(const struct core_store *store);
/* The first who waits until it is healed, and has waited since its id; 0: nobody does. */
uint64_t core_get_heal_turn(const struct core *core, const struct core_store *store);
/* The first who waits until it is on the device, and has waited since its id; 0: nobody does. */
uint64_t core_get_place_turn(const struct core *core, const struct core_store *store);
/* Does this waiter, if it lacks memory, still hold off who came later? */
bool core_is_patient(const struct core *core, const struct core_waiter *waiter, uint64_t now_ms);
/* Somebody waits until it is on the device. */
bool core_is_awaited(const struct core *core, const struct core_store *store);
/* Somebody has its lock, or was handed descriptors: it is not demoted. */
bool core_is_held(const struct core_store *store);
bool core_has_copy(const struct core_store *store, enum core_place tier);
/* All memory that layouts and copies have, in the order of its numbers. */
struct core_memory_view {
    uint64_t id, store, aligned_bytes;
    enum core_place tier;
};
size_t core_count_memories(const struct core *core);
struct core_memory_view core_get_memory(const struct core *core, size_t index);
/* The fastest of its spares that is slower than `tier`; NONE: there is none. */
enum core_place core_get_spare_below(const struct core_store *store, enum core_place tier);
/* Where this memory is. */
enum core_place core_get_tier(const struct core *core, uint64_t memory);
const char *core_place_name(enum core_place place);
/* The earliest later time at which RECORD_TIME would do something; UINT64_MAX: none. */
uint64_t core_next_moment(struct core *core, uint64_t now_ms);

#endif
