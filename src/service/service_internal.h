/* SPDX-License-Identifier: Apache-2.0 */
/*
 * service_internal - what the parts of the service share; for the files of src/service alone
 *
 * Three kinds of runtime objects stand beside the core's state, none of them part of it:
 *   piece      the descriptors behind a memory handle, by the handle
 *   in_flight  what a session has under way, by the session's id; made when first needed
 *   parked     a waiter's request, which can be interrupted, as a waiting ALLOC can
 */
#ifndef GMSFS_SERVICE_SERVICE_INTERNAL_H
#define GMSFS_SERVICE_SERVICE_INTERNAL_H

#include "base/container.h"
#include "base/list.h"
#include "service/backoff.h"
#include "service/bounds.h"
#include "service/host.h"
#include "service/steps.h"

struct spool_op;
struct ending;
struct alloc_op;
struct free_job;
struct watch;
struct bound_note;
struct commit_job;
struct brief_wait;
struct move_op;

/* A job of the service: what it has done is an item of the queue of the step's end. */
struct task {
    struct job job; /* first */
    struct service *service;
    void (*end)(struct service *s, struct task *task);
    struct task *next; /* of s->done */
};

struct piece_holder { /* the user whose processes share a descriptor of the piece */
    uint32_t uid;
    bool any;
};

struct piece {
    uint64_t id; /* the memory handle */
    struct vmm_piece memory;
    uint64_t store; /* which it is for: a reservation that is due gets what it gives back */
    uint64_t reserved_bytes; /* charged to the account of its tier for it */
    uint64_t moving_bytes;   /* made by a move: so many come from its source */
    uint64_t spooled_bytes;  /* charged to the share of `uid` of the spools: whoever began it */
    enum vmm_tier tier;
    uint32_t uid;
    struct piece_holder holders[2]; /* of the read-only descriptor, of the writable one */
    uint64_t new_serial; /* a spool whose first write is under way, for this allocation; else 0 */
    unsigned running;    /* jobs that use the descriptors */
    bool exclusive;      /* one of them changes the size: further spool operations queue */
    bool doomed;         /* to be freed when the last job is done */
    bool counted;        /* as being freed; one of s->freeing, where it is the device's */
    bool moved;          /* sealed in other memory, of which the keeper has not heard yet */
    struct spool_op *queue;    /* waiting for `exclusive`, first come first served */
    struct piece *next_doomed; /* piece_free_doomed's */
    struct piece *next_freeing, **link_freeing;
};

struct in_flight {
    uint64_t id;      /* the session */
    unsigned running; /* transfers and other jobs that must end before the session does */
    bool closing;     /* an ending waits: no new transfers */
    bool is_due;      /* service_run_endings has to look at it */
    bool flushed;     /* the last thing heard of it was a FLUSH: a RELEASE may be under way */
    uint64_t flushed_ms;
    struct ending *endings; /* first come first served */
};

struct parked {  /* a waiter of the core that somebody waits behind */
    uint64_t id; /* the waiter */
    struct service_request *request;
    struct deadline deadline; /* the request's bound */
    bool acquire, grouped;
    struct core_process watched; /* of an ACQUIRE: its use of a watch; pid 0: none */
    bool truncate;               /* O_TRUNC of the open, done at the grant */
    const char *create; /* O_CREAT: the allocation's name, added at the grant; else NULL. Owned */
};

enum ending_type {
    ENDING_COMMIT,
    ENDING_ABORT,
    ENDING_DETACH,
    ENDING_CLOSE, /* its last file is closed, and recorded */
    ENDING_REVOKE,
    ENDING_EXIT, /* the owner's process is gone */
};

struct ending {
    enum ending_type type;
    uint64_t session, file;
    uint32_t flags;
    uint8_t group[16];
    struct core_process by; /* REVOKE: who asked */
    uint32_t by_uid;        /* or CORE_BY_DAEMON */
    bool may_read;          /* COMMIT: the handle may, so it is told the hash */
    enum ending_state state;
    int error;                    /* COMMIT: one of its spools could not end */
    struct commit_job *preparing; /* COMMIT: by this job; NULL: by none now */
    struct core_commit *prepared; /* COMMIT: the record has to compute less; NULL: it has not */
    unsigned tries;
    struct service_request *request; /* NULL: nobody waits */
    struct ending *next;
};

