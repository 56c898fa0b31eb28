/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - shared by the files of libgmsfs, and included by them alone
 *
 * Every public call does gfs_enter .. gfs_leave, which serialise the calls on one handle (`op`).
 * Fields that the properties and gmsfs_resolve read are changed under `state` too, a mutex that is
 * held for moments only, never over a system call that waits. Lock order: op (of several handles:
 * by address), fork gate, registry, state.
 *
 * The fork gate is held for reading while a descriptor exists that is in no field of the handle
 * yet, and while mappings are made. fork() waits for it, so a child finds every descriptor that it
 * has to close, and every copied mapping that it has to drop. The gate's holder may enter it again.
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

#define GFS_REPLY_TIMEOUT_MS  30000 /* longest wait for an answer on `.fds`; they come at once */
#define GFS_LAYOUT_BYTES_MAX  (UINT64_C(1) << 31) /* far above the daemon's bounds */
#define GFS_SLAB_DEVICE_SHARE 8       /* divisor: a slab is at most this part of the device */
#define GFS_SLAB_GROWTH       4       /* divisor: and at least this part of its tag's other slabs */
#define GFS_AGAIN_NS          2000000 /* until the cancelling of a wait that had not begun is repeated */

/* The wait of one call, which all its handles share. Under the mutex of waiting.c. */
struct gfs_call {
    uint64_t number;
    int cancelled;
    unsigned cancelling; /* threads that send CANCEL to the mount; the wait does not end before they
                          * are done */
    struct gmsfs_store *waits_on; /* its `ctl` has the request; NULL if the call does not wait */
};

struct gfs_connecting;

struct gmsfs_store {
    pthread_mutex_t op;
    pthread_mutex_t state;
    struct gmsfs_store *next;      /* registry, for fork */
    atomic_int dead;               /* 0; ECHILD: in a forked child; EBADF: closed */
    atomic_uintptr_t holder;       /* thread that has `op`; 0 if none */
    atomic_uintptr_t state_holder; /* thread that has `state`; 0 if none */
    struct gfs_call *call;         /* call that has `op`; under the mutex of waiting.c */
    struct gfs_call own_call;
    char *path;                                  /* absolute, for gmsfs_reopen */
    int dir_fd;                                  /* O_PATH: follows the store over renames */
    int ctl_fd;                                  /* carries the session */
    int fds_fd;                                  /* connection to `.fds`, or -1 */
    int events_fd;                               /* the mount's events, or -1 */
    _Atomic(struct gfs_connecting *) connecting; /* of gmsfs_connect_start; NULL: none */
    atomic_int keeps_place; /* true if the last ACQUIRE asked to reserve its place in the queue */
    int writable;           /* ctl_fd was opened for writing */
    uint64_t granularity_bytes;
    struct gfs_memory memory;

    struct gfs_range range; /* under construction; changed in the gate, for a child of fork() */
    int waking;             /* mappings in reservations of `map` are not settled yet */
    size_t space_count;     /* reservations of a graph pool, which are not in `map` */

    /* Under op. */
    struct gfs_copy *copies; /* private memory */
    size_t copy_count, copy_room;
    struct gfs_slabs slabs;
    uint64_t slab_wish_bytes; /* of gmsfs_set_slab_bytes */
    uint64_t slab_bytes;      /* by default, on this device; 0: not known yet */
    unsigned connect_flags;   /* GMSFS_CONNECT_* */
    uint64_t memory_wait_ms;  /* of gmsfs_set_memory_timeout */
    int is_beside;            /* host memory is mapped, for the bytes are not on the device */
    uint64_t announced_bytes; /* bytes that this writer reserved at connect; 0 if it did not say */
    struct gmsfs_layout *shape; /* of the mappings, if its hash is theirs; NULL if not read yet */

    /* Changed under op and state. */
    enum gmsfs_mode mode;
    uint64_t session;
    uint8_t token[GMSFS_TOKEN_BYTES];
    struct gfs_ident ident; /* of the layout last connected to */
    int was_lost; /* the session ended from outside, and gmsfs_notices has not reported it yet */
    int ident_broken; /* a writer's work was dropped: the next session is another epoch */
    int unmapped;
    struct gfs_vmap map;
};

/* ---- gate.c: the locks of a call ---------------------------------------------------------- */

