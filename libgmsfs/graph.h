/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph - what the files of graph pools share; nobody else includes it but fork.c
 *
 *   graph_enter.c     what a call holds
 *   graph_registry.c  all pools, for the allocator pair and for fork; what is selected on a stream
 *   graph_note.c      the entry in which an awake pool says what it is
 *   graph_guard.c     one launch at a time
 *   graph_launch.c    before and after a launch
 *   graph_chunks.c    chunks: made, held, mapped, given back
 *   graph_space.c     spaces, and the segments in them
 *   graph_sleep.c     waking, sleeping, shrinking
 *   graph_pair.c      the two functions that torch is given
 *   graph.c           life of a pool
 *
 * Chunk k of every space that is not eager is the pool's shared chunk k; an eager space has chunks
 * of its own. A space is mapped from its beginning, as far as it was ever reached.
 *
 * A public call holds the pool's `op`, and inside of it the handle's. One that unmaps takes the
 * guard of launches first: a thread that launches may allocate. What gmsfs_graph_dealloc and the
 * statistics look at is changed under `state` too, which is held for moments only. Lock order:
 * guard, op, the handle's op, fork gate, registry, state.
 */
#ifndef GMSFS_LIB_GRAPH_H
#define GMSFS_LIB_GRAPH_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "gmsfs_graph.h"
#include "internal.h"
#include "memory.h"
#include "slab.h"

struct gfs_chunk {
    uint64_t slot;
    struct gfs_held held;
};

struct gfs_chunks {
    struct gfs_chunk *list;
    size_t count, room;
};

struct gmsfs_graph_space {
    _Atomic(struct gmsfs_graph_pool *) pool; /* NULL: it was given back, or closed with its pool */
    struct gmsfs_graph_space *next;
    uintptr_t base;
    uint64_t reserved_bytes;
    int eager;

    /* Changed under op and state. */
    size_t reached; /* chunks; mapped while the pool is awake */
    size_t mapped;
    size_t selected;           /* streams */
    struct gfs_slabs segments; /* one slab, as large as the space */
    uint64_t live_bytes;
    struct gfs_chunks own; /* of an eager one: as many as `mapped` */
};

enum gfs_graph_phase {
    GFS_GRAPH_ASLEEP,
    GFS_GRAPH_AWAKE,
    GFS_GRAPH_FALLING, /* a sleep failed half-way */
};

struct gfs_graph_guard {
    pthread_mutex_t mutex;
    pthread_cond_t left;
    int inside;
    int closed;
    pthread_t owner;
    struct gfs_turn turn; /* the owner's */
};

struct gmsfs_graph_pool {
    pthread_mutex_t op;
    pthread_mutex_t state;
    struct gmsfs_graph_pool *next; /* registry */
    size_t users;                  /* calls of the pair that are under way; registry */
    atomic_int closed;
    struct gmsfs_store *handle;
    uint64_t chunk_bytes;
    struct gfs_graph_guard guard;

    /* Changed under op and state. */
    enum gfs_graph_phase phase;
    struct gmsfs_graph_space *spaces;
    struct gfs_chunks shared;
    size_t high; /* chunks */
    uint64_t waiters;
};

/* ---- graph_enter.c ------------------------------------------------------------------------ */

/* May calls use this pool? -EINVAL: it is NULL; -EBADF: it was closed; -ECHILD: it was opened
 * before fork(). */
int gfs_graph_check_pool(const struct gmsfs_graph_pool *pool);
/* Takes `op`, which gfs_graph_end gives back; meanwhile pthread_cancel(3) waits. As
 * gfs_graph_check_pool; -EDEADLK: this thread is in a call on it. */
int gfs_graph_begin(struct gmsfs_graph_pool *pool);
void gfs_graph_end(struct gmsfs_graph_pool *pool);
/* The same for calls that unmap: nobody launches meanwhile. -EDEADLK: this thread does. */
int gfs_graph_begin_unmap(struct gmsfs_graph_pool *pool);
void gfs_graph_end_unmap(struct gmsfs_graph_pool *pool);
/* Inside op: the handle's op and the memory's scope, until the block is left in which GFS_VA_SCOPE
 * declares it, or gfs_va_leave. `must` as in gfs_memory_enter. */
int gfs_graph_enter(struct gmsfs_graph_pool *pool, int must, struct gfs_va_scope *scope);
/* Inside the handle's op. 0, -ENOLCK: asleep, or -ESTALE: its session is gone. */
int gfs_graph_check_awake(const struct gmsfs_graph_pool *pool);
/* Inside the handle's op, asleep: the store that has the pool's name now, made if there is none. */
int gfs_graph_reopen_store(struct gmsfs_graph_pool *pool);
void gfs_graph_state_lock(struct gmsfs_graph_pool *pool);
void gfs_graph_state_unlock(struct gmsfs_graph_pool *pool);

/* ---- graph_registry.c ----------------------------------------------------------------------- */