struct service {
    struct core *core;
    struct vmm *vmm;
    struct service_options options;
    struct service_host host;
    struct service_observer *observers;
    struct deadline *deadlines;
    uint64_t next_memory;
    uint64_t changes; /* records that were applied */
    struct idvec pieces, in_flights, parked;
    struct idvec region_objects; /* descriptors of regions, by their number of memory */
    struct idvec watches;        /* processes whose sessions end with them, by pid */
    struct deadline watch_retry; /* set where some process could not be watched */
    struct share shares[SERVICE_BOUND_COUNT];
    struct share slots;           /* of transfers that run */
    struct idvec turns;           /* users whose transfers wait for a slot */
    uint64_t next_user;           /* the user with the next turn */
    struct task *done;            /* their jobs have run: they end with this step */
    struct bound_note *notes;     /* who met which bound of late */
    struct alloc_op *alloc_queue; /* waiting for memory, first come first tried */
    struct free_job *gathered;    /* pieces to be freed that no job has yet; NULL: none */
    struct piece *freeing;        /* pieces that are being given back */
    uint64_t freeing_beside_bytes[VMM_TIER_COUNT]; /* of the other tiers' */
    size_t doomed; /* pieces that no job uses, to be freed at the end of the step */
    struct spool_op *spool_waiting; /* writes that wait for what is being freed */
    struct bulk_op *bulk_queue;
    struct brief_wait *measuring; /* requests that wait for a measurement of the device */
    struct brief_wait *awaiting;  /* and for what is being freed */
    struct move_op *moves;        /* under way */
    bool moves_end;               /* service_end_moves */
    struct backoff backoffs_of_all[BACKOFF_COUNT];
    struct idvec backoffs;           /* of stores */
    uint64_t choices;                /* goes up when a choice of victims may be another one */
    uint64_t lack_store, lack_bytes; /* the device itself had too little for this one; 0: none */
    struct service_numbers numbers;
    bool told_spool_bound;
    /* What the end of the step has to do. */
    bool is_unsettled; /* anything */
    bool sets_timer;   /* a deadline was set or cleared */
    bool has_memory;   /* some is free again: what waits for it is tried */
    bool has_changed;  /* a record may have changed which stores can leave the device */
    bool has_moves;    /* moves that wait for memory are looked at again */
    bool has_endings;  /* a session's last use is over, and an ending waits for that */
    bool has_notes;    /* bounds that were met are told */
    bool ending;       /* service_stop: effects are dropped, and there are no helpers */
};

/* service.c: with neither state nor memory; NULL: no memory */
struct service *service_make(struct vmm *vmm, const struct service_options *options,
                             const struct service_host *host);

/* service_restore: */
/* The descriptor of what a region is on, which becomes the service's. -ENOENT: no region has it */
int service_restore_region(struct service *s, uint64_t memory, int fd);
/* Those that nobody has a descriptor of any more: the others, and all else, are as they were. */
void service_tell_lost_regions(const struct service *s);
void service_restore_watches(struct service *s);
/* What those had ends that have exited meanwhile, or cannot be watched. */
void service_settle_watches(struct service *s);

/* service_free: whoever still waits is answered -ENOTCONN. */
void service_drop_parked(struct service *s);
void service_drop_allocs(struct service *s);
void service_drop_spools(struct service *s);
void service_drop_bulks(struct service *s);
void service_drop_in_flight(struct service *s, struct in_flight *in_flight);

/* ledger.c: writes the journal, changes the state, keeps the account; what follows from it is left
 * to the end of the step (settle.c). outcome: NULL where it does not matter. */
int service_apply_record(struct service *s, struct record *record, struct outcome *outcome);

/* For the end of the step: memory is free again, and what waits for it is tried. */
static inline void service_note_memory(struct service *s)
{
    s->has_memory = s->is_unsettled = true;
}

/* For the end of the step: what moves wait for is made free, where nothing is on its way that would
 * do; moves that can begin do, and moves that never will end. */
static inline void service_note_moves(struct service *s)
{
    s->has_moves = s->is_unsettled = true;
}

/* room.c */
/* What records and objects take, journal and heap together: rather more than they do. */
#define ROOM_STORE_BYTES 8192u
#define ROOM_OPEN_BYTES  2048u /* with its session, its handle and its close */
#define ROOM_COPIES      3u    /* of what is put: the journal's, the state's, its encoding */

