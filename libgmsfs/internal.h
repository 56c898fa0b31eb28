/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - what the files of libgmsfs share; nobody else includes it
 *
 * Every public call does gfs_enter .. gfs_leave, which serialise the calls on one handle (`op`).
 * What the properties and gmsfs_resolve read is changed under `state` too, which is held for
 * moments only, never over a system call that waits. Lock order: op (of several handles: by
 * address), fork gate, registry, state.
 *
 * The fork gate is held for reading while a descriptor exists that is in no field of the handle
 * yet, and while mappings are made: fork() waits for it, so a child finds every descriptor to
 * close, and every mapping that it was copied although it is none of its own. Its holder may enter
 * it again.
 */
#ifndef GMSFS_LIB_INTERNAL_H
#define GMSFS_LIB_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "gmsfs.h"
#include "memory.h"
#include "slab.h"
#include "vmap.h"

#define GFS_REPLY_TIMEOUT_MS  30000 /* for an answer on `.fds`, which the daemon gives at once */
#define GFS_LOOK_MS           100   /* while it does not come: whether the call was cancelled */
#define GFS_LAYOUT_BYTES_MAX  (UINT64_C(1) << 31) /* far above the daemon's bounds */
#define GFS_SLAB_DEVICE_SHARE 8                   /* a slab is at most this part of the device */
#define GFS_SLAB_GROWTH       4                   /* ... and at least this of its tag's others */
#define GFS_ENCODED_KEY_BYTES (GMSFS_NAME_MAX + 1)
#define GFS_AGAIN_NS          2000000 /* until a wait that had not begun is cancelled again */

/* What one call waits for, in which its handles find it. Under the mutex of waiting.c. */
struct gfs_call {
    uint64_t number;
    int cancelled;
    unsigned cancelling; /* threads that tell the mount: until they have, the wait does not end */
    struct gmsfs_store *waits_on; /* its `ctl` has the request; NULL: it does not wait now */
};

struct gfs_connecting;

struct gmsfs_store {
    pthread_mutex_t op;
    pthread_mutex_t state;
    struct gmsfs_store *next;      /* registry, for fork */
    atomic_int dead;               /* 0; ECHILD: in a forked child; EBADF: closed */
    atomic_uintptr_t holder;       /* the thread that has `op`; 0: none */
    atomic_uintptr_t state_holder; /* and `state` */
    struct gfs_call *call;         /* that has it, under the mutex of waiting.c */
    struct gfs_call own_call;
    char *path;                                  /* absolute, for gmsfs_reopen */
    int dir_fd;                                  /* O_PATH: follows the store over renames */
    int ctl_fd;                                  /* carries the session */
    int fds_fd;                                  /* connection to `.fds`, or -1 */
    int events_fd;                               /* the mount's events, or -1 */
    _Atomic(struct gfs_connecting *) connecting; /* of gmsfs_connect_start; NULL: none */
    atomic_int keeps_place; /* in the queue, for a second: the last ACQUIRE asked for that */
    int writable;           /* ctl_fd was opened for writing */
    uint64_t granularity_bytes;
    struct gfs_memory memory;

    struct gfs_range range; /* under construction; in the gate, for a child of fork() */
    int waking;             /* mappings in reservations of `map` are not settled yet */
    size_t space_count;     /* reservations of a graph pool, which `map` knows nothing of */

    /* Under op. */
    struct gfs_copy *copies; /* private memory */
    size_t copy_count, copy_room;
    struct gfs_slabs slabs;
    uint64_t slab_wish_bytes;   /* of gmsfs_set_slab_bytes */
    uint64_t slab_bytes;        /* by default, on this device; 0: not known yet */
    unsigned connect_flags;     /* GMSFS_CONNECT_* */
    uint64_t memory_wait_ms;    /* of gmsfs_set_memory_timeout */
    int is_beside;              /* host memory is mapped, for the bytes are not on the device */
    uint64_t announced_bytes;   /* all that this writer means to allocate; 0: it did not say */
    struct gmsfs_layout *shape; /* of what is mapped, if its hash is that; NULL: nobody asked yet */

    /* Changed under op and state. */
    enum gmsfs_mode mode;
    uint64_t session;
    uint8_t token[GMSFS_TOKEN_BYTES];
    struct gfs_ident ident; /* of the layout last connected to */
    int was_lost;     /* the session ended from outside, and gmsfs_notices did not say so yet */
    int ident_broken; /* a writer's work was dropped: the next session is another epoch */
    int unmapped;
    struct gfs_vmap map;
};

