/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_internal - declarations that only the files of src/core share
 *
 * A record is applied in two parts: first every step that can fail (core_apply has made room for
 * effects, sessions and files before), then the steps that cannot. So a failure undoes only fresh
 * objects, and leaves every byte of core_encode as it was.
 */
#ifndef GMSFS_CORE_CORE_INTERNAL_H
#define GMSFS_CORE_CORE_INTERNAL_H

#include "base/number.h"
#include "core/core.h"

/* The head of an encoded state (core_encode.c). */
#define CORE_STATE_MAGIC       "gmsfcore"
#define CORE_STATE_MAGIC_BYTES 8u

/* No counter of ids gets near this one: a serial and its kind fit into a node's number. */
#define CORE_MOST_IDS (UINT64_C(1) << 55)

#define CORE_OPEN_FLAGS                                                                          \
    (CORE_OPEN_READ | CORE_OPEN_WRITE | CORE_OPEN_NONBLOCK | CORE_OPEN_GRACE | CORE_OPEN_AGAIN | \
     CORE_OPEN_LEAVING | CORE_OPEN_OWNED | CORE_OPEN_FRESH | CORE_OPEN_REPLACE | CORE_OPEN_ANY | \
     CORE_OPEN_CONNECTION | CORE_OPEN_BY_PROCESS)
/* Flags of ACQUIRE alone. */
#define CORE_ACQUIRE_FLAGS \
    (CORE_OPEN_FRESH | CORE_OPEN_REPLACE | CORE_OPEN_ANY | CORE_OPEN_BY_PROCESS)

/* The owner of encoded times: an allocation, or (slot LAYOUT_UNBOUND) the directory. */
struct core_times_of {
    uint64_t store;
    bool working; /* of the working copy, not of the committed layout */
    uint64_t slot;
};

/* One memory, with references from the committed layout, the spares and the working copy of its
 * store. */
struct core_memory {
    uint64_t id;
    uint64_t refs;  /* 1 or 2: a layout refers to it at most once, and copies share no memory */
    uint64_t store; /* its only store */
    enum core_place tier;
    uint64_t aligned_bytes;
    uint64_t committed; /* the store if the committed layout refers to it; else 0 */
    uint64_t suspect;   /* the store that counts it as suspect; 0 if it is sound */
};

/* One call of core_apply. */
struct apply {
    struct core *core;
    const struct record *record;
    struct outcome *out;
    /* the record's own waiter: its grant goes into the outcome, not into an effect */
    uint64_t own_waiter;
    uint64_t free_bytes; /* record.free_bytes less the bytes reserved so far */
    unsigned grants;     /* number of grants to waiters so far */
    bool is_claimed;     /* an older waiter claims the device's free memory */
};

/* A request for a session: the part that an open, an ACQUIRE and a waiter have in common. */
struct core_request {
    uint64_t store, file;
    enum core_kind kind;
    uint64_t serial;
    uint32_t flags;
    struct core_process owner;
    uint32_t uid;
    const char *comm;
    const uint8_t *token;
    uint64_t reserve_bytes;
};

/* core.c, core_find.c */
struct core_store *core_store(const struct core *core, uint64_t id);
struct core_session *core_session(const struct core *core, uint64_t id);
struct core_file *core_file(const struct core *core, uint64_t id);
struct core_waiter *core_waiter(const struct core *core, uint64_t id);
/* Finds the record's session: -ESTALE, and -ENOLCK unless it has RW. */
int apply_find_writer(const struct apply *apply, struct core_session **session);
/* Returns this file's waiter, active or kept; NULL if none. */
struct core_waiter *core_find_file_waiter(const struct core *core, uint64_t file);
/* True if all bytes are 0. */
bool core_is_zero(const void *bytes, size_t size);
/* Counts the open files that refer to this region. */
uint64_t core_count_references(const struct core *core, uint64_t region);
/* Returns the index of the item with this id; `count` if there is none. */
size_t core_find_index(const struct idvec *vec, uint64_t id);
/* Makes room for this many appends, which then cannot fail. */
int core_reserve(struct idvec *vec, size_t more);
void core_store_free(struct core_store *store);
/* Fills in `file` for the request with the next id and appends it. The caller has made room and
 * taken its share. */
void core_enter_file(struct core *core, const struct core_request *request, struct core_file *file);
/* A file is in at most one session at a time; after the end of a session its files keep its id. */
void core_enter_session(struct core_session *session, struct core_file *file);
void core_leave_session(struct core_session *session, struct core_file *file);
void core_detach_files(struct core_session *session);
void core_free_grant(struct core_grant *grant);
void core_waiter_free(struct core_waiter *waiter);