/* Before the record is made: room for what it makes grow. -ENOMEM, -EDQUOT: and whose bound it met
 */
int service_take_room_for(struct service *s, const struct record *record, struct outcome *outcome);
/* looks: for what an administrator needs to look, revoke and drain. What the bounds count of the
 * user is with these bytes already. -ENOMEM, -EDQUOT */
int service_take_room(struct service *s, uint32_t uid, bool looks, uint64_t bytes);
/* For all that comes of a document, until it is applied. -ENOMEM, -EDQUOT */
int service_hold_room(struct service *s, uint32_t uid, uint64_t document_bytes);
void service_release_room(struct service *s, uint64_t document_bytes);
/* room_share.c: room for so many bytes more was taken: is that the user's share? -EDQUOT */
int service_check_room_share(const struct service *s, uint32_t uid, uint64_t bytes);
/* What one of each bound takes of it; 0: that is asked for elsewhere. */
extern const unsigned service_room_bytes[];

/* requests.c */
void service_answer(struct service_request *request, int error,
                    const struct service_answer *answer);
/* Has task->job.run run. -ENOMEM: no thread is there and none can be had; the caller decides what
 * becomes of the work. */
int service_submit(struct service *s, enum service_pool pool, struct task *task);
/* For the end of the step: the task ends, as if its job had run. */
void service_end_task(struct service *s, struct task *task);
/* struct service_host: for whom it is what is done now; and from here on, which returns the former.
 */
uint64_t service_works_for(struct service *s);
uint64_t service_work_for(struct service *s, uint64_t whom);
uint64_t service_now(const struct service *s);
/* How long this request may go unanswered; UINT64_MAX: for ever. */
uint64_t service_wait_max_ms(const struct service_request *request);

/* in_flight.c */
struct in_flight *service_get_in_flight(struct service *s,
                                        uint64_t session); /* makes it; NULL: no memory */
/* Something will end it, or may: a commit that is refused, or stays, does not. */
bool service_is_closing(const struct service *s, uint64_t session);
/* It will surely be over when what it has in flight is done, or is over already. */
bool service_is_leaving(const struct service *s, uint64_t session);
/* A transfer begins: -ESTALE when the session is over or ends, -ENOMEM. */
int service_begin_use(struct service *s, uint64_t session);
int service_begin_use_while_closing(struct service *s, uint64_t session);
/* After the last one the session's endings run, at the end of the step. */
void service_end_use(struct service *s, uint64_t session);
/* A spool could not end: a commit that waits for it says why. */
void service_on_seal_failed(struct service *s, uint64_t session, int error);

/* bounds.c */
/* The next bound that was met and is to be told: fills the record. False: there is none. */
bool service_take_note(struct service *s, struct record *record);
void service_free_bounds(struct service *s);
void service_init_bounds(struct service *s);
/* Somebody met the budget of the store's pool. Told now and then, as bounds are. */
void service_note_over_quota(struct service *s, const struct core_store *store, uint32_t uid,
                             struct core_process process);

/* member.c: whose session it is */
struct core_process service_caller_process(const struct service_caller *caller);
/* The session of `store` that this caller belongs to and that does not end just now: NULL if there
 * is none. -EACCES: it is a writer's, and the caller may not write the store. */
int service_find_membership(const struct service *s, uint64_t store,
                            const struct service_caller *caller,
                            const struct core_session **session);
/* The RW session that this actor may change the store through. 0, -EBADF (the file is not open for
 * writing), -ENOLCK, -ESTALE, -EACCES */
int service_find_writer(const struct service *s, const struct service_actor *by, uint64_t *session);
/* The same, also where it writes bytes alone (RW_DATA). */
int service_find_byte_writer(const struct service *s, const struct service_actor *by,
                             uint64_t *session);
/* A file that may read. 0, -EBADF */
int service_find_reader(const struct service *s, uint64_t file, const struct core_file **found);

/* open.c */
struct service_open;
/* In this session, or (0) in none. */
int service_open_in(struct service *s, const struct service_open *open, uint64_t session,
                    const struct service_caller *caller, struct service_answer *answer);
/* Asks the lock, for the file or (create) for the allocation that it is to create. Sets
 * answer->file when granted at once, else parks the request. */
int service_open_locking(struct service *s, const struct service_open *open, enum lock_wish wish,
                         const char *create, const struct service_caller *caller,
                         struct service_request *request, struct service_answer *answer);

