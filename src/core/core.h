/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core - the whole state of one mount, and the one function that changes it
 *
 * Pure: no I/O, no clock, no randomness, no descriptors. A record carries every input that the
 * state does not determine: time, process, uid, random bytes, memory handles. The same records
 * applied to a fresh core give the same state, byte by byte (core_encode). A record that fails
 * changes nothing, counters of ids included, and leaves no effects. One exception: a COMMIT that
 * layout_check refuses sets the store's last_error, so this failed record has to be replayed
 * (outcome.noted). No other failed record may be replayed: with more memory it might succeed.
 *
 * Work outside the core that follows from a change (answer a waiter, free memory, wake a poll) is
 * appended to a queue of effects, which the service empties after each record (core_next_effect).
 * Only src/service changes a core, through core_apply; the front ends read it. Single-threaded.
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
#include "tensor/made_file.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Version of an encoded state. Any change of the bytes needs a new one; the frozen states in
 * tests/data show when. */
#define CORE_STATE_VERSION   14u
#define CORE_STATE_OLDEST    11u /* oldest version that core_decode reads */
#define CORE_STATE_TIMES     12u /* first version with times of files */
#define CORE_STATE_IMMUTABLE 13u /* first version with immutable layouts */
#define CORE_STATE_CONTENTS  14u /* first version with ids of contents */

/* Bounds. A request beyond one fails: ENFILE for files, ENOMEM for gathered bytes, ENOSPC for the
 * others. The bounds of `enum core_bound` are shared between the users (base/share.h), the sessions
 * and waiters of a store among them (fsm/lock.h): a request beyond the user's share fails with
 * EDQUOT. Stores, events, writers and contents have no shares. */
#define CORE_MAX_STORES  4096u
#define CORE_MAX_FILES   65536u /* open files, and waiters for an open */
#define CORE_MAX_TICKETS 4096u
/* bytes of documents and values that clients are still writing */
#define CORE_MAX_GATHERED_BYTES (2ull << 30)
#define CORE_MAX_EVENTS         1024u /* ring: a new event overwrites the oldest */
#define CORE_MAX_WRITERS        1024u /* processes that can write a store's memory */
#define CORE_MAX_REGIONS        4096u
#define CORE_MAX_CONTENTS       (1u << 30) /* numbers of contents ids in the life of a mount */
#define CORE_MAX_REGION_BYTES   (1u << 20) /* bytes of the regions' names and keys */

/* per record, so that each ends soon; RECORD_TIME grants the others */
#define CORE_MAX_GRANTS    256u
#define CORE_KEPT_PLACE_MS 1000u
#define CORE_TICKET_MS     30000u
#define CORE_REASON_BYTES  128u
#define CORE_BY_DAEMON     UINT32_MAX /* uid of a revocation by the daemon itself */

/* Kinds of a store's files; fs/node.h maps its own, finer kinds to these. */
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

/* The bound that a record met (struct outcome). The service has those of bytes in flight,
 * connections, … (bounds.h). */
enum core_bound {
    CORE_BOUND_NONE = 0,
    CORE_BOUND_FILES,
    CORE_BOUND_TICKETS,
    CORE_BOUND_GATHERED,
    CORE_BOUND_REGIONS,
    CORE_BOUND_REGION_BYTES,
    CORE_BOUND_SESSIONS, /* these two: of each store */
    CORE_BOUND_WAITERS,
    CORE_BOUND_MEMORY, /* the daemon's own: met by the service before the record is applied */
};
/* bounds 1 to CORE_MOUNT_BOUNDS - 1 count for the whole mount */
#define CORE_MOUNT_BOUNDS CORE_BOUND_SESSIONS

enum core_health {
    CORE_HEALTH_OK,
    CORE_HEALTH_SUSPECT, /* the bytes of at least one store may be damaged */
    CORE_HEALTH_LOST,    /* the device is gone, for good */
};