/* Count a ticket that was added to core->tickets, or that is about to be removed. */
void core_note_ticket(struct core *core, const struct core_ticket *ticket);
void core_note_ticket_gone(struct core *core, const struct core_ticket *ticket);
/* Returns when the next ticket expires; UINT64_MAX if there is none. */
uint64_t core_ticket_moment(struct core *core);

/* core_index.c */
int core_index_init(struct core_index *index); /* -ENOMEM */
void core_index_free(struct core_index *index);
int core_index_reserve(struct core *core); /* makes room for one more store. -ENOMEM */
/* Add the store to the index by its name, or remove it. */
void core_enter_name(struct core *core, struct core_store *store);
void core_forget_name(struct core *core, const struct core_store *store);
/* Notes the store's `state` and `residency`; call before a change of them. */
void core_touch(struct core *core, struct core_store *store);
void core_end_touching(struct core *core);
/* Update the index; call after a change of the store's waiters or writers. */
void core_note_waiters(struct core *core, struct core_store *store);
void core_note_writers(struct core *core, struct core_store *store);

/* core_pools.c */
int core_pools_init(struct core *core); /* makes the default pool. -ENOMEM */
struct core_pool *core_pool(const struct core *core, uint64_t id);
struct core_pool *core_make_pool(struct core *core, const char *name); /* NULL if out of memory */
/* Adds the unused part of the pool's min to the sum (sign 1) or subtracts it (-1); call around a
 * change of the pool's min or use. */
void core_count_pool(struct core *core, struct core_pool *pool, int sign);
void core_use_more(struct core *core, struct core_store *store, uint64_t bytes);
void core_use_less(struct core *core, struct core_store *store, uint64_t bytes);
/* Returns the bytes of the store's promotion in progress; 0 if none. */
uint64_t core_get_coming(const struct core_store *store);
/* Adds those bytes to the pool's account (sign 1; call after a move begins) or subtracts them (-1;
 * call before it ends). */
void core_count_coming(struct core *core, const struct core_store *store, int sign);
/* Move the store's use and its promotion in progress into a pool's account, or out of it. */
void core_enter_pool(struct core *core, struct core_store *store, uint64_t pool);
void core_leave_pool(struct core *core, struct core_store *store);
/* Returns the bytes that the pool's budget still allows this store (NULL: a store without any
 * use). */
uint64_t core_get_pool_room(const struct core_pool *pool, const struct core_store *store);
/* Returns the free bytes that other pools' minimums reserve. */
uint64_t core_get_others_bytes(const struct core *core, const struct core_pool *pool);
/* Returns the bytes that the store can get out of free_bytes. */
uint64_t core_get_room(const struct core *core, const struct core_store *store,
                       uint64_t free_bytes);
void core_hold(struct core *core, struct core_session *session);
void core_unhold(struct core *core, struct core_session *session, uint64_t wall_ms);

/* core_line.c */
/* Returns the next time at which patience for memory begins or ends; UINT64_MAX if never. */
uint64_t core_line_moment(const struct core *core, uint64_t now_ms);

/* core_effects.c */
/* Makes room for the effects of one record. next_memories > 0: also for those of a record that ends
 * something, after a record that adds one object of each kind and this many memories. */
int core_reserve_effects(struct core *core, size_t next_memories);
void core_push_effect(struct core *core, struct effect effect);

/* core_events.c */
/* store: NULL for an event of the mount. */
void core_add_event(struct apply *apply, enum core_event_type type, const struct core_store *store,
                    const struct core_session *session);
/* Adds an event of a move or of a copy in a tier. error: an errno, or 0. */
struct core_event *core_add_move_event(struct apply *apply, enum core_event_type type,
                                       const struct core_store *store, enum core_place tier,
                                       int error);
void core_add_region_event(struct apply *apply, enum core_event_type type,
                           const struct region *region);
void core_add_waiter_event(struct apply *apply, enum core_event_type type,
                           const struct core_waiter *waiter);

/* core_commit.c */
/* Makes the canonical bytes and the hash of a layout. -ENOMEM */
int core_encode_layout(const struct layout *layout, struct blob **encoding, uint8_t hash[16],
                       struct made_file_facts *made);

/* garbage.c */
/* True if walking or freeing the layout takes so long that clients notice. */
bool core_is_large(const struct layout *layout);
/* Free the object, or put it into the garbage if that is slow; NULL is allowed. */
void core_discard_layout(struct core *core, struct layout *layout);
void core_discard_blob(struct core *core, struct blob *blob);