/* wait.c: requests that wait behind a waiter of the core */
/* Applies a record that asks for the lock. Where it must wait, the request is parked. True: granted
 * at once, or an error. */
bool service_ask(struct service *s, struct record *record, const struct parked *how,
                 struct service_request *request, struct outcome *outcome, int *error);
void service_on_granted(struct service *s, const struct effect *effect);
void service_on_refused(struct service *s, const struct effect *effect);
/* Ends a wait from our side; flags CORE_WAIT_*. */
void service_end_wait(struct service *s, struct record *record);

/* granted.c: the second half of opens */
void service_fill_granted(const struct service *s, uint64_t file, uint64_t session,
                          struct service_answer *answer);
/* What it was opened with is given back; what is sealed is not: -ENOLCK. */
int service_truncate_opened(struct service *s, const struct core_file *file);
/* An allocation of that name, without memory. */
int service_add_named(struct service *s, uint64_t session, const char *name,
                      struct outcome *outcome);
/* Of a creation outside a session: the lock is granted, and answer->file is open without a serial.
 * On failure the grant is undone. */
int service_create_granted(struct service *s, const char *name, struct service_answer *answer);

/* watch.c: processes whose exit ends their sessions, and what they can write */
/* Before an ACQUIRE is applied: its process is watched from now on, until as many calls of
 * service_unwatch. 0, -EDQUOT, -ENFILE, -ENOMEM */
int service_watch(struct service *s, const struct core_file *file, const struct record *record);
void service_unwatch(struct service *s, struct core_process process);
/* Before this process is handed a writable descriptor of what the session's store has: it is
 * recorded, and watched in the share of `uid`. pid 0: it cannot be seen; one that has exited
 * is the same, for nobody knows who gets what is for it. -EOPNOTSUPP: RW_DATA, and it cannot be
 * seen; -ENOSPC, -EDQUOT, -ENFILE, -ENOMEM, -ENOLCK, -ESTALE */
int service_note_writer(struct service *s, uint64_t session, uint32_t uid,
                        struct core_process process);
/* After a grant: ends a session whose owner is gone already. */
void service_check_owner(struct service *s, uint64_t session);
void service_free_watches(struct service *s);

/* end.c */
/* Of sessions whose last use is over. */
void service_run_endings(struct service *s);
void service_on_session_over(struct service *s, uint64_t session);
int service_end_session(struct service *s, const struct ending *ending);
void service_end_owned(struct service *s, uint64_t session);

/* commit.c */
/* Before the record: true, it is being computed, and its end is a use's. */
bool service_prepare_commit(struct service *s, struct in_flight *in_flight, struct ending *ending);
void service_drop_prepared(struct service *s, struct ending *ending);
/* CORE_COMMIT_CHECK, which ends nothing. */
int service_check_commit(struct service *s, uint64_t session, uint32_t flags,
                         struct service_request *request);

/* admin.c */
/* Any session that is not surely about to end; NULL: there is none. */
const struct core_session *service_find_open_session(const struct service *s);
void service_revoke_all(struct service *s, const struct ending *revocation);
const struct core_store *service_find_uuid(const struct service *s, const uint8_t uuid[16]);

/* regions.c */
void service_on_region_over(struct service *s, const struct effect *effect);
/* -ESTALE: the region is gone. */
struct service_descriptor;
int service_get_region_descriptor(const struct service *s, uint64_t region,
                                  struct service_descriptor *descriptor);
void service_free_region_objects(struct service *s);

/* piece.c */
/* For an allocation of this session; not yet in s->pieces. */
struct piece *piece_new(struct service *s, uint64_t session, uint64_t reserved_bytes);
void piece_begin(struct piece *piece);
/* So much of it counts as spooled from now on: no more than before. */
void piece_count_spooled(struct service *s, struct piece *piece, uint64_t bytes);
#define PIECE_DESCRIPTORS 2u
/* What the keeper is to hold of it, which has this memory: how many. Any thread. */
size_t piece_describe(const struct piece *piece, const struct vmm_piece *memory,
                      struct service_memory kept[PIECE_DESCRIPTORS]);
/* Counts it as coming back: it is certain that it goes, so waiters may count on it. */
void piece_count_freeing(struct service *s, struct piece *piece);
/* No record has this memory any more: it is freed at the end of the step, or of its last use. */
void piece_doom(struct service *s, uint64_t memory);
/* Is memory still being given back that was this store's? */
bool piece_is_freed_of(const struct service *s, uint64_t store);

