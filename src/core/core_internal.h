/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_internal - what the files of src/core share, and nobody else sees
 *
 * How a record is applied: everything that can fail comes first (core_apply has made room for
 * effects, sessions and files before that), then what cannot fail. So there is nothing to undo but
 * fresh objects, and a record that fails leaves every byte of core_encode as it was.
 */
#ifndef GMSFS_CORE_CORE_INTERNAL_H
#define GMSFS_CORE_CORE_INTERNAL_H

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
/* What only an ACQUIRE can say. */
#define CORE_ACQUIRE_FLAGS \
    (CORE_OPEN_FRESH | CORE_OPEN_REPLACE | CORE_OPEN_ANY | CORE_OPEN_BY_PROCESS)

/* What times that are encoded belong to: an allocation, or (LAYOUT_UNBOUND) their directory. */
struct core_times_of {
    uint64_t store;
    bool working; /* of the working copy, not of what is committed */
    uint64_t slot;
};

/* Memory by its handle, counted over the committed layout, its spares and the working copy of its
 * one store. */
struct core_memory {
    uint64_t id;
    uint64_t refs; /* 1 or 2: a layout has it at most once, and copies of one have none in common */
    uint64_t store; /* whose */
    enum core_place tier;
    uint64_t aligned_bytes;
    uint64_t committed; /* the store whose committed layout has it; 0: none has */
    uint64_t suspect;   /* the store that counts it as such; 0: it is sound */
};

/* One application of a record. */
struct apply {
    struct core *core;
    const struct record *record;
    struct outcome *out;
    uint64_t own_waiter; /* its grant is the answer to the record itself, not an effect */
    uint64_t free_bytes; /* the record's, less what it has set aside so far */
    unsigned grants;     /* to those who waited */
    bool spoken_for;     /* a waiter lacks memory of the device */
};

/* Who asks for a session, and how: the part that an open, an ACQUIRE and a waiter have in common.
 */