#define CORE_OPEN_READ     (1u << 0)
#define CORE_OPEN_WRITE    (1u << 1)
#define CORE_OPEN_NONBLOCK (1u << 2)
/* waits only for a RELEASE in progress; EAGAIN at its deadline */
#define CORE_OPEN_GRACE   (1u << 3)
#define CORE_OPEN_AGAIN   (1u << 4) /* ACQUIRE: its caller asks again soon after the deadline */
#define CORE_OPEN_LEAVING (1u << 5) /* the session of this process is already ending */
#define CORE_OPEN_OWNED   (1u << 6) /* ACQUIRE: the session ends with its owner's process */
#define CORE_OPEN_FRESH   (1u << 7) /* ACQUIRE: a grant of RW drops the committed layout */
/* ACQUIRE: RW in any tier, because the writer replaces every allocation */
#define CORE_OPEN_REPLACE (1u << 8)
#define CORE_OPEN_ANY     (1u << 9) /* ACQUIRE: RO in any tier */
/* FILE_OPEN: by a connection; no client has a descriptor of it */
#define CORE_OPEN_CONNECTION (1u << 10)
#define CORE_OPEN_BY_PROCESS (1u << 11) /* ACQUIRE: the session is not exclusive */

struct core_store {
    uint64_t id; /* serial */
    uint8_t uuid[16];
    char name[256];
    uint32_t uid, gid, mode; /* mode: permission bits */
    uint64_t created_ms;     /* wall clock, from the record */
    uint64_t changed_ms;
    uint64_t generation;
    uint64_t version; /* number of changes of the file `state`, for poll */
    struct lock lock;
    /* next time at which the clock alone changes the lock; valid while lock.changed is false */
    uint64_t moment_ms;
    bool is_touched;                /* true if the index's `touched` lists this store */
    struct share sessions, waiters; /* the lock's sessions and waiters, by user */
    bool has_sleepers;              /* true if waiters may sleep for other reasons than memory */
    struct layout *fixed; /* the committed or (lock.sealed) the sealed layout; NULL if neither */
    /* the writer's layout; NULL if there is no writer or it has changed nothing */
    struct layout *working;
    struct blob *encoding;       /* canonical bytes of `fixed` */
    struct made_file_facts made; /* the file of its tensors */
    uint64_t pieces_bytes;       /* size of the text of its pieces (meta/pieces.h) */
    /* processes with writable descriptors of its memory that may still run, sorted by pid and
     * start */
    struct core_process *writers;
    size_t writer_count;
    bool unseen_writer; /* true if a process that the daemon cannot see has such a descriptor */
    uint8_t hash[16];
    uint8_t group[16];
    /* number of its contents id, never used again; 0: the id is not known */
    uint64_t contents;
    uint8_t contents_id[16]; /* of `fixed` and its bytes (meta/pieces.h); zeros if not known */
    char last_error[256];
    /* memories of its layouts that may be damaged; no new readers while above 0 */
    uint64_t suspect;
    uint64_t grants_rw, grants_ro, commits, aborts, exports; /* counters for metrics */
    struct core_history history;                             /* of its writers */
    struct core_drain drain;                                 /* lock.closed equals drain.is_on */
    struct core_use use;
    struct core_places places;
};

struct core_session {
    uint64_t id; /* the number that users see: "RW 7" */
    uint64_t store;
    enum lock_mode mode;
    /* by ACQUIRE without BY_PROCESS: only its handle, JOIN and the token reach it */
    bool exclusive;
    bool implicit; /* the open of an allocation took it */
    bool touched;  /* true if committed bytes may have changed: no rollback */
    bool owned;    /* ends with its owner's process, even if other processes have its files open */
    bool ending;   /* closed or revoked: starts nothing new, and SESSION_END follows */
    bool holds;    /* holds the store (pool.h): the store moves to no slower tier meanwhile */
    bool any;      /* a reader that was admitted in any tier */
    uint64_t opener; /* the file that took an implicit or exclusive session; else 0 */
    uint8_t token[16];
    struct core_process owner;
    uint32_t uid;
    char comm[CORE_COMM_BYTES];
    uint64_t since_ms;            /* wall clock */
    uint64_t files;               /* number of its open files */
    uint64_t tickets;             /* number of its unused tickets */
    struct core_file *first_file; /* list of its open files, in no order */
    uint64_t reserved_bytes;      /* reserved for this writer and not yet used; 0 for readers */
    uint64_t due_bytes;           /* still to be reserved, from memory that its store gives back */
    uint64_t making_bytes; /* charged for memory that is being made and is not in its layout yet */
    uint64_t drawn_bytes;  /* part of making_bytes that was taken from its reservation */
};