/* ---- gate.c: what a call holds -------------------------------------------------------------- */

/* -EDEADLK: this thread is in a call on it: a signal handler, or a function that the call calls. */
int gfs_enter(struct gmsfs_store *handle);
/* The same, and whoever waits in a call on it is cancelled: for what must not be held up. */
int gfs_enter_first(struct gmsfs_store *handle);
/* -EBUSY: a call has it. */
int gfs_try_enter(struct gmsfs_store *handle);
/* Is it this thread that has it, or is about to? */
int gfs_is_in_call(struct gmsfs_store *handle);
/* Around the moment in which a lock is taken, or given back, and its holder noted: a signal handler
 * may interrupt just there. */
struct gfs_passage {
    const void *object;
    struct gfs_passage *outer;
};
void gfs_passage_begin(struct gfs_passage *passage, const void *object);
void gfs_passage_end(const struct gfs_passage *passage);
/* Only a thread itself can find its own number there. */
int gfs_is_held(const void *object, const atomic_uintptr_t *holder);
/* `op`, whose holder may wait in a call on this handle, and is cancelled then. */
void gfs_lock_first(pthread_mutex_t *op, struct gmsfs_store *handle);
/* 0: not within GFS_AGAIN_NS. */
int gfs_lock_soon(pthread_mutex_t *mutex);
void gfs_leave(struct gmsfs_store *handle);
/* Of a public function: -EINVAL, -EBADF, -ECHILD; -EDEADLK: this thread has it, and was
 * interrupted; else until gfs_state_unlock. */
int gfs_state_enter(struct gmsfs_store *handle);
void gfs_state_lock(struct gmsfs_store *handle);
void gfs_state_unlock(struct gmsfs_store *handle);
/* From the first of these to the last one back pthread_cancel(3) waits: a thread that ended here
 * would leave a mutex or the gate held. gfs_enter and gfs_gate_enter do so themselves. */
void gfs_hold_thread(void);
void gfs_let_thread(void);
void gfs_gate_enter(void);
void gfs_gate_leave(void);
/* Around fork(): all others are kept out. */
void gfs_gate_fork_prepare(void);
void gfs_gate_fork_parent(void);
void gfs_gate_fork_child(void);

/* ---- waiting.c: what a call waits for, and who ends it ----------------------------------------
 */

/* The call that has entered a handle begins to be found by it, and ends to be. */
void gfs_wait_admit(struct gmsfs_store *handle);
void gfs_wait_dismiss(struct gmsfs_store *handle);
/* This handle's call is the one of another, which entered both. */
void gfs_wait_share(struct gmsfs_store *handle, struct gmsfs_store *with);
/* Around a request on `ctl` that may wait for others. -ECANCELED: it was told not to. */
int gfs_wait_begin(struct gmsfs_store *handle);
void gfs_wait_end(struct gmsfs_store *handle);
int gfs_wait_is_cancelled(struct gmsfs_store *handle);
/* From another thread: the call that has the handle waits no more, neither now nor later. */
void gfs_wait_cancel(struct gmsfs_store *handle);
void gfs_wait_fork_prepare(void);
void gfs_wait_fork_parent(void);
void gfs_wait_fork_child(void);

/* ---- connect.c: a connection under way --------------------------------------------------------
 */

/* The same, and nothing is left of it. */
void gfs_connect_give_up(struct gmsfs_store *handle);
/* Its thread is not in the child. */
void gfs_connect_fork_child(struct gmsfs_store *handle);

/* ---- notice.c ----------------------------------------------------------------------------- */

/* The handle is on a store of another mount, perhaps: then the descriptor of its notices, which the
 * program knows by its number, is of that one's events. */
void gfs_notice_follow(struct gmsfs_store *handle);

/* ---- version.c ---------------------------------------------------------------------------- */

/* -EINVAL: no struct of ours is as large, nor will be. */
int gfs_check_struct(size_t out_bytes);
/* A struct of a program that may know fewer fields, or more, which are zeros then. */
void gfs_give_struct(void *out, size_t out_bytes, const void *own, size_t own_bytes);
/* A list of such, which it frees. On failure it stays as it is. */
int gfs_give_list(void **list, size_t count, size_t item_bytes, size_t own_bytes);