struct asking {
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

/* core.c */
struct core_store *core_store(const struct core *core, uint64_t id);
struct core_session *core_session(const struct core *core, uint64_t id);
struct core_file *core_file(const struct core *core, uint64_t id);
struct core_waiter *core_waiter(const struct core *core, uint64_t id);
/* What this file waits through, or its kept place; NULL: nothing */
struct core_waiter *core_find_file_waiter(const struct core *core, uint64_t file);
bool core_same_process(struct core_process a, struct core_process b);
uint64_t core_later(uint64_t now_ms, uint64_t delay_ms);
/* Index of the item with this id; `count`: there is none. */
size_t core_find_index(const struct idvec *vec, uint64_t id);
/* Room for this many appends that then cannot fail. */
int core_reserve(struct idvec *vec, size_t more);
void core_store_free(struct core_store *store);
/* Enters `file` as the asker's, with the next id. Room was made, and its share taken, before. */
void core_enter_file(struct core *core, const struct asking *asking, struct core_file *file);
/* A file is in at most one session at a time; when a session is over its files still know its id.
 */
void core_enter_session(struct core_session *session, struct core_file *file);
void core_leave_session(struct core_session *session, struct core_file *file);
void core_let_files_go(struct core_session *session);
void core_free_grant(struct core_grant *grant);
void core_waiter_free(struct core_waiter *waiter);

/* A ticket has come into core->tickets, or goes from there. */
void core_note_ticket(struct core *core, const struct core_ticket *ticket);
void core_note_ticket_gone(struct core *core, const struct core_ticket *ticket);
/* When the next one expires; UINT64_MAX: there is none. */
uint64_t core_ticket_moment(struct core *core);

/* core_index.c */
int core_index_init(struct core_index *index); /* -ENOMEM */
void core_index_free(struct core_index *index);
int core_index_reserve(struct core *core); /* room for one more store. -ENOMEM */
/* A store is found by the name that it has, or no longer. */
void core_enter_name(struct core *core, struct core_store *store);
void core_forget_name(struct core *core, const struct core_store *store);
/* Before what `state` of the store shows may change. */
void core_touch(struct core *core, struct core_store *store);
void core_end_touching(struct core *core);
/* After its waiters, or its writers, have come or gone. */
void core_note_waiters(struct core *core, struct core_store *store);
void core_note_writers(struct core *core, struct core_store *store);
/* As core_check: the index is what the stores say. */
int core_check_index(const struct core *core, struct failure *failure);

/* core_pools.c */
int core_pools_init(struct core *core); /* with the first pool. -ENOMEM */
void core_pools_free(struct core *core);
struct core_pool *core_pool(const struct core *core, uint64_t id);
struct core_pool *core_make_pool(struct core *core, const char *name); /* NULL: no memory */
/* What it has not used of its min, into the sum (1) or out of it (-1): around a change of either.
 */
void core_count_pool(struct core *core, struct core_pool *pool, int sign);
void core_use_more(struct core *core, struct core_store *store, uint64_t bytes);
void core_use_less(struct core *core, struct core_store *store, uint64_t bytes);
/* What is on its way to the device. */
uint64_t core_get_coming(const struct core_store *store);
/* Into its pool's account (1) or out of it (-1): behind the begin of a move, and before its end. */
void core_count_coming(struct core *core, const struct core_store *store, int sign);
/* With what it uses, and what of it comes. */
void core_enter_pool(struct core *core, struct core_store *store, uint64_t pool);
void core_leave_pool(struct core *core, struct core_store *store);
/* How much more its budget allows for this store (NULL: for one that uses nothing yet). */
uint64_t core_get_pool_room(const struct core_pool *pool, const struct core_store *store);
/* What is free and others' alone. */
uint64_t core_get_others_bytes(const struct core *core, const struct core_pool *pool);
/* How much more the store can have, of what is free. */
uint64_t core_get_room(const struct core *core, const struct core_store *store,
                       uint64_t free_bytes);
void core_hold(struct core *core, struct core_session *session);
void core_let_go(struct core *core, struct core_session *session, uint64_t wall_ms);
/* As core_check */
int core_check_pools(const struct core *core, struct failure *failure);

/* core_line.c */
/* When time alone next changes whom somebody who may lack memory holds off; UINT64_MAX: never. */
uint64_t core_line_moment(const struct core *core, uint64_t now_ms);

/* core_effects.c */
/* Room for the effects of one record; next_memories > 0: and for those of an ending after a record
 * that adds one object of each kind and this many memories. */
int core_reserve_effects(struct core *core, size_t next_memories);
void core_push_effect(struct core *core, struct effect effect);

/* core_events.c */
/* store: NULL for one of the whole mount. */
void core_add_event(struct apply *apply, enum core_event_type type, const struct core_store *store,
                    const struct core_session *session);
/* Of a move, or of a copy in a tier. error: 0, or what it failed with (an errno). */
struct core_event *core_add_move_event(struct apply *apply, enum core_event_type type,
                                       const struct core_store *store, enum core_place tier,
                                       int error);
void core_add_region_event(struct apply *apply, enum core_event_type type,
                           const struct region *region);
void core_add_waiter_event(struct apply *apply, enum core_event_type type,
                           const struct core_waiter *waiter);

/* core_commit.c */
/* What a commit makes of a layout. -ENOMEM */
int core_encode_layout(const struct layout *layout, struct blob **encoding, uint8_t hash[16]);

/* garbage.c */
/* To go through it, or to free it, would be felt by others. */
bool core_is_large(const struct layout *layout);
/* These free it, or leave it to whoever takes the garbage; NULL is fine. */
void core_throw_layout(struct core *core, struct layout *layout);
void core_throw_blob(struct core *core, struct blob *blob);

/* core_view.c */
/* Counts the bytes of the newest lines, whose events are whole. */
void core_measure_events(struct core *core);
/* The events were read from bytes: counts their texts anew. */
void core_count_event_texts(struct core *core);
/* Would RW_DATA of the store be this process's alone? */
bool core_is_left_to(const struct core_store *store, struct core_process process);

/* core_uses.c: what the layouts hold. */
struct core_memory_use {
    uint64_t memory, store;
    const struct layout_allocation *allocation;
    bool committed; /* by the committed layout, else by the working copy or a spare */
    enum core_place tier;
};

/* In order of memory, and the committed layout's first; the caller frees. -ENOMEM */
int core_collect_uses(const struct core *core, struct core_memory_use **uses, size_t *count);
/* As core_check. Each memory is held as it is counted, each id was given to one thing, and each
 * allocation has the wire id that it was added with. */
int core_check_memories(const struct core *core, struct failure *failure);
int core_check_ids(const struct core *core, struct failure *failure);
int core_check_wire_ids(const struct core *core, struct failure *failure);

/* core_check_regions.c: as core_check */
int core_check_regions(const struct core *core, struct failure *failure);

/* core_check_places.c: as core_check */
int core_check_places(const struct core *core, struct failure *failure);

/* core_places.c: the copies of what is committed */
/* Suspect, and to be healed by its spare on the disk, when that was read. */
bool core_can_heal(const struct core_store *store);
/* Would a session of this mode have to wait until the store is on the device, in sound memory? */
bool core_lacks_place(const struct core_store *store, enum lock_mode mode, enum core_kind kind,
                      uint32_t flags);
/* The place of a committed store from now on; counted. */
void core_set_place(struct core *core, struct core_store *store, enum core_place place);
/* The committed layout with these memories by rank (NULL: with none). NULL: no memory. */
struct layout *core_make_copy(const struct layout *layout, const uint64_t *memories);
/* Drops a spare, or all of them. */
void core_drop_spare(struct core *core, struct core_store *store, enum core_place tier);
void core_drop_spares(struct core *core, struct core_store *store);
/* The fastest of the spares; NONE: there are none. */
enum core_place core_get_fallback(const struct core_store *store);
/* The spare in `tier` becomes the committed layout, whose memories go, or (keep) become a spare. */
void core_switch_place(struct core *core, struct core_store *store, enum core_place tier, bool keep,
                       uint64_t wall_ms);
/* Its place has changed. */
void core_count_move(struct core_store *store, uint64_t wall_ms);
/* A move that is under way ends; nobody is told but who makes it. */
void core_end_move(struct core *core, struct core_store *store);

/* core_check_events.c: as core_check, of what is told of the mount; of its health and its fence. */
int core_check_events(const struct core *core, struct failure *failure);
int core_check_mount(const struct core *core, struct failure *failure);
/* Does it end within its room? */
bool core_is_text(const char *text, size_t room);

/* core_memory.c */
/* For this store, with refs 0. */
int core_memory_add(struct core *core, struct core_store *store, uint64_t memory,
                    enum core_place tier, uint64_t aligned_bytes);
void core_memory_forget(struct core *core, uint64_t memory); /* undoes that */
struct core_memory *core_memory(const struct core *core, uint64_t memory);
void core_memory_resize(struct core *core, uint64_t memory, uint64_t aligned_bytes);
void core_memory_ref(struct core *core, uint64_t memory);
void core_memory_unref(struct core *core, uint64_t memory); /* the last one: EFFECT_FREE_MEMORY */
/* The memories of a layout of the store, counted as suspect or no longer. */
void core_memory_suspect(struct core *core, struct core_store *store, const struct layout *layout);
void core_memory_trust(struct core *core, const struct layout *layout);
void core_memory_ref_layout(struct core *core, const struct layout *layout);
void core_memory_unref_layout(struct core *core, const struct layout *layout);
/* Whoever could write the store's memory: there is none of it any more. */
void core_forget_writers(struct core *core, struct core_store *store);
/* Drops a layout and its references. */
void core_drop_working(struct core *core, struct core_store *store);
void core_drop_fixed(struct core *core, struct core_store *store);
/* Notes which memory the committed layout has: its store, or 0 when it is no longer committed. */
void core_mark_committed(struct core *core, const struct layout *layout, uint64_t store);
/* The layout becomes the store's committed one, with the references that it has. */
void core_set_fixed(struct core *core, struct core_store *store, struct layout *layout);

/* apply_store.c */
int core_check_store_name(const char *name); /* -EINVAL; -EPERM: it is taken by something else */
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
/* Takes it out of the table and frees it. */
void apply_drop_file(struct apply *apply, struct core_file *file);

/* apply_lock.c */
bool core_can_wish(enum core_kind kind, uint32_t wish); /* by an open of this kind */
int apply_lock_open(struct apply *apply);
int apply_acquire(struct apply *apply);
int apply_wait_end(struct apply *apply);
int apply_time(struct apply *apply);
/* Grants whoever can be granted now. Every record that changes a lock ends with it. */
void apply_grant_waiters(struct apply *apply, struct core_store *store);
/* Nobody is there to answer now; the same asks again. */
void apply_keep_place(struct apply *apply, struct core_waiter *waiter);
void apply_forget_waiter(struct apply *apply, struct core_waiter *waiter);
void apply_refuse_all(struct apply *apply, int error); /* and forgets them */
void apply_refuse_store(struct apply *apply, const struct core_store *store, int error);
void apply_refuse_waiter(struct apply *apply, struct core_waiter *waiter, int error);

/* apply_reserve.c */
/* Whatever memory there is, it cannot be granted: its share is taken, or (in turn) others write. */
enum lock_sleep apply_get_sleep(const struct core *core, const struct core_store *store,
                                const struct core_waiter *waiter);
/* Puts to sleep who lacks memory and wakes who does not. */
void apply_rouse(struct apply *apply);
/* Finds out who lacks memory, of all who wait, or of those before the first who waits for `store`
 * to come to the device. Before apply_is_spoken_for */
void apply_look_along(struct apply *apply, const struct core_store *store);
/* Somebody who came before, and whose lock is free, lacks it: so nobody who comes later may reserve
 * so much. Who lacks what the budget of its pool has left keeps that from its pool alone, and
 * nobody is kept from what is guaranteed to its pool. */
bool apply_is_spoken_for(const struct apply *apply, const struct core_store *store, uint64_t bytes);
/* Could this much be set aside now for a writer of the store? */
bool apply_has_memory(const struct apply *apply, const struct core_store *store, uint64_t bytes);
/* Why not: -EDQUOT (which sets outcome.pool) or -ENOMEM */
int apply_why_no_memory(const struct apply *apply, const struct core_store *store, uint64_t bytes);
/* At the grant of RW, of what apply_has_memory has said to be there. */
void apply_set_aside(struct apply *apply, struct core_session *session, uint64_t bytes);
/* What was not drawn goes back. */
void apply_drop_reservation(struct core *core, struct core_session *session);
/* What was being made is not, and what was drawn for it is set aside, or due, again. */
void apply_undo_making(struct apply *apply, struct core_session *session);
int apply_reserve(struct apply *apply);
/* The record has put so much of what was being made into the layout. -EINVAL: it was not */
int apply_check_made(const struct apply *apply, const struct core_session *session);
void apply_made(struct apply *apply, struct core_session *session);

/* apply_bound.c */
/* May this user take so much more of the bound? Else outcome.bound, and -EDQUOT or `whole`. */
int apply_check_bound(struct apply *apply, enum core_bound bound, const struct core_store *store,
                      uint32_t uid, uint64_t more);
int apply_gather(struct apply *apply);
/* Is there a place for one more open file of this asker? -ENFILE, -EDQUOT */
int apply_check_file(struct apply *apply, const struct asking *asking);
/* A ctl without a live session that nobody waits through; its kept place may remain. */
int apply_check_idle_ctl(struct apply *apply, const struct core_file *file);
int apply_bound(struct apply *apply);

/* apply_session.c */
/* What a grant to this asker needs. -ENOMEM */
int apply_make_grant(const struct asking *asking, struct core_grant *grant);
/* Grants: enters the session, and the file of an open, which are taken out of `grant`. 0, -EIO,
 * -ENFILE, -ENOSPC; -ENOMEM only where nobody has waited. */
int apply_grant(struct apply *apply, const struct asking *asking, enum lock_mode mode,
                struct core_grant *grant, uint64_t *session, uint64_t *file);
/* Ends it; a writer aborts. Grants nobody. Whether that was a rollback to a committed layout. */
bool apply_end_session(struct apply *apply, struct core_session *session, bool revoked);
int apply_session_end(struct apply *apply);
int apply_commit(struct apply *apply);
int apply_touch(struct apply *apply);
int apply_give_up(struct apply *apply);
int apply_out_of_memory(struct apply *apply);
int apply_over_quota(struct apply *apply);

/* apply_writers.c: who may still write the memory of a store */
int apply_lend(struct apply *apply);
int apply_exit(struct apply *apply);

/* apply_region.c */
int apply_region_register(struct apply *apply);
int apply_region_unregister(struct apply *apply);
int apply_region_refer(struct apply *apply);
int apply_region_release(struct apply *apply);
/* Of a file that closes; the region may go with it. */
void apply_drop_reference(struct apply *apply, struct core_file *file);
/* The session that this file took is over, and with it the region that it is for, if any. */
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
/* Ends the move that is under way, if any, in `error`, and tells of it. */
void apply_abandon_move(struct apply *apply, struct core_store *store, int error);
/* The bytes on the device are no good: the fastest spare takes their place. False: there is none.
 */
bool apply_fall_back(struct apply *apply, struct core_store *store, enum core_event_type type);
/* What was copied to or from the device may be damaged. */
void apply_abandon_device_moves(struct apply *apply, int error);
/* Suspect memory goes that nobody holds and that has a sound copy. */
void apply_heal(struct apply *apply);

/* apply_drain.c */
/* Whom the record says. */
struct core_drainer apply_get_drainer(const struct apply *apply);
int apply_drain_mount(struct apply *apply);

/* apply_resume.c */
int apply_resume(struct apply *apply);

/* apply_store_drain.c */
int apply_store_drain(struct apply *apply);
int apply_store_serve(struct apply *apply);

/* apply_health.c */
int apply_health(struct apply *apply);
/* What the loss of the device, or the end of the last suspect memory, leads to; ends each record.
 */
void apply_settle_health(struct apply *apply, uint64_t suspect_before);

/* apply_layout.c: a change of a writer's working copy */
struct change {
    struct core_session *session;
    struct core_store *store;
    struct layout *layout; /* to be changed */
    bool fresh;            /* it is not yet the store's working copy */
};

/* The session must be live (-ESTALE) and RW (-ENOLCK). */
int apply_change_begin(struct apply *apply, struct change *change);
/* On success the layout becomes the working copy; else a copy made aside goes. Returns `error`. */
int apply_change_end(struct apply *apply, struct change *change, int error);
/* The record's name as text. -EINVAL holds a NUL, -ENAMETOOLONG */
int apply_copy_name(const struct record *record, char name[256]);
int apply_copy_tag(const struct record *record, char tag[256]);

int apply_alloc_add(struct apply *apply);
int apply_alloc_memory(struct apply *apply);
int apply_alloc_remove(struct apply *apply);
int apply_alloc_rename(struct apply *apply);
int apply_alloc_tag(struct apply *apply);
int apply_times(struct apply *apply);
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