/* core_view.c */
/* Counts the bytes of the lines of new events; call when they are complete. */
void core_measure_events(struct core *core);
/* Counts the texts of all events after a decode. */
void core_count_event_texts(struct core *core);
/* True if no process but this one can write the store's memory. */
bool core_is_left_to(const struct core_store *store, struct core_process process);

/* core_uses.c: references of layouts to memories */
struct core_memory_use {
    uint64_t memory, store;
    const struct layout_allocation *allocation;
    bool committed; /* of the committed layout; false: of the working copy or a spare */
    enum core_place tier;
};

/* Collects them sorted by memory, the committed layout's first; the caller frees. -ENOMEM */
int core_collect_uses(const struct core *core, struct core_memory_use **uses, size_t *count);

/* core_places.c: the copies of committed layouts */
/* True if a session of this mode has to wait until the store is on the device in sound memory. */
bool core_lacks_place(const struct core_store *store, enum lock_mode mode, enum core_kind kind,
                      uint32_t flags);
/* Sets the place of a committed store and counts displaced stores. */
void core_set_place(struct core *core, struct core_store *store, enum core_place place);
/* Returns a clone of the layout with these memories by rank (NULL: without any); NULL if out of
 * memory. */
struct layout *core_make_copy(const struct layout *layout, const uint64_t *memories);
/* Drop one spare, or all of them. */
void core_drop_spare(struct core *core, struct core_store *store, enum core_place tier);
void core_drop_spares(struct core *core, struct core_store *store);
/* Returns the tier of the fastest spare; NONE if there is none. */
enum core_place core_get_fallback(const struct core_store *store);
/* Makes the spare in `tier` the committed layout; the old one is dropped, or (keep) becomes a
 * spare. */
void core_switch_place(struct core *core, struct core_store *store, enum core_place tier, bool keep,
                       uint64_t wall_ms);
/* Counts a change of the place. */
void core_count_move(struct core_store *store, uint64_t wall_ms);
/* Ends the move in progress, if any; only the effect MOVE_OVER tells it. */
void core_end_move(struct core *core, struct core_store *store);

/* core_memory.c */
/* Adds a memory of this store with 0 references. */
int core_memory_add(struct core *core, struct core_store *store, uint64_t memory,
                    enum core_place tier, uint64_t aligned_bytes);
void core_memory_forget(struct core *core, uint64_t memory); /* undoes core_memory_add */
struct core_memory *core_memory(const struct core *core, uint64_t memory);
void core_memory_resize(struct core *core, uint64_t memory, uint64_t aligned_bytes);
void core_memory_ref(struct core *core, uint64_t memory);
/* the last reference makes EFFECT_FREE_MEMORY */
void core_memory_unref(struct core *core, uint64_t memory);
/* Mark the memories of a layout as suspect, or as sound. */
void core_memory_suspect(struct core *core, struct core_store *store, const struct layout *layout);
void core_memory_trust(struct core *core, const struct layout *layout);
void core_memory_ref_layout(struct core *core, const struct layout *layout);
/* is_fixed: it was the committed layout, and core_memory.committed becomes 0 (core_mark_committed).
 */
void core_memory_unref_layout(struct core *core, const struct layout *layout, bool is_fixed);
/* Forgets the store's writers; call when the memory that they could write is gone. */
void core_forget_writers(struct core *core, struct core_store *store);
/* Drop a layout and its references. */
void core_drop_working(struct core *core, struct core_store *store);
/* The id of the store's contents is no longer known. */
void core_forget_contents(struct core_store *store);
/* Notes that this writer may have changed committed bytes. */
void core_touch_bytes(struct core *core, struct core_session *session);
void core_drop_fixed(struct core *core, struct core_store *store);
/* Sets core_memory.committed of the layout's memories: the store, or 0 when the layout is no longer
 * committed. */
void core_mark_committed(struct core *core, const struct layout *layout, uint64_t store);
/* Makes the layout, with its references, the store's committed one. */
void core_set_fixed(struct core *core, struct core_store *store, struct layout *layout);

/* apply_store.c */
/* -EINVAL; -EPERM: a file of the mount has this name */
int core_check_store_name(const char *name);
int apply_store_create(struct apply *apply);
int apply_store_remove(struct apply *apply);
int apply_store_rename(struct apply *apply);
int apply_store_attr(struct apply *apply);

/* apply_file.c */
int apply_file_open(struct apply *apply);
int apply_file_bind(struct apply *apply);
int apply_file_close(struct apply *apply);
int apply_join(struct apply *apply);
int apply_detach(struct apply *apply);