/* Takes `op`. -EDEADLK: this thread is in a call on the handle, and calls from a signal handler or
 * a callback. */
int gfs_enter(struct gmsfs_store *handle);
/* As gfs_enter, but cancels a waiting call on the handle, for calls that must not wait. */
int gfs_enter_first(struct gmsfs_store *handle);
/* As gfs_enter. -EBUSY: another call has `op`. */
int gfs_try_enter(struct gmsfs_store *handle);
/* True if this thread has `op`, or is about to take it. */
int gfs_is_in_call(struct gmsfs_store *handle);
/* Marks the moment in which a lock is taken or released and its holder noted: a signal handler may
 * interrupt just there. */
struct gfs_passage {
    const void *object;
    struct gfs_passage *outer;
};
void gfs_passage_begin(struct gfs_passage *passage, const void *object);
void gfs_passage_end(const struct gfs_passage *passage);
/* True if this thread holds it: no other thread stores this thread's number. */
int gfs_is_held(const void *object, const atomic_uintptr_t *holder);
/* Locks `op`, and cancels the call on this handle that its holder waits in, if any. */
void gfs_lock_first(pthread_mutex_t *op, struct gmsfs_store *handle);
/* Locks the mutex; 0 if that failed within GFS_AGAIN_NS. */
int gfs_lock_soon(pthread_mutex_t *mutex);
void gfs_leave(struct gmsfs_store *handle);
/* Checks the handle for a public function, and locks `state` until gfs_state_unlock. -EINVAL,
 * -EBADF, -ECHILD; -EDEADLK: this thread has it, and was interrupted. */
int gfs_state_enter(struct gmsfs_store *handle);
void gfs_state_lock(struct gmsfs_store *handle);
void gfs_state_unlock(struct gmsfs_store *handle);
/* Defer pthread_cancel(3) between these two, which nest: a thread that ended here would leave a
 * mutex or the gate held. gfs_enter and gfs_gate_enter call them themselves. */
void gfs_hold_thread(void);
void gfs_let_thread(void);
void gfs_gate_enter(void);
void gfs_gate_leave(void);
/* Around fork(): keep all other threads out. */
void gfs_gate_fork_prepare(void);
void gfs_gate_fork_parent(void);
void gfs_gate_fork_child(void);

/* ---- waiting.c: the wait of a call, and its end ---------------------------------------------- */

/* Make the call that has entered a handle visible to gfs_wait_cancel, and hide it again. */
void gfs_wait_admit(struct gmsfs_store *handle);
void gfs_wait_dismiss(struct gmsfs_store *handle);
/* Shares the call of another handle, which entered both. */
void gfs_wait_share(struct gmsfs_store *handle, struct gmsfs_store *with);
/* Around a request on `ctl` that may wait for other clients. -ECANCELED: the call was cancelled. */
int gfs_wait_begin(struct gmsfs_store *handle);
void gfs_wait_end(struct gmsfs_store *handle);
int gfs_wait_is_cancelled(struct gmsfs_store *handle);
/* From another thread: ends the present and later waits of the call that has the handle. */
void gfs_wait_cancel(struct gmsfs_store *handle);
void gfs_wait_fork_prepare(void);
void gfs_wait_fork_parent(void);
void gfs_wait_fork_child(void);

/* ---- connect.c: a connection under way ------------------------------------------------------ */

/* Cancels gmsfs_connect_start's attempt and frees it. */
void gfs_connect_give_up(struct gmsfs_store *handle);
/* Frees the attempt in the child of a fork(), which does not have its thread. */
void gfs_connect_fork_child(struct gmsfs_store *handle);

/* ---- notice.c ----------------------------------------------------------------------------- */

/* Makes the notice descriptor, under the number that the program knows, follow the handle to a
 * store of perhaps another mount. */
void gfs_notice_follow(struct gmsfs_store *handle);

/* ---- version.c ---------------------------------------------------------------------------- */

/* -EINVAL: no struct of the library is or will be so large. */
int gfs_check_struct(size_t out_bytes);
/* Copies a struct to a program that may know fewer fields, or more, which become zeros. */
void gfs_give_struct(void *out, size_t out_bytes, const void *own, size_t own_bytes);
/* Converts a list of such structs, to be freed by the program. On failure *list stays as it was. */
int gfs_give_list(void **list, size_t count, size_t item_bytes, size_t own_bytes);