/* ---- fork.c ------------------------------------------------------------------------------- */

/* Before the first handle; once is enough. */
int gfs_fork_watch(void);
void gfs_fork_register(struct gmsfs_store *handle);
void gfs_fork_unregister(struct gmsfs_store *handle);

/* ---- ioctl.c ------------------------------------------------------------------------------ */

/* Retries EINTR. On -ESTALE the session is forgotten. */
int gfs_ioctl(struct gmsfs_store *handle, unsigned long request, void *argument);
/* The same for what waits for others: -ECANCELED from gfs_wait_cancel. */
int gfs_ioctl_waiting(struct gmsfs_store *handle, unsigned long request, void *argument);
/* ACQUIRE with what is left of the timeout after EINTR or the kernel's own request timeout. */
int gfs_ioctl_acquire(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire);
uint64_t gfs_clock_ms(void);

/* ---- session_state.c: nobody is asked -------------------------------------------------------- */

struct gfs_grant {
    enum gmsfs_mode mode;
    uint64_t session;
    uint64_t generation;
    const uint8_t *token;
    const uint8_t *store_id;
    const uint8_t *layout_hash; /* of what is committed or sealed */
    int committed;
};

void gfs_session_begin(struct gmsfs_store *handle, const struct gfs_grant *grant);
void gfs_session_publish(struct gmsfs_store *handle, const struct gmsfs_ioc_commit *commit);
/* The mappings stay as they are: the session goes on, and writes. */
void gfs_session_seal(struct gmsfs_store *handle, const struct gmsfs_ioc_commit *commit);
void gfs_session_forget(struct gmsfs_store *handle);
/* Bytes, whether it may change the layout or not: RW, RW_DATA. */
int gfs_session_writes(const struct gmsfs_store *handle);

/* ---- session.c ---------------------------------------------------------------------------- */

/* -EINVAL: nobody can ask for that. */
int gfs_session_check_wish(enum gmsfs_mode mode, uint64_t reserve_bytes);
/* What gmsfs_connect does: acquires, and chooses the kind of memory. */
int gfs_session_connect(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire);
/* The same behind gfs_session_take. reserve_bytes: as asked for. */
int gfs_session_settle(struct gmsfs_store *handle, const struct gmsfs_ioc_acquire *acquire,
                       uint64_t reserve_bytes);
/* acquire: mode, timeout_ms and flags in; everything out. -EBUSY: connected, or about to be. */
int gfs_session_acquire(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire);
/* Its two halves. The lock is taken, and the handle knows nothing of it: the RELEASE ioctl gives it
 * back without a trace ... */
int gfs_session_take(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire);
/* ... or this makes it the handle's session. committed: when the grant came, was anything? */
void gfs_session_note(struct gmsfs_store *handle, const struct gmsfs_ioc_acquire *acquire,
                      int committed);
/* flags: GMSFS_COMMIT_*. -ENOLCK: not the writer. */
int gfs_session_commit(struct gmsfs_store *handle, unsigned flags, const uint8_t *group);
int gfs_session_release(struct gmsfs_store *handle);
/* The same for a session that the handle has not noted. */
int gfs_session_drop(struct gmsfs_store *handle);
/* In the queue, if one is kept. */
void gfs_session_give_up_place(struct gmsfs_store *handle);
int gfs_is_zero(const uint8_t bytes[16]);

/* ---- again.c: asking on `.fds` again --------------------------------------------------------- */

struct gfs_again {
    uint64_t until_ms;
    long pause_ms;
};

/* Anew with each step forward. */
void gfs_again_begin(struct gfs_again *again);
/* A moment, longer each time. 0: it has gone on for GFS_REPLY_TIMEOUT_MS without a step. */
int gfs_again_pause(struct gfs_again *again);

/* ---- ticket.c: descriptors ---------------------------------------------------------------- */

/* What a descriptor is of. */
struct gfs_item {
    uint64_t rank, slot, size_bytes, aligned_bytes;
    const char *tag; /* NULL: not told */
};

/* Is given each descriptor in rank order, inside the fork gate. It may keep *fd by setting it to
 * -1, else it is closed. A negative return ends the transfer and is passed on. */