struct core_file {
    uint64_t id; /* fh */
    enum core_kind kind;
    uint64_t store;
    /* of the allocation, entry or region; of a region's ctl: that region; pseudo: any number of the
     * front end */
    uint64_t serial;
    uint64_t session; /* 0 if none; ESTALE if core_find_session no longer finds it */
    uint32_t flags;   /* CORE_OPEN_* */
    uint32_t uid;
    struct core_process opener;
    uint64_t gathered_bytes; /* bytes written to it that are not yet in a layout */
    bool holds;              /* true if it has a reference to its region */
    struct core_file *next_in_session, **link_in_session; /* NULL if it is in no live session */
};

/* Objects that a grant needs, allocated when the waiter is added: no grant fails with ENOMEM. */
struct core_grant {
    struct core_session *session;
    struct core_file *file; /* NULL if the request came through an open file (a ctl) */
    struct layout *empty;   /* for a writer that replaces an immutable layout */
};

struct core_waiter {
    uint64_t id;
    uint64_t store;
    uint64_t file; /* the ctl of an ACQUIRE; 0: an open, which the other fields describe */
    enum core_kind kind;
    uint64_t serial;
    uint32_t flags;
    enum lock_wish wish;
    struct core_process owner;
    uint32_t uid;
    char comm[CORE_COMM_BYTES];
    uint8_t token[16];
    uint64_t since_wall_ms;
    uint64_t reserve_bytes; /* bytes to reserve with a grant of RW; 0 if none */
    /* its place is kept, and there is no request to answer; with CORE_OPEN_AGAIN it still counts as
     * waiting */
    bool away;
    struct core_grant grant;
};

struct core_ticket {
    uint64_t id;
    uint8_t secret[16];
    uint64_t session;
    uint32_t uid; /* user that may redeem it */
    /* user of the file that it was made for: it counts in this user's share */
    uint32_t holder;
    uint64_t first, count; /* ranks */
    uint64_t serial;       /* of the one allocation that it is for; 0: the range */
    /* the region that it gives access to, without a session; 0: it is for memory of a store */
    uint64_t region;
    bool writable;
    uint64_t expires_ms;
};

/*
 * IMMUTABLE LAYOUTS. A commit may say that its layout never changes again (CORE_COMMIT_IMMUTABLE).
 * The writer of such a store begins with an empty working copy, and thus with new memory; the
 * committed layout stays as it is until this writer commits. So bytes behind the serial of a
 * committed allocation of an immutable layout are always the same.
 *
 * RESERVATIONS. A waiter that asks for a reservation gets lock and bytes together or neither: it
 * sleeps in its lock while the device (record.free_bytes, and the committed memory of its own
 * store, which a writer may replace) cannot give the bytes. Among all stores' waiters of this kind,
 * one that lacks only memory goes before newer ones, so that small requests do not starve it, but
 * only while it is patient (core_is_patient), so that it does not block them for ever. Requests
 * without a reservation pass it. A waiter for a promotion stands in the same queue, for the bytes
 * of its store; a promotion without a waiter comes after all of them. At the grant, as many bytes
 * as are free are reserved, and the others are due: the writer's freed memory pays them. The sum
 * over the sessions is reserved_bytes: the service keeps that much of the device's account for
 * them.
 *
 * SEALED LAYOUTS. A writer seals its layout: the shape is final, the bytes may still change. Its
 * session becomes RW_DATA, and the end of such a session, for any reason, leaves everything as it
 * is. RW_DATA is granted only once no other process can write: every process with a writable
 * descriptor (RECORD_LEND) has exited (RECORD_EXIT). Until then a waiter for RW_DATA sleeps in
 * turn: newer waiters queue behind it while it is patient. A grant of RW drops the sealed layout.
 *
 * RESUMING. Operations in progress end with their worker, and memory that they were making is lost.
 * The next worker applies RECORD_RESUME to the state that it found; after that only moves are in
 * progress, and their bytes are copied again. Memory that was being made for a session is dropped
 * from its account: bytes drawn from a reservation are reserved again as far as free_bytes go, and
 * due beyond that. Sessions that were `ending` are over. Every waiter is away and its place is
 * kept, because its client asks again: until CORE_RESUME_END no such place expires, and no lock is
 * granted while one of its waiters has not come back, because that waiter may be next.
 */