/* ---- fork.c ------------------------------------------------------------------------------- */

/* Installs the fork handlers. Call before the first handle; later calls do nothing. */
int gfs_fork_watch(void);
void gfs_fork_register(struct gmsfs_store *handle);
void gfs_fork_unregister(struct gmsfs_store *handle);

/* ---- ioctl.c ------------------------------------------------------------------------------ */

/* Retries EINTR. On -ESTALE the session is forgotten. */
int gfs_ioctl(struct gmsfs_store *handle, unsigned long request, void *argument);
/* As gfs_ioctl, for requests that wait for other clients: -ECANCELED after gfs_wait_cancel. */
int gfs_ioctl_waiting(struct gmsfs_store *handle, unsigned long request, void *argument);
/* ACQUIRE, repeated with the rest of the timeout after EINTR or the kernel's own request timeout.
 */
int gfs_ioctl_acquire(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire);
uint64_t gfs_clock_ms(void);

/* ---- session_state.c: asks nothing of the mount ------------------------------------------- */

struct gfs_grant {
    enum gmsfs_mode mode;
    uint64_t session;
    uint64_t generation;
    const uint8_t *token;
    const uint8_t *store_id;
    const uint8_t *layout_hash; /* of the committed or sealed layout */
    int committed;
};

void gfs_session_begin(struct gmsfs_store *handle, const struct gfs_grant *grant);
void gfs_session_publish(struct gmsfs_store *handle, const struct gmsfs_ioc_commit *commit);
/* Notes a seal. The mappings stay as they are: the session continues to write. */
void gfs_session_seal(struct gmsfs_store *handle, const struct gmsfs_ioc_commit *commit);
void gfs_session_forget(struct gmsfs_store *handle);
/* True if the session may write bytes: RW, and RW_DATA, which may not change the layout. */
int gfs_session_writes(const struct gmsfs_store *handle);

/* ---- session.c ---------------------------------------------------------------------------- */

/* -EINVAL: no call may ask for this mode with this reservation. */
int gfs_session_check_wish(enum gmsfs_mode mode, uint64_t reserve_bytes);
/* Acquires, and chooses the kind of memory: gmsfs_connect inside op. */
int gfs_session_connect(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire);
/* The rest of gfs_session_connect after gfs_session_take. reserve_bytes: as asked for. */
int gfs_session_settle(struct gmsfs_store *handle, const struct gmsfs_ioc_acquire *acquire,
                       uint64_t reserve_bytes);
/* Takes the lock. acquire: mode, timeout_ms and flags in; everything out. -EBUSY: connected, or
 * about to be. */
int gfs_session_acquire(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire);
/* First half of gfs_session_acquire: takes the lock without noting it in the handle; the RELEASE
 * ioctl undoes it. */
int gfs_session_take(struct gmsfs_store *handle, struct gmsfs_ioc_acquire *acquire);
/* Second half: makes it the handle's session. committed: a layout was committed at the grant. */
void gfs_session_note(struct gmsfs_store *handle, const struct gmsfs_ioc_acquire *acquire,
                      int committed);
/* Commits. flags: GMSFS_COMMIT_*. -ENOLCK: not the writer. */
int gfs_session_commit(struct gmsfs_store *handle, unsigned flags, const uint8_t *group);
int gfs_session_release(struct gmsfs_store *handle);
/* Releases a session that the handle has not noted. */
int gfs_session_drop(struct gmsfs_store *handle);
/* Gives up a reserved place in the queue, if any. */
void gfs_session_give_up_place(struct gmsfs_store *handle);
int gfs_is_zero(const uint8_t bytes[16]);

/* ---- again.c: asking on `.fds` again --------------------------------------------------------- */

struct gfs_again {
    uint64_t until_ms;
    long pause_ms;
};

/* Starts the time limit again; called after each step forward. */
void gfs_again_begin(struct gfs_again *again);
/* Pauses, longer each time. 0: GFS_REPLY_TIMEOUT_MS have passed without a step. */
int gfs_again_pause(struct gfs_again *again);

/* ---- ticket.c: descriptors ---------------------------------------------------------------- */

/* The allocation of a descriptor. */
struct gfs_item {
    uint64_t rank, slot, size_bytes, aligned_bytes;
    const char *tag; /* NULL: the message had no room for it */
};