/* piece_free.c */
void piece_end(struct service *s, struct piece *piece);
/* Gives back what it is charged with beyond this. */
void piece_shrink(struct service *s, struct piece *piece, uint64_t reserved_bytes);
/* By a job, which gives the account back. Small pieces are gathered: piece_free_gathered has to
 * follow before control goes back to the loop; piece_free_doomed calls it. */
void piece_free(struct service *s, struct piece *piece);
void piece_free_gathered(struct service *s);
/* All that were doomed at once, for a removal moves what is behind. */
void piece_free_doomed(struct service *s);

/* alloc.c */
void service_retry_allocs(struct service *s);
/* Soon, for those who wait may do so in vain by now. */
void service_retry_allocs_soon(struct service *s);
void service_cancel_alloc(struct service *s, struct alloc_op *op, int error);
void service_cancel_session_allocs(struct service *s, uint64_t session);

/* become_free.c */
/* The account lacks so many bytes for this writer: may others give them back, or those leave the
 * device who can, once nobody uses them? Not: only by what somebody would have to decide. */
bool service_can_become_free(struct service *s, const struct core_session *held, uint64_t bytes);

/* line.c */
/* The last waiter that came before an ALLOC that waits for the device's memory: it keeps that from
 * those behind it, for alloc_timeout at most. UINT64_MAX: none waits */
uint64_t service_alloc_turn(const struct service *s);
/* The store's pool has as much left of its min: it waits behind nobody. */
bool service_is_guaranteed(const struct service *s, const struct core_store *store);
/* Nobody waits in ALLOC who comes before a move that nobody waits for. */
bool service_may_promote(const struct service *s, const struct core_store *store);

/* reserve.c */
/* Charges the device: from what is set aside for the session, then from what is free, after giving
 * up what only a rollback would need. `drawn`: how much of it was set aside. -EAGAIN: memory is
 * coming back, wait; -ENOMEM; -EDQUOT: the store's pool does not allow it. The record that puts it
 * into the layout says so (offset, slot), or service_undraw, or service_made. */
int service_reserve(struct service *s, uint64_t session, uint64_t bytes, uint64_t *drawn);
/* The device itself lacked `bytes` that the account had. Gives up what only a rollback would need;
 * false: there is nothing, or too little. */
bool service_give_up(struct service *s, uint64_t session, uint64_t bytes);
/* Sets this much aside for a writer's session, which must live. Errors as service_reserve. */
int service_reserve_aside(struct service *s, uint64_t session, uint64_t bytes);
/* The same as if it were asked for with the lock now: -EAGAIN, -ENOMEM; gives nothing up. */
int service_reserve_as_acquire(struct service *s, uint64_t session, uint64_t bytes, bool replacing);

/* reserved.c */
/* The numbers of a session, which are recorded all at once. */
struct service_reserved {
    uint64_t aside_bytes, due_bytes, making_bytes, drawn_bytes;
};
struct service_reserved service_get_reserved(const struct core_session *held);
int service_record_reserved(struct service *s, uint64_t session,
                            const struct service_reserved *reserved);
/* What was charged for `made` bytes is given back: they are made no more, and what was drawn will
 * be set aside for the session again. */
void service_undraw(struct service *s, uint64_t session, uint64_t drawn, uint64_t made);
/* It is there, and no record puts it into the layout. */
void service_made(struct service *s, uint64_t session, uint64_t drawn, uint64_t made);
/* Discharges memory that an allocation of this store had. */
void service_unreserve(struct service *s, uint64_t store, uint64_t bytes);

/* transfer.c */
/* What an open allocation may touch now. 0, -EBADF, -ESTALE (session over, or the file unlinked) */
int service_find_open_allocation(struct service *s, uint64_t file, const struct core_file **opened,
                                 const struct layout_allocation **allocation,
                                 const struct core_store **store);
struct service_transfer {
    struct piece *piece;
    uint64_t session; /* in use, which the transfer takes over */
    uint64_t store;
    uint32_t uid;
    const void *from; /* NULL: it reads */
    struct vmm_span span;
};

int service_start_transfer(struct service *s, const struct service_transfer *what,
                           struct service_request *request);