/* Result of a COMMIT's slow part, computed before the record (core_commit_new). */
struct core_commit {
    struct layout *layout; /* the layout to commit; this reference keeps it unchanged */
    bool check;            /* for CORE_COMMIT_CHECK: encodes nothing, and accepts spools */
    bool refused;          /* true if the layout cannot be committed; `message` gives the reason */
    int error;
    char message[256];
    struct blob *encoding; /* NULL after an error */
    struct made_file_facts made;
    uint64_t pieces_bytes;
    uint8_t hash[16];
};

struct outcome {
    uint64_t id, file, session, waiter, serial, slot, rank, generation, count, ticket_first;
    enum lock_mode mode;
    bool rolled_back;
    enum core_bound bound; /* the bound that was met, by the user's share (-EDQUOT) or as a whole */
    uint32_t bound_uid;    /* user that met it */
    uint64_t pool;         /* with -EDQUOT: the pool with too small a budget; 0 if none */
    bool noted; /* a failed COMMIT has set last_error, so the record has to be replayed */
    struct core_ticket ticket;
};

enum effect_type {
    EFFECT_GRANTED,      /* waiter, session, file (the new one, or ACQUIRE's) */
    EFFECT_REFUSED,      /* waiter, error (negative) */
    EFFECT_FREE_MEMORY,  /* memory */
    EFFECT_STATE,        /* store: its file `state` changed */
    EFFECT_EVENT,        /* a line was added to events */
    EFFECT_SESSION_OVER, /* session, store */
    EFFECT_PLACE,        /* store: its file `residency` changed */
    EFFECT_MOVE_OVER, /* store, move: the move ends without MOVE_END; drop the memory made for it */
    EFFECT_REGION_OVER, /* memory: its descriptor; file: its ctl, to be closed; each may be 0 */
};

struct effect {
    enum effect_type type;
    uint64_t waiter, session, file, memory, store, move;
    /* SESSION_OVER: the session's owner if it was `owned`; else pid 0 */
    struct core_process owner;
    int error;
};

/* Layouts and encodings that have left the state and are slow to free. */
#define CORE_MAX_GARBAGE 16u

struct core_garbage {
    struct layout *layouts[CORE_MAX_GARBAGE];
    struct blob *blobs[CORE_MAX_GARBAGE];
    size_t layout_count, blob_count;
};

/* Limits below the bounds above. 0: the bound itself */
struct core_limits {
    uint64_t files, tickets, gathered_bytes;
    uint64_t sessions, waiters; /* per store */
    uint64_t events;            /* remembered */
    uint64_t regions, region_bytes;
};

struct core_options {
    uint64_t patience_ms;
    uint64_t granularity_bytes;
    struct core_limits limits;
    uint32_t admin_uid; /* the user that mounted, privileged like root */
};

/* Fence of a device checkpoint: no session of the stores with these names is granted. */
struct core_fence {
    bool is_up;
    /* "" if none. The second may name no store; while the fence is up none of that name is
     * created */
    char names[2][256];
    uint8_t token[16]; /* token of this fence, or of the last one */
    /* CORE_FENCE_ABORT or _COMPLETE: how the last fence ended; 0 if none has */
    uint32_t resolved_by;
};

/* The part of a store that `state` and `residency` show, as it was before the current record. */
struct core_shown {
    uint64_t store;
    enum lock_state state;
    uint64_t generation;
    uint64_t place_version; /* of core_places.version, for `residency` */
};

/* The store in which an allocation or an entry was last found. */
struct core_hint {
    uint64_t serial, store;
};

/* Finds stores by name, and lists the stores that a record has to look at, so that it skips all
 * others. Everything here is derived from the stores. */