/* apply_lock.c */
/* true if an open of this kind can wish it */
bool core_can_wish(enum core_kind kind, uint32_t wish);
int apply_lock_open(struct apply *apply);
int apply_acquire(struct apply *apply);
int apply_wait_end(struct apply *apply);
int apply_time(struct apply *apply);
/* Grants every waiter that can be granted now. Each record that changes a lock ends with this. */
void apply_grant_waiters(struct apply *apply, struct core_store *store);
/* Keeps the waiter's place without a request to answer, until its client asks again. */
void apply_keep_place(struct apply *apply, struct core_waiter *waiter);
void apply_forget_waiter(struct apply *apply, struct core_waiter *waiter);
void apply_refuse_all(struct apply *apply, int error); /* refuses and forgets all waiters */
void apply_refuse_store(struct apply *apply, const struct core_store *store, int error);
void apply_refuse_waiter(struct apply *apply, struct core_waiter *waiter, int error);

/* apply_reserve.c */
/* Returns how the waiter sleeps for reasons other than memory: its user's share is used up, its
 * store is not on the device, or (in turn) other processes can still write. */
enum lock_sleep apply_get_sleep(const struct core *core, const struct core_store *store,
                                const struct core_waiter *waiter);
/* Puts waiters that lack memory to sleep, and wakes the others. */
void apply_update_sleep(struct apply *apply);
/* Finds the waiters that lack memory and claim it: of all waiters, or of those before the first
 * that needs `store` on the device. Call before apply_is_claimed. */
void apply_find_claims(struct apply *apply, const struct core_store *store);
/* True if an older waiter with a free lock claims the memory, so that newer ones may not reserve
 * this much. A waiter that lacks its pool's budget claims only that pool's; the guaranteed bytes of
 * a pool (min) are never claimed by waiters of other pools. */
bool apply_is_claimed(const struct apply *apply, const struct core_store *store, uint64_t bytes);
/* True if `bytes` could be reserved now for a writer of the store. */
bool apply_has_memory(const struct apply *apply, const struct core_store *store, uint64_t bytes);
/* Returns the reason if they could not: -EDQUOT (sets outcome.pool) or -ENOMEM. */
int apply_why_no_memory(const struct apply *apply, const struct core_store *store, uint64_t bytes);
/* Reserves bytes at the grant of RW, after apply_has_memory has said yes. */
void apply_reserve_at_grant(struct apply *apply, struct core_session *session, uint64_t bytes);
/* Gives the session's reservation back. */
void apply_drop_reservation(struct core *core, struct core_session *session);
/* Undoes memory that was being made: the bytes drawn for it are reserved or due again. */
void apply_undo_making(struct apply *apply, struct core_session *session);
int apply_reserve(struct apply *apply);
/* Check, and then account for, the bytes that the record moves from "being made" into the layout.
 * -EINVAL: they were not being made */
int apply_check_made(const struct apply *apply, const struct core_session *session);
void apply_made(struct apply *apply, struct core_session *session);

/* apply_bound.c */
/* Checks if this user may take `more` of the bound. If not: sets outcome.bound; -EDQUOT, or the
 * error of the whole bound. */
int apply_check_bound(struct apply *apply, enum core_bound bound, struct core_store *store,
                      uint32_t uid, uint64_t more);
/* Checks, and takes. Also -ENOMEM, but not for a user that has taken some or is pinned. */
int apply_take(struct apply *apply, enum core_bound bound, struct core_store *store, uint32_t uid,
               uint64_t more);
int apply_gather(struct apply *apply);
/* Checks that the file is a ctl without a live session and without an active waiter; it may have a
 * kept place. */
int apply_check_idle_ctl(struct apply *apply, const struct core_file *file);
int apply_bound(struct apply *apply);

/* apply_session.c */
/* Allocates the objects that a grant needs. -ENOMEM */
int apply_make_grant(const struct core_request *request, struct core_grant *grant);
/* Grants: adds the session and, for an open, the file, which it takes out of `grant`. 0, -EIO,
 * -ENFILE, -ENOSPC; -ENOMEM only for requests that did not wait. */
int apply_grant(struct apply *apply, const struct core_request *request, enum lock_mode mode,
                struct core_grant *grant, uint64_t *session, uint64_t *file);
/* Ends the session; a writer aborts. Grants no waiter. True if the store rolled back to its
 * committed layout. */