void gfs_graph_register(struct gmsfs_graph_pool *pool);
/* When it returns, the pair knows the pool no more, and no call of it is under way. */
void gfs_graph_unregister(struct gmsfs_graph_pool *pool);
/* The lock is held for moments; a pool that was found in it is kept by `use`. */
void gfs_graph_registry_lock(void);
void gfs_graph_registry_unlock(void);
struct gmsfs_graph_pool *gfs_graph_registry_first(void);
/* What is selected on the stream; else what this thread selected last. */
struct gmsfs_graph_space *gfs_graph_registry_find(int device, void *stream);
void gfs_graph_registry_use(struct gmsfs_graph_pool *pool);
void gfs_graph_registry_unuse(struct gmsfs_graph_pool *pool);

/* Around fork(), inside the gate. */
void gfs_graph_fork_prepare(void);
void gfs_graph_fork_parent(void);
void gfs_graph_fork_child(void);

/* ---- graph_space.c, inside op and scope ---------------------------------------------------- */

/* Is a space selected that is not eager? */
int gfs_graph_is_capturing(struct gmsfs_graph_pool *pool);
/* Chunks up to the end of the last live segment. */
size_t gfs_graph_space_live_reach(const struct gmsfs_graph_space *space, uint64_t chunk_bytes);
/* Under `state`. -ENOENT. */
int gfs_graph_space_give_back(struct gmsfs_graph_space *space, uintptr_t va);
/* gmsfs_graph_space_alloc, outside of op, where the space may be gone by now: -ENOENT. alloc_flags:
 * of the chunks that have to be made, GMSFS_ALLOC_*. */
int gfs_graph_space_alloc(struct gmsfs_graph_pool *pool, struct gmsfs_graph_space *space,
                          uint64_t size_bytes, unsigned alloc_flags, void **ptr);
/* The same for one that the program knows, and may use though it is gone: -EBADF then. */
void gfs_graph_space_retire(struct gmsfs_graph_space *space);
/* Outside of op: its pool's `state`, for gfs_graph_state_unlock. -EBADF, -ECHILD. */
int gfs_graph_space_lock(struct gmsfs_graph_space *space, struct gmsfs_graph_pool **pool);

/* ---- graph_chunks.c, inside op and scope ----------------------------------------------------- */

int gfs_chunks_make_room(struct gfs_chunks *chunks, size_t count);
/* Allocates `count` more in the store and holds them, behind those in `chunks`; all or nothing. */
int gfs_graph_make_chunks(struct gmsfs_graph_pool *pool, struct gfs_chunks *chunks, size_t count,
                          unsigned alloc_flags);
/* Frees the last one in the store, and lets it go. */
int gfs_graph_free_last_chunk(struct gmsfs_graph_pool *pool, struct gfs_chunks *chunks);
/* Holds what the store has from rank `first` on, behind those in `chunks`, where there is room. */
int gfs_graph_hold_chunks(struct gmsfs_graph_pool *pool, struct gfs_chunks *chunks, uint64_t first,
                          size_t count);
void gfs_graph_let_go(struct gmsfs_graph_pool *pool, struct gfs_chunks *chunks);
/* Maps what the space lacks up to `reach` chunks, which there are; all or nothing. */
int gfs_graph_map(struct gmsfs_graph_space *space, size_t reach);
/* Down to `reach` chunks mapped. Nobody uses what is behind. */
int gfs_graph_unmap(struct gmsfs_graph_space *space, size_t reach);
/* Makes the space as large as that, with memory. All or nothing. */
int gfs_graph_grow(struct gmsfs_graph_space *space, size_t reach, unsigned alloc_flags);
/* Chunks of an eager space from `keep` on become the pool's surplus. */
void gfs_graph_return_own(struct gmsfs_graph_space *space, size_t keep);
/* Chunks that the spaces reach, of the shared ones alone and all together; and all there are. */
size_t gfs_graph_shared_reach(const struct gmsfs_graph_pool *pool);
size_t gfs_graph_needed(const struct gmsfs_graph_pool *pool);
size_t gfs_graph_physical(const struct gmsfs_graph_pool *pool);
void gfs_graph_note_high(struct gmsfs_graph_pool *pool);

/* ---- graph_guard.c --------------------------------------------------------------------------- */

void gfs_graph_guard_init(struct gfs_graph_guard *guard);
void gfs_graph_guard_destroy(struct gfs_graph_guard *guard);
/* Nobody comes in any more: -EBADF, for those that wait too. */
void gfs_graph_guard_close(struct gfs_graph_guard *guard);
/* Waits until no other thread is inside; -EDEADLK: this one is. */
int gfs_graph_guard_take(struct gfs_graph_guard *guard);
/* The same, or (refuse) -EBUSY. */
int gfs_graph_guard_try(struct gfs_graph_guard *guard, int refuse);
int gfs_graph_guard_is_mine(struct gfs_graph_guard *guard);
void gfs_graph_guard_give_back(struct gfs_graph_guard *guard);
/* This thread ends. */
void gfs_graph_guard_leave_thread(struct gfs_graph_guard *guard);

/* ---- graph_note.c, inside op and the handle's ------------------------------------------------ */

/* Says in the store what the pool is now. It is for those who look: a failure is none of the
 * pool's. */
void gfs_graph_note(struct gmsfs_graph_pool *pool);
void gfs_graph_note_remove(struct gmsfs_graph_pool *pool);

#endif