struct core_index {
    struct core_store **names; /* sorted by name */
    size_t name_count, name_room;
    struct idvec waited; /* stores with waiters */
    struct idvec lent;   /* stores with visible writers */
    struct core_shown *touched;
    size_t touched_count, touched_room;
    struct core_hint *hints;
};

struct core {
    struct core_options options;
    uint64_t next_id;      /* of stores, allocations, entries (node serials) and files */
    uint64_t next_session; /* small numbers for people */
    uint64_t next_waiter, next_ticket, next_event;
    uint64_t next_contents;  /* core_store.contents */
    uint64_t event_bytes;    /* bytes of the lines of all events since the first */
    uint64_t measured_event; /* the first event that event_bytes does not count yet */
    /* bytes of the texts of the events before it that are still in the ring */
    uint64_t event_text_bytes;
    uint64_t comm_bytes;     /* bytes of the program names of all sessions and waiters */
    uint64_t reserved_bytes; /* sum over the sessions */
    size_t reserving;        /* number of waiters with reserve_bytes */
    size_t displaced;        /* number of committed stores that are not on the device */
    bool draining;
    /* zero if the mount serves, or its drain can no longer be undone by a token */
    struct core_drainer drainer;
    bool lost;        /* true if the device is gone */
    uint64_t resumes; /* number of workers that were replaced */
    bool is_resuming; /* true while the last worker's waiters may come back */
    struct core_fence fence;
    uint64_t suspect;                      /* sum over the stores */
    char health_reason[CORE_REASON_BYTES]; /* "" if the device is healthy */
    struct idvec stores, sessions, waiters, files, tickets, memories;
    struct core_index index;
    struct core_pools pools;
    struct regions regions;
    struct share shares[CORE_MOUNT_BOUNDS]; /* by enum core_bound; stores have their own two */
    struct core_event *events;              /* ring of options.limits.events by seq */
    struct layout *empty;                   /* shown for a store without a layout */
    struct effect *effects;
    size_t effect_first, effect_count, effect_room;
    struct core_garbage garbage;
    uint64_t ticket_moment_ms; /* when the next ticket expires; valid if knows_ticket_moment */
    bool knows_ticket_moment;
};

int core_new(const struct core_options *options, struct core **core);
void core_free(struct core *core);

/* Applies one record. 0 or a negative errno (state unchanged, no effects). */
int core_apply(struct core *core, const struct record *record, struct outcome *outcome);
bool core_next_effect(struct core *core, struct effect *effect);
/* Returns the layout that this record would copy before it changes it; NULL if none. */
const struct layout *core_find_copied(const struct core *core, const struct record *record);
/* Returns the effect at index `at` without removing it; NULL if the queue is shorter. */
const struct effect *core_peek_effect(const struct core *core, size_t at);

/* Computes a commit's check, encoding and hash outside the core's thread. Call new and free on that
 * thread, prepare on any one thread in between, and pass the result with the record. Other records
 * may be applied meanwhile: the result is used only if it is still current. NULL: no memory, no
 * such session, or no layout. */
bool core_commit_is_slow(const struct core *core, uint64_t session);
struct core_commit *core_commit_new(const struct core *core, uint64_t session, uint32_t flags);
void core_commit_prepare(struct core_commit *commit);
bool core_commit_is_current(const struct core *core, uint64_t session,
                            const struct core_commit *commit);
void core_commit_free(struct core_commit *commit); /* any thread; may be slow */

/* Call after each record: moves objects that are slow to free into `garbage`, for core_garbage_free
 * on any thread. Returns false if there are none. Garbage that is not taken is bounded, and is
 * freed by later records and with the core. */
bool core_take_garbage(struct core *core, struct core_garbage *garbage);
void core_garbage_free(struct core_garbage *garbage);

/* Encodes everything that decides how later records are applied; the caller frees. -ENOMEM */
int core_encode(const struct core *core, uint8_t **bytes, size_t *size);
/* Returns the size of that encoding in time linear in the stores. Do not call while a record is
 * being applied. */