typedef int gfs_take_fn(void *context, const struct gfs_item *item, int *fd);

struct gfs_export {
    uint64_t first; /* rank, or slot */
    int by_slot;    /* one allocation, whose slot is `first` */
    uint64_t count; /* 0: all from first; set when known */
    enum gmsfs_access access;
    int has_ticket; /* from ACQUIRE; with `count` set */
    uint8_t ticket[16];
    uint64_t total_bytes; /* out */
};

/* The EXPORT ioctl alone: fills ticket, count and total_bytes. */
int gfs_export_ticket(struct gmsfs_store *handle, struct gfs_export *export);
/* Redeems export->ticket, exporting what has not come anew each time that the way breaks. */
int gfs_export_redeem(struct gmsfs_store *handle, struct gfs_export *export, gfs_take_fn *take,
                      void *context);
/* One descriptor by slot. -ENOENT: there is none such. */
int gfs_export_slot(struct gmsfs_store *handle, uint64_t slot, enum gmsfs_access access,
                    gfs_take_fn *take, void *context);
/* -ENOLCK, -EACCES or 0: may this handle have such access now? */
int gfs_export_check(const struct gmsfs_store *handle, enum gmsfs_access access);

/* ---- alloc.c ------------------------------------------------------------------------------ */

/* alloc: size, count, flags, tag, name in; answers out. */
int gfs_alloc(struct gmsfs_store *handle, struct gmsfs_ioc_alloc *alloc);
int gfs_alloc_free(struct gmsfs_store *handle, uint64_t slot);
int gfs_text_copy(char *to, size_t to_bytes, const char *from);

/* ---- files.c: pseudo-files and directories of the store ------------------------------------ */

/* An open of any kind, or its error: what landed in the place of a standard stream that is closed
 * goes above it, or the program would write its messages there. Keeps errno, or sets it. */
int gfs_fd_above(int fd);
/* errno of a call on a file of the mount, negative: ECONNABORTED, which the kernel tells those who
 * were waiting when it died, as ENOTCONN, which it tells others. */
int gfs_file_error(int error);
void gfs_fd_close(int *fd);
/* `ctl` for writing if that may be, else for reading. */
int gfs_ctl_open_best(int dir_fd, int *writable);
/* Opens `ctl` anew; `need_write`: -EACCES rather than a reader's. -ESTALE: the store is gone. */
int gfs_ctl_open(struct gmsfs_store *handle, int need_write);
void gfs_fds_close(struct gmsfs_store *handle);
/* `expected_bytes`: what is probably there, read in one go then; 0: nobody knows. */
int gfs_file_read(struct gmsfs_store *handle, const char *name, uint64_t expected_bytes,
                  uint64_t limit_bytes, uint8_t **bytes, size_t *size_bytes);
/* Calls `each` for every name in a directory of the store; dir_fd serves *at and xattr calls. */
typedef int gfs_name_fn(void *context, int dir_fd, const char *name);
int gfs_dir_walk(struct gmsfs_store *handle, const char *directory, gfs_name_fn *each,
                 void *context);
/* Extended attributes of a file, by a descriptor of its directory. -ENODATA, -ENOENT. */
int gfs_xattr_u64(int dir_fd, const char *name, const char *attribute, uint64_t *value);
int gfs_xattr_text(int dir_fd, const char *name, const char *attribute, char *text,
                   size_t text_bytes);
int gfs_key_encode(const char *key, char name[GFS_ENCODED_KEY_BYTES]);
int gfs_key_check(const char *key); /* whether it can be encoded */
/* key: as long as the name at most, plus NUL; NULs of the key count. -EINVAL. */
int gfs_key_decode(const char *name, char *key, size_t *key_bytes);

/* ---- closed.c ----------------------------------------------------------------------------- */

#define GFS_CLOSED 64 /* so many of a kind are still known */

/* Of one kind; all zero. */
struct gfs_closed {
    _Atomic(void *) objects[GFS_CLOSED];
    atomic_uint count;
};

/* Nothing of the object is left but that it is closed. Returns the one that was closed so many ago,
 * to be freed, or NULL. */
void *gfs_closed_keep(struct gfs_closed *closed, void *object);

/* ---- handle.c ----------------------------------------------------------------------------- */