/* write.c */
/* Ends every spool of ranks [first, first+count) of the session's layout; each holds the session in
 * use while it ends. Returns how many were started, or a negative errno. */
int service_seal_spools(struct service *s, uint64_t session, uint64_t first, uint64_t count);
void service_seal_file(struct service *s, const struct core_file *file);
/* A spool ends in zeros up to this size, which is beyond its present one. 0, or why it was not even
 * begun */
int service_extend(struct service *s, uint64_t session, uint64_t serial, uint64_t size_bytes,
                   struct service_request *request);

/* spool.c */
void service_retry_spools(struct service *s);

/* freeing.c */
void service_answer_freed(struct service *s);

/* move.c */
/* When the machine or the device, not the account, lacked memory, nobody tells when it has some. */
#define SERVICE_PROMOTE_RETRY_MS 200u
#define SERVICE_LEAVE_RETRY_MS   500u /* of a store that could not leave the device */
/* MOVE_BEGIN: with bytes that are copied, or by the record alone. Errors as service_order_move. */
int service_move_store(struct service *s, struct record *record);
/* For that it has to be copied there. */
bool service_needs_bytes(const struct core_store *store, enum core_place to);
/* A store begins to come back. Errors as service_order_move. */
int service_promote(struct service *s, const struct core_store *store);
/* Told by a record; 0: it could not begin. */
void service_move_failed(struct service *s, uint64_t store, uint64_t move, int error);
/* Those that the state tells of are there, and wait: before any record. */
void service_restore_moves(struct service *s);
/* They begin, or fail. */
void service_begin_moves_anew(struct service *s);
/* This store leaves the device for that one. Errors as service_order_move. */
int service_evict(struct service *s, uint64_t store, enum core_place to, uint64_t evictor);
void service_on_move_over(struct service *s, const struct effect *effect);

/* move_wait.c */
/* Starts, or fails, the moves that wait for memory. */
void service_resume_moves(struct service *s);
/* The first that waits to come to the device, and nothing is on its way that would do; NULL: none
 */
const struct core_store *service_get_lacking(const struct service *s, uint64_t *move);
/* That move goes on waiting, for others leave; or it ends. */
void service_settle_lacking(struct service *s, uint64_t move, bool comes);

/* spares.c */
extern const enum vmm_tier service_tiers[CORE_TIER_COUNT]; /* of a place */
/* What moves to this tier cost that wait until something there is free. */
uint64_t service_count_waiting_moves(const struct service *s, enum vmm_tier tier);
/* So much may go to this tier: what is free, and what spares would give back that are not needed.
 */
uint64_t service_get_room_beside(const struct service *s, enum core_place tier);
/* What of this tier nobody has been promised yet; negative: more than there is. */
int64_t service_get_free_beside(const struct service *s, enum core_place tier);
/* What a copy of the store takes of this tier, and what its spare there would give back. */
uint64_t service_count_cost(const struct service *s, const struct core_store *store,
                            enum core_place tier);
uint64_t service_count_spare(const struct service *s, const struct core_store *store,
                             enum core_place tier);
/* Bytes of this piece of the store could not be read. A spare that has it is of no use. */
void service_spare_failed(struct service *s, uint64_t store, const struct piece *piece, int error);
/* A copy of the store that its tier can do without. */
bool service_may_give_way(const struct service *s, const struct core_store *store,
                          enum core_place tier);
/* This spare goes; error: it could not be read, or 0. */
void service_drop_copy(struct service *s, uint64_t store, enum core_place tier, int error);

/* lack.c */
/* The account had so many bytes for this store, and the device had not. */
void service_note_lack(struct service *s, uint64_t store, uint64_t bytes);

/* evict.c */
/* Has stores leave the device so that `bytes` more of this one fit. True: room is on its way. */
bool service_evict_for(struct service *s, const struct core_store *store, uint64_t bytes);
/* The same for the last lack that was noted, which is this store's. */
bool service_evict_for_lack(struct service *s, const struct core_store *store);

/* claims.c */
/* The first waiter for a lock with memory that holds newer ones off; UINT64_MAX: none */
uint64_t service_writer_turn(const struct service *s);
/* Does this waiter keep newer ones from the device's memory, if it lacks some? */
bool service_holds_off(const struct service *s, uint64_t waiter);

/* metadata.c, bulk.c */
void service_apply_slices(struct service *s);

#endif