uint64_t core_count_encoded(const struct core *core);
/* Returns the largest part of it: the bytes of keys and values of all layouts. */
uint64_t core_count_entry_bytes(const struct core *core);
/* Decodes such bytes, which may be damaged: a state to which core_apply cannot have led is refused,
 * and `failure` gives the reason. The result encodes to the same bytes and behaves like the
 * original. Its queue of effects is empty, and waiters without memory or share fall asleep only
 * with the next record, so apply a RECORD_TIME before core_next_moment. -EINVAL; -EPROTONOSUPPORT:
 * unknown version; -ENOMEM */
int core_decode(const void *bytes, size_t size, struct core **core, struct failure *failure);
/* Checks the invariants that hold between any two records. -EINVAL: one is violated, and `failure`
 * names it; -ENOMEM */
int core_check(const struct core *core, struct failure *failure);
const char *core_bound_name(enum core_bound bound);

/* ---- views (never change anything) ------------------------------------------------------- */

const struct core_store *core_find_store(const struct core *core, uint64_t id);
const struct core_store *core_find_store_name(const struct core *core, const char *name);
const struct core_store *core_find_uuid(const struct core *core, const uint8_t uuid[16]);
const struct core_session *core_find_session(const struct core *core, uint64_t id);
const struct core_session *core_find_token(const struct core *core, const uint8_t token[16]);
/* Returns the store that is drained under this token; NULL if none. */
const struct core_store *core_find_drained(const struct core *core, const uint8_t token[16]);
/* True if the mount is drained under this token. */
bool core_is_drainer(const struct core *core, const uint8_t token[16]);
/* True if the mount is draining and its drainer has not finished. */
bool core_has_drainer(const struct core *core);
enum core_health core_get_health(const struct core *core);
/* Returns the session with RW or RW_DATA; NULL if none. */
const struct core_session *core_get_writer(const struct core *core, uint64_t store);
/* True for one and the same process; false if one is invisible (pid 0). */
bool core_same_process(struct core_process a, struct core_process b);
/* True if this process got a writable descriptor of any store's memory. */
bool core_is_writer(const struct core *core, struct core_process process);
/* The same for this store's memory. */
bool core_is_writer_of(const struct core_store *store, struct core_process process);
const struct core_file *core_find_file(const struct core *core, uint64_t id);
const struct core_waiter *core_find_waiter(const struct core *core, uint64_t id);
/* True if it waits now, or will ask again soon (CORE_OPEN_AGAIN): other waiters treat both
 * alike. */
bool core_waiter_counts(const struct core_waiter *waiter);
const struct core_event *core_find_event(const struct core *core,
                                         uint64_t seq); /* NULL if overwritten or not yet there */
/* Returns the layout to show: the writer's working copy during RW, else the committed layout, else
 * an empty one. */
const struct layout *core_get_layout(const struct core *core, const struct core_store *store);
/* Returns the number of the oldest event in the ring; next_event if the ring is empty. */
uint64_t core_first_event(const struct core *core);
/* Returns the event with this byte in its line; NULL if it was overwritten or is not there yet. */
const struct core_event *core_find_event_at(const struct core *core, uint64_t offset);
/* Returns the offset at which the oldest line in the ring begins. */
uint64_t core_first_offset(const struct core *core);
/* Find an allocation or entry in the visible layouts of all stores, and its store. */
const struct layout_allocation *core_find_allocation(const struct core *core, uint64_t serial,
                                                     const struct core_store **store);
const struct layout_entry *core_find_entry(const struct core *core, uint64_t serial,
                                           const struct core_store **store);
/* Remembers the store of this serial: called after a lookup by name, so that the later lookup by
 * serial is quick. */
void core_hint_serial(const struct core *core, uint64_t serial, uint64_t store);
const struct region *core_find_region(const struct core *core, uint64_t id);
/* Returns the allocation that the region lies on; NULL if none. */
const struct layout_allocation *core_find_region_allocation(const struct core *core,
                                                            const struct region *region);
/* Returns the region that this session belongs to; NULL if none. */
const struct region *core_find_session_region(const struct core *core,
                                              const struct core_session *session);
/* Returns true if the bytes of the store's committed layout cannot change now: no session writes
 * it, and its memory is sound. */