/* Receives each descriptor in rank order, inside the fork gate. To keep *fd, it sets it to -1; else
 * *fd is closed. A negative return ends the transfer and becomes its result. */
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
/* Redeems export->ticket; after a broken connection exports the missing rest again. */
int gfs_export_redeem(struct gmsfs_store *handle, struct gfs_export *export, gfs_take_fn *take,
                      void *context);
/* Exports one descriptor by slot. -ENOENT: no such allocation. */
int gfs_export_slot(struct gmsfs_store *handle, uint64_t slot, enum gmsfs_access access,
                    gfs_take_fn *take, void *context);
/* 0 if this handle may have such access now, else -ENOLCK or -EACCES. */
int gfs_export_check(const struct gmsfs_store *handle, enum gmsfs_access access);

/* ---- alloc.c ------------------------------------------------------------------------------ */

/* The ALLOC ioctl. alloc: size, count, flags, tag, name in; answers out. */
int gfs_alloc(struct gmsfs_store *handle, struct gmsfs_ioc_alloc *alloc);
int gfs_alloc_free(struct gmsfs_store *handle, uint64_t slot);
int gfs_text_copy(char *to, size_t to_bytes, const char *from);

/* ---- files.c: pseudo-files and directories of the store ------------------------------------ */

/* Moves a new descriptor above the standard streams: if it took the number of a closed one, the
 * program would write its messages into it. A negative fd is returned as it is. Keeps errno, or
 * sets it. */
int gfs_fd_above(int fd);
/* Returns the errno of a call on a file of the mount, negative. ECONNABORTED, which the kernel
 * gives calls that were waiting when the mount died, becomes ENOTCONN, which it gives other calls.
 */
int gfs_file_error(int error);
/* -ENOTTY unless this directory is the top of a mount. */
int gfs_check_mount(int root);
void gfs_fd_close(int *fd);
/* Opens `ctl` for writing if permitted, else for reading. */
int gfs_ctl_open_best(int dir_fd, int *writable);
/* Opens `ctl` again; `need_write`: -EACCES if only reading is permitted. -ESTALE: the store is
 * gone. */
int gfs_ctl_open(struct gmsfs_store *handle, int need_write);
void gfs_fds_close(struct gmsfs_store *handle);
/* Reads a whole file. `expected_bytes`: its probable size, read in one go; 0 if unknown. */
int gfs_file_read(struct gmsfs_store *handle, const char *name, uint64_t expected_bytes,
                  uint64_t limit_bytes, uint8_t **bytes, size_t *size_bytes);
/* Calls `each` for every name in a directory of the store; dir_fd is for *at and xattr calls. */
typedef int gfs_name_fn(void *context, int dir_fd, const char *name);
int gfs_dir_walk(struct gmsfs_store *handle, const char *directory, gfs_name_fn *each,
                 void *context);
/* Extended attributes of a file, by a descriptor of its directory. -ENODATA, -ENOENT. */
int gfs_xattr_u64(int dir_fd, const char *name, const char *attribute, uint64_t *value);
int gfs_xattr_text(int dir_fd, const char *name, const char *attribute, char *text,
                   size_t text_bytes);
int gfs_key_check(const char *key); /* 0 if key_name_encode takes it; -EINVAL */
/* key: as long as the name at most, plus NUL; NULs of the key count. -EINVAL. */
int gfs_key_decode(const char *name, char *key, size_t *key_bytes);

/* ---- closed.c ----------------------------------------------------------------------------- */

#define GFS_CLOSED 64 /* closed objects of a kind that are still known */

/* The closed objects of one kind; starts as zeros. */
struct gfs_closed {
    _Atomic(void *) objects[GFS_CLOSED];
    atomic_uint count;
};

/* Remembers that the object is closed. Returns the object that drops out of the memory, to be
 * freed, or NULL. */
void *gfs_closed_keep(struct gfs_closed *closed, void *object);

/* ---- handle.c ----------------------------------------------------------------------------- */

/* Opens the store that has the name now. Inside op, without a session. */
int gfs_reopen(struct gmsfs_store *handle);
/* ---- handle_memory.c ----------------------------------------------------------------------- */

/* Sets the handle's memory. Outside of scopes. -EXDEV: addresses are reserved for another device or
 * kind. */
