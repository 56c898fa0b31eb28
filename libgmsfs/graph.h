/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph - shared by the files of graph pools; of the others only fork.c includes it
 *
 *   graph_enter.c     the locks of a call
 *   graph_registry.c  all pools, for the allocator pair and for fork; the selections of streams
 *   graph_note.c      the entry in which an awake pool describes itself
 *   graph_guard.c     one launch at a time
 *   graph_launch.c    before and after a launch
 *   graph_chunks.c    chunks: made, held, mapped, given back
 *   graph_space.c     spaces, and the segments in them
 *   graph_sleep.c     waking, sleeping, shrinking
 *   graph_pair.c      the two allocator functions for torch
 *   graph.c           life of a pool
 *
 * Chunk k of every space that is not eager is the pool's shared chunk k; an eager space has chunks
 * of its own. A space is mapped from its beginning, as far as it was ever reached.
 *
 * A public call holds the pool's `op`, and inside of it the handle's. A call that unmaps takes the
 * guard of launches first, because a thread that launches may allocate. Fields that
 * gmsfs_graph_dealloc and the statistics read are changed under `state` too, a mutex that is held
 * for moments only. Lock order:
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
    _Atomic(struct gmsfs_graph_pool *) pool; /* NULL after it was freed, or closed with its pool */
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
    struct gfs_chunks own; /* of an eager space: as many as `mapped` */
};