/* Inside op, without a session: the store that has the name now. */
int gfs_reopen(struct gmsfs_store *handle);
/* ---- handle_memory.c ----------------------------------------------------------------------- */

/* Outside of scopes. -EXDEV: addresses are reserved for another device or kind. */
int gfs_set_memory(struct gmsfs_store *handle, const struct gfs_memory *memory);
/* Whoever reads a store where it is maps what its bytes are in. Reserved addresses keep their kind:
 * then what maps is refused, not the lock. */
int gfs_choose_memory(struct gmsfs_store *handle);
/* What is read wherever it is may have moved since the lock was taken: a call that maps is asked
 * once more (true) where it was -EXDEV and nothing of the handle is of the kind before. Outside of
 * scopes. */
int gfs_follow_memory(struct gmsfs_store *handle, int error);

/* ---- list.c: allocations as LIST tells them ------------------------------------------------- */

/* All by slot, of one layout; where changes never let that be, as a directory is read. */
int gfs_list(struct gmsfs_store *handle, struct gmsfs_handle_info **list, size_t *count);
const struct gmsfs_handle_info *gfs_list_lookup(const struct gmsfs_handle_info *list, size_t count,
                                                uint64_t slot);

/* Do the slots of the layout follow each other without a gap? Two looks, however many there are.
 * *first: the slot of rank 0. 0: no, or who knows, or there is none. */
int gfs_list_in_a_row(struct gmsfs_store *handle, uint64_t *first, uint64_t *count);

/* ---- address.c: reservations and single mappings; all but gfs_va_enter inside its scope -------
 */

/* gfs_enter and gfs_memory_enter, for calls that change mappings: until the block is left in which
 * GFS_VA_SCOPE declares it. */
struct gfs_va_scope {
    struct gmsfs_store *handle; /* NULL: not entered */
    struct gfs_scope memory;
};

#define GFS_VA_SCOPE(name) __attribute__((cleanup(gfs_va_leave))) struct gfs_va_scope name = {0}

int gfs_va_enter(struct gmsfs_store *handle, struct gfs_va_scope *scope);
void gfs_va_leave(struct gfs_va_scope *scope);
int gfs_va_make_room(struct gmsfs_store *handle, size_t reservations, size_t mappings);
/* For the end of the handle: what is mapped and reserved goes, the table stays as it was. */
void gfs_va_drop_all(struct gmsfs_store *handle);
int gfs_va_check_item(const struct gmsfs_store *handle, const struct gfs_item *item);
/* Its tag is a copy; NULL: not told, or there was no memory for it, which LIST mends. */
struct gfs_mapping gfs_va_describe(const struct gmsfs_store *handle, uintptr_t va,
                                   const struct gfs_item *item, enum gmsfs_access access,
                                   uint64_t devices);
/* Maps one allocation and enters it into the table. va: in a reservation, or 0: one of its own.
 */
int gfs_va_make(struct gmsfs_store *handle, uintptr_t va, uint64_t slot, enum gmsfs_access access,
                struct gfs_mapping **mapping);
/* The way back; with its reservation, where that is its own and not to be kept. */
int gfs_va_undo(struct gmsfs_store *handle, struct gfs_mapping *mapping, int keep_automatic);
/* The mapping that begins at `va`, or NULL. */
struct gfs_mapping *gfs_va_find(const struct gmsfs_store *handle, const void *va);

/* ---- private.c ------------------------------------------------------------------------------ */

void gfs_private_drop_all(struct gmsfs_store *handle);

/* ---- create.c ------------------------------------------------------------------------------- */

/* Outside of scopes: frees what was allocated and is of no use to anybody, before it is published.
 */
int gfs_create_trim(struct gmsfs_store *handle);

/* ---- mapping.c ---------------------------------------------------------------------------- */

struct gmsfs_mapping gfs_mapping_describe(const struct gfs_mapping *mapping);
/* For waking up where slots have changed: brings the ranks of this epoch's mappings up to date,
 * for a writer, whose allocations come and go. */
int gfs_mapping_learn_ranks(struct gmsfs_store *handle);
/* The unknown tags of this epoch's mappings; for a writer their ranks too. */
int gfs_mapping_learn_tags(struct gmsfs_store *handle);
/* What waking up may need of these, and is not known yet: nothing, for one who slept before. */
int gfs_mapping_learn_for_sleep(struct gmsfs_store *handle);

#endif