bool core_is_settled(const struct core_store *store);
/* Finds the store with this number of a contents id, which is settled; NULL: none has it. */
const struct core_store *core_find_contents(const struct core *core, uint64_t contents);
/* True if a fence covers this name, whether or not there is a store of that name. */
bool core_is_fenced(const struct core *core, const char *name);
/* True if the store has no session and no waiting writer. */
bool core_is_idle(const struct core *core, const struct core_store *store);
/* True if `store` has a session that is neither exclusive nor ending. */
bool core_has_joinable(const struct core *core, uint64_t store);
/* Returns the non-exclusive session of `store` of which processes[0], or else one of its ancestors
 * processes[1..], is a member (its owner, or the opener of a live file). NULL if none. */
const struct core_session *core_find_membership(const struct core *core, uint64_t store,
                                                const struct core_process *processes, size_t count);
/* Returns this user's rank for the bounds of `store` (NULL: no store). */
enum share_rank core_get_rank(const struct core *core, const struct core_store *store,
                              uint32_t uid);
/* Find the pool of a store, or the pool with this name (NULL if none). */
const struct core_pool *core_find_pool(const struct core *core, const struct core_store *store);
const struct core_pool *core_find_pool_name(const struct core *core, const char *name);
/* Returns the unused part of the pool's min_bytes, which no other pool may use. */
uint64_t core_get_unfilled(const struct core_pool *pool);
bool core_is_pool_name(const char *name);
const char *core_pool_class_name(enum pool_class class);
/* Checks if the store can get `bytes` more out of free_bytes. -EDQUOT: the pools' budgets forbid
 * it; -ENOMEM */
int core_check_room(const struct core *core, const struct core_store *store, uint64_t bytes,
                    uint64_t free_bytes);

/* The same for a promotion of the store, in addition to all promotions in progress; `free_bytes` is
 * the number of bytes free after it. */
int core_check_promotion(const struct core *core, const struct core_store *store,
                         uint64_t free_bytes);
/* True if this memory is also part of the committed layout. */
bool core_is_fixed_memory(const struct core *core, const struct core_store *store, uint64_t memory);
/* Returns the bytes that GIVE_UP would free: memory of the committed layout that the writer's copy
 * no longer has. */
uint64_t core_count_given_up_bytes(const struct core *core, const struct core_store *store);
/* True if a waiter needs this store on the device and no move is bringing it there. False while the
 * store is drained, because no waiter would be admitted. */
bool core_wants_promotion(const struct core *core, const struct core_store *store);
/* True if the store is suspect and unused, and has a spare on disk that may become its place once
 * it was read in full. A spare in host memory takes over without that, at the end of the record. */
bool core_wants_heal(const struct core *core, const struct core_store *store);
/* True while that spare is being read. */
bool core_is_healing(const struct core_store *store);
/* Returns the id of the first waiter that needs the store healed; 0 if none. */
uint64_t core_get_heal_turn(const struct core *core, const struct core_store *store);
/* Returns the id of the first waiter that needs the store on the device; 0 if none. */
uint64_t core_get_place_turn(const struct core *core, const struct core_store *store);
/* True if newer waiters still queue behind this one when it sleeps for memory. */
bool core_is_patient(const struct core *core, const struct core_waiter *waiter, uint64_t now_ms);
/* True if a waiter needs the store on the device. */
bool core_is_awaited(const struct core *core, const struct core_store *store);
/* True if a session holds the store by its lock or by descriptors: then it is not demoted. */
bool core_is_held(const struct core_store *store);
bool core_has_copy(const struct core_store *store, enum core_place tier);
/* Every memory of layouts and copies, sorted by id. */
struct core_memory_view {
    uint64_t id, store, aligned_bytes;
    enum core_place tier;
};
size_t core_count_memories(const struct core *core);
struct core_memory_view core_get_memory(const struct core *core, size_t index);
/* Returns the tier of its fastest spare below `tier`; NONE if there is none. */
enum core_place core_get_spare_below(const struct core_store *store, enum core_place tier);
/* Returns the tier of this memory; NONE if it is unknown. */
enum core_place core_get_tier(const struct core *core, uint64_t memory);
const char *core_place_name(enum core_place place);
/* Returns the earliest later time at which RECORD_TIME would change the state; UINT64_MAX if
 * none. */
uint64_t core_next_moment(struct core *core, uint64_t now_ms);

#endif