enum gfs_graph_phase {
    GFS_GRAPH_ASLEEP,
    GFS_GRAPH_AWAKE,
    GFS_GRAPH_FALLING, /* a sleep failed half-way, and has to be repeated */
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
    size_t users;                  /* running calls of the pair; registry */
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

/* 0 if calls may use this pool. -EINVAL: it is NULL; -EBADF: it was closed; -ECHILD: it was opened
 * before fork(). */
int gfs_graph_check_pool(const struct gmsfs_graph_pool *pool);
/* Takes `op`, until gfs_graph_end, and defers pthread_cancel(3). Errors as gfs_graph_check_pool;
 * -EDEADLK: this thread is in a call on it. */
int gfs_graph_begin(struct gmsfs_graph_pool *pool);
void gfs_graph_end(struct gmsfs_graph_pool *pool);
/* As gfs_graph_begin, for calls that unmap: excludes launches. -EDEADLK: this thread is in a
 * launch. */
int gfs_graph_begin_unmap(struct gmsfs_graph_pool *pool);
void gfs_graph_end_unmap(struct gmsfs_graph_pool *pool);
/* Inside op: takes the handle's op and the memory's scope, until the end of the block with the
 * GFS_VA_SCOPE, or gfs_va_leave. `must` as in gfs_memory_enter. */
int gfs_graph_enter(struct gmsfs_graph_pool *pool, int must, struct gfs_va_scope *scope);
/* Inside the handle's op. 0, -ENOLCK: asleep, or -ESTALE: its session is gone. */
int gfs_graph_check_awake(const struct gmsfs_graph_pool *pool);
/* Inside the handle's op, asleep: opens the store that has the pool's name now, or makes it. */
int gfs_graph_reopen_store(struct gmsfs_graph_pool *pool);
void gfs_graph_state_lock(struct gmsfs_graph_pool *pool);
void gfs_graph_state_unlock(struct gmsfs_graph_pool *pool);

/* ---- graph_registry.c ----------------------------------------------------------------------- */

void gfs_graph_register(struct gmsfs_graph_pool *pool);
/* Once it returns, the pair does not find the pool any more, and none of its calls is running. */
void gfs_graph_unregister(struct gmsfs_graph_pool *pool);
/* The lock is held for moments; `use` keeps a pool alive after the lock was released. */
void gfs_graph_registry_lock(void);
void gfs_graph_registry_unlock(void);
struct gmsfs_graph_pool *gfs_graph_registry_first(void);
/* Returns the selection of the stream; else this thread's last selection. */
struct gmsfs_graph_space *gfs_graph_registry_find(int device, void *stream);
void gfs_graph_registry_unuse(struct gmsfs_graph_pool *pool);

/* Around fork(), inside the gate. */
void gfs_graph_fork_prepare(void);
void gfs_graph_fork_parent(void);
void gfs_graph_fork_child(void);

/* ---- graph_space.c, inside op and scope ---------------------------------------------------- */

/* True if a space that is not eager is selected. */
int gfs_graph_is_capturing(struct gmsfs_graph_pool *pool);
/* Returns the number of chunks up to the end of the last live segment. */
size_t gfs_graph_space_live_reach(const struct gmsfs_graph_space *space, uint64_t chunk_bytes);
/* Frees a segment. Under `state`. -ENOENT. */
int gfs_graph_space_give_back(struct gmsfs_graph_space *space, uintptr_t va);
/* gmsfs_graph_space_alloc, outside of op, so the space may have been freed: -ENOENT. alloc_flags:
 * GMSFS_ALLOC_* for new chunks. */
int gfs_graph_space_alloc(struct gmsfs_graph_pool *pool, struct gmsfs_graph_space *space,
                          uint64_t size_bytes, unsigned alloc_flags, void **ptr);
/* Ends a space, but remembers it for a while, as a program may still use it: -EBADF then. */
void gfs_graph_space_retire(struct gmsfs_graph_space *space);
/* Outside of op: locks `state` of its pool, until gfs_graph_state_unlock. -EBADF, -ECHILD. */
int gfs_graph_space_lock(struct gmsfs_graph_space *space, struct gmsfs_graph_pool **pool);

/* ---- graph_chunks.c, inside op and scope ----------------------------------------------------- */

int gfs_chunks_make_room(struct gfs_chunks *chunks, size_t count);
/* Allocates `count` more in the store and holds them, behind those in `chunks`; all or nothing. */
int gfs_graph_make_chunks(struct gmsfs_graph_pool *pool, struct gfs_chunks *chunks, size_t count,
                          unsigned alloc_flags);
/* Frees the last chunk in the store, and releases it. */
int gfs_graph_free_last_chunk(struct gmsfs_graph_pool *pool, struct gfs_chunks *chunks);
/* Holds the store's chunks from rank `first` on, behind those in `chunks`, which has room. */
int gfs_graph_hold_chunks(struct gmsfs_graph_pool *pool, struct gfs_chunks *chunks, uint64_t first,
                          size_t count);
void gfs_graph_let_go(struct gmsfs_graph_pool *pool, struct gfs_chunks *chunks);
/* Maps the space up to `reach` chunks, which exist; all or nothing. */
int gfs_graph_map(struct gmsfs_graph_space *space, size_t reach);
/* Unmaps the unused chunks behind `reach`. */
int gfs_graph_unmap(struct gmsfs_graph_space *space, size_t reach);
/* Grows the space to `reach` chunks, makes missing ones and maps them. All or nothing. */
int gfs_graph_grow(struct gmsfs_graph_space *space, size_t reach, unsigned alloc_flags);
/* Chunks of an eager space from `keep` on become the pool's surplus. */
void gfs_graph_return_own(struct gmsfs_graph_space *space, size_t keep);
/* Return the number of shared chunks that the spaces reach; of all chunks that they reach; and of
 * all chunks. */
size_t gfs_graph_shared_reach(const struct gmsfs_graph_pool *pool);
size_t gfs_graph_needed(const struct gmsfs_graph_pool *pool);
size_t gfs_graph_physical(const struct gmsfs_graph_pool *pool);
void gfs_graph_note_high(struct gmsfs_graph_pool *pool);

/* ---- graph_guard.c --------------------------------------------------------------------------- */

void gfs_graph_guard_init(struct gfs_graph_guard *guard);
void gfs_graph_guard_destroy(struct gfs_graph_guard *guard);
/* Refuses all later and waiting threads: -EBADF. */
void gfs_graph_guard_close(struct gfs_graph_guard *guard);
/* Waits until no other thread is inside, or (refuse) returns -EBUSY; -EDEADLK: this one is. */
int gfs_graph_guard_take(struct gfs_graph_guard *guard, int refuse);
int gfs_graph_guard_is_mine(struct gfs_graph_guard *guard);
void gfs_graph_guard_give_back(struct gfs_graph_guard *guard);
/* Leaves the guard for a thread that ends. */
void gfs_graph_guard_leave_thread(struct gfs_graph_guard *guard);

/* ---- graph_note.c, inside op and the handle's ------------------------------------------------ */

/* Updates the pool's description in the store, which is for observers: a failure does not fail the
 * pool's call. */
void gfs_graph_note(struct gmsfs_graph_pool *pool);
void gfs_graph_note_remove(struct gmsfs_graph_pool *pool);

#endif