int gfs_set_memory(struct gmsfs_store *handle, const struct gfs_memory *memory);
/* Chooses the kind of memory that a GMSFS_CONNECT_ANY reader maps: that of the store's bytes.
 * Reserved addresses keep their kind: then calls that map are refused, not the lock. */
int gfs_choose_memory(struct gmsfs_store *handle);
/* Chooses the kind again after a mapping call failed with -EXDEV: bytes of a GMSFS_CONNECT_ANY
 * reader may have moved since the lock was taken. True: repeat the call. False if the handle still
 * uses memory of the old kind. Outside of scopes. */
int gfs_follow_memory(struct gmsfs_store *handle, int error);

/* ---- list.c: allocations by the LIST ioctl ------------------------------------------------- */

/* Lists all by slot, of one layout; under constant changes, as consistent as reading a directory.
 */
int gfs_list(struct gmsfs_store *handle, struct gmsfs_handle_info **list, size_t *count);
const struct gmsfs_handle_info *gfs_list_lookup(const struct gmsfs_handle_info *list, size_t count,
                                                uint64_t slot);

/* True if the slots of the layout follow each other without a gap; asks twice, for any number of
 * them. *first: the slot of rank 0. 0: there is a gap, or no allocation, or the answer is not
 * known. */
int gfs_list_in_a_row(struct gmsfs_store *handle, uint64_t *first, uint64_t *count);

/* ---- address.c: reservations and single mappings; all but gfs_va_enter inside its scope ----- */

/* gfs_enter and gfs_memory_enter, for calls that change mappings, until the end of the block with
 * the GFS_VA_SCOPE. */
struct gfs_va_scope {
    struct gmsfs_store *handle; /* NULL: not entered */
    struct gfs_scope memory;
};

#define GFS_VA_SCOPE(name) __attribute__((cleanup(gfs_va_leave))) struct gfs_va_scope name = {0}

int gfs_va_enter(struct gmsfs_store *handle, struct gfs_va_scope *scope);
void gfs_va_leave(struct gfs_va_scope *scope);
int gfs_va_make_room(struct gmsfs_store *handle, size_t reservations, size_t mappings);
/* Unmaps and releases everything, for the end of the handle; the table stays as it was. */
void gfs_va_drop_all(struct gmsfs_store *handle);
int gfs_va_check_item(const struct gmsfs_store *handle, const struct gfs_item *item);
/* Describes a mapping. Its tag is a copy; NULL: not in the message, or no memory for the copy; LIST
 * can supply it later. */
struct gfs_mapping gfs_va_describe(const struct gmsfs_store *handle, uintptr_t va,
                                   const struct gfs_item *item, enum gmsfs_access access,
                                   uint64_t devices);
/* Maps one allocation and enters it into the table. va: in a reservation; 0: make a new one. */
int gfs_va_make(struct gmsfs_store *handle, uintptr_t va, uint64_t slot, enum gmsfs_access access,
                struct gfs_mapping **mapping);
/* Undoes gfs_va_make; also releases an automatic reservation, unless keep_automatic. */
int gfs_va_undo(struct gmsfs_store *handle, struct gfs_mapping *mapping, int keep_automatic);
/* Returns the mapping that begins at `va`, or NULL. */
struct gfs_mapping *gfs_va_find(const struct gmsfs_store *handle, const void *va);

/* ---- private.c ------------------------------------------------------------------------------ */

void gfs_private_drop_all(struct gmsfs_store *handle);

/* ---- create.c ------------------------------------------------------------------------------- */

/* Frees allocations without use before they are published. Outside of scopes. */
int gfs_create_trim(struct gmsfs_store *handle);

/* ---- mapping.c ---------------------------------------------------------------------------- */

struct gmsfs_mapping gfs_mapping_describe(const struct gfs_mapping *mapping);
/* Brings the ranks of this epoch's mappings up to date, for a writer, which changes allocations;
 * needed to wake up after slots have changed. */
int gfs_mapping_learn_ranks(struct gmsfs_store *handle);
/* Looks up the unknown tags of this epoch's mappings; for a writer their ranks too. */
int gfs_mapping_learn_tags(struct gmsfs_store *handle);
/* Looks up the ranks and tags that waking up may need; nothing for a handle that slept before. */
int gfs_mapping_learn_for_sleep(struct gmsfs_store *handle);

#endif