bool apply_end_session(struct apply *apply, struct core_session *session, bool revoked);
int apply_session_end(struct apply *apply);
int apply_commit(struct apply *apply);
int apply_touch(struct apply *apply);
int apply_give_up(struct apply *apply);
int apply_out_of_memory(struct apply *apply);
int apply_over_quota(struct apply *apply);

/* apply_writers.c: processes that may still write a store's memory */
int apply_lend(struct apply *apply);
int apply_exit(struct apply *apply);

/* apply_region.c */
int apply_region_register(struct apply *apply);
int apply_region_unregister(struct apply *apply);
int apply_region_refer(struct apply *apply);
int apply_region_release(struct apply *apply);
/* Drops the reference of a closing file, and the region with the last reference. */
void apply_drop_reference(struct apply *apply, struct core_file *file);
/* Ends the region, if any, of the session that this file took; call at the end of that session. */
void apply_end_region_of(struct apply *apply, const struct core_file *file);

/* apply_fence.c */
int apply_fence(struct apply *apply);

/* apply_pool.c */
int apply_pool_set(struct apply *apply);
int apply_store_pool(struct apply *apply);
int apply_store_pin(struct apply *apply);

/* apply_move.c */
int apply_move_begin(struct apply *apply);
int apply_move_end(struct apply *apply);
int apply_move_fail(struct apply *apply);
int apply_move_cancel(struct apply *apply);
int apply_copy_drop(struct apply *apply);
/* Ends the move in progress, if any, with `error` and an event. */
void apply_abandon_move(struct apply *apply, struct core_store *store, int error);
/* Replaces the bytes on the device by the fastest spare. False if there is none. */
bool apply_fall_back(struct apply *apply, struct core_store *store, enum core_event_type type);
/* Ends all moves to or from the device, because their bytes may be damaged. */
void apply_abandon_device_moves(struct apply *apply, int error);
/* Drops suspect memory that no session uses and that has a sound copy. */
void apply_heal(struct apply *apply);

/* apply_drain.c */
/* Returns the drainer of the record. */
struct core_drainer apply_get_drainer(const struct apply *apply);
int apply_drain_mount(struct apply *apply);

/* apply_resume.c */
int apply_resume(struct apply *apply);

/* apply_store_drain.c */
int apply_store_drain(struct apply *apply);
int apply_store_serve(struct apply *apply);

/* apply_health.c */
int apply_health(struct apply *apply);
/* Handles a lost device and the end of the last suspect memory; the last step of each record. */
void apply_settle_health(struct apply *apply, uint64_t suspect_before);

/* apply_layout.c: a change of a writer's working copy */
struct change {
    struct core_session *session;
    struct core_store *store;
    struct layout *layout; /* the layout to change */
    bool fresh;            /* true if it is not yet the store's working copy */
};

/* The session must be live (-ESTALE) and RW (-ENOLCK). */
int apply_change_begin(struct apply *apply, struct change *change);
/* Makes the layout the working copy, or drops a fresh copy after an error. Returns `error`. */
int apply_change_end(struct apply *apply, struct change *change, int error);
/* Copy the record's name or tag as text. -EINVAL: it has a NUL; a name too long: -ENAMETOOLONG */
int apply_copy_name(const struct record *record, char name[256]);
int apply_copy_tag(const struct record *record, char tag[256]);

int apply_alloc_add(struct apply *apply);
int apply_alloc_memory(struct apply *apply);
int apply_alloc_remove(struct apply *apply);
int apply_alloc_rename(struct apply *apply);
int apply_alloc_tag(struct apply *apply);
int apply_times(struct apply *apply);
int apply_contents(struct apply *apply);
int apply_clear(struct apply *apply);

/* apply_entry.c */
int apply_entry_put(struct apply *apply);
int apply_entry_put_many(struct apply *apply);
int apply_entry_delete(struct apply *apply);
int apply_entry_rename(struct apply *apply);

/* apply_ticket.c */
int apply_ticket_add(struct apply *apply);
int apply_ticket_use(struct apply *apply);
void apply_drop_tickets(struct core *core, uint64_t session, bool only_writable);
void apply_drop_region_tickets(struct core *core, uint64_t region);
void apply_expire_tickets(struct core *core, uint64_t now_ms);

/* record_rows.c: the rows of RECORD_ENTRY_PUT_MANY; puts borrow from `bytes`. The caller frees. */
size_t record_rows_most_bytes(const struct layout_put *puts, size_t count);
uint8_t *record_rows_pack(uint8_t *at, const struct layout_put *puts, size_t count); /* → its end */
int record_rows_decode(const uint8_t *bytes, size_t size, struct layout_put **puts, size_t *count);

#endif
