/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs_graph.h - memory of CUDA graphs: many captured shapes over one set of pages
 *
 * A graph pool is scratch memory for CUDA graphs of which one runs at a time, in a store of its
 * own. The store's allocations are chunks of one size. Addresses come from spaces, one for each
 * shape (or for several that are captured into one): a space is reserved at once and mapped as far
 * as its shape reached. Chunk k of every space is the same memory, the pool's chunk k, so all
 * shapes together cost what the largest one does.
 *
 * An eager space is for what a program allocates and keeps, its input and output buffers say: its
 * chunks are nobody else's.
 *
 * A pool is awake or asleep. Awake it holds the store's RW lock, and its chunks. Asleep it has
 * neither, but all spaces keep their addresses and what is allocated in them, so graphs stay valid;
 * awake again they may be launched. What memory contains is lost with every sleep, also that of
 * eager spaces, and may be of another process then. A program that dies awake leaves an EMPTY
 * store; after a sleep with GMSFS_GRAPH_KEEP the memory stays until another pool wakes on it.
 *
 * THREADS, FORK as for handles: the calls on a pool are done one after the other. Not held up by
 * one that waits are gmsfs_graph_dealloc, gmsfs_graph_space_dealloc and the statistics. A space
 * belongs to its pool: gmsfs_graph_close ends both, and what others wait for, a wake with
 * -ECANCELED, a launch with -EBADF. No call aborts.
 *
 * ERRORS beside those named at each:
 *   -EBUSY   where a call unmaps memory (sleep, shrink, free): a space of the pool that is not
 *     eager is selected, or a stream is capturing (gmsfs_set_streams); nothing has changed
 *   -EDEADLK where a call unmaps memory: this thread is between gmsfs_graph_enter and
 *     gmsfs_graph_leave. Other threads that are there are waited for
 *   -ESTALE  also: an administrator ended the session. gmsfs_graph_sleep puts that in order
 */
#ifndef GMSFS_GRAPH_H
#define GMSFS_GRAPH_H

#include "gmsfs.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gmsfs_graph_pool gmsfs_graph_pool_t;
typedef struct gmsfs_graph_space gmsfs_graph_space_t;

#define GMSFS_GRAPH_CHUNK_BYTES (UINT64_C(32) << 20) /* by default */
#define GMSFS_GRAPH_TAG         "gmsfs.graph"        /* of each chunk */

/* What a pool has, in bytes. Addresses cost nothing, mappings next to nothing; memory is
 * physical_bytes. */
struct gmsfs_graph_stats {
    int awake;
    uint64_t chunk_bytes;
    uint64_t physical_bytes; /* chunks that the pool holds; 0 asleep */
    uint64_t needed_bytes;   /* of them mapped somewhere; asleep: as many as it wakes up to */
    uint64_t eager_bytes;    /* of those needed, what eager spaces have for themselves */
    uint64_t high_bytes;     /* the most physical_bytes that there were since the pool was opened */
    uint64_t mapped_bytes;   /* by all spaces together; 0 asleep */
    uint64_t address_bytes;  /* reserved by all spaces together */
    uint64_t spaces;
    uint64_t live; /* segments: allocated in a space and not given back */
    uint64_t live_bytes;
    uint64_t selected; /* streams that have a space selected */
    uint64_t waiters;  /* writers that wait for the store: other pools that want their turn; 0
                        * asleep. While another call is under way, as last known */
};

struct gmsfs_graph_space_stats {
    void *base;
    int eager;
    uint64_t address_bytes;
    uint64_t reached_bytes; /* whole chunks, mapped while the pool is awake */
    uint64_t live;
    uint64_t live_bytes;
};

/*
 * gmsfs_graph_open - a pool over the store at `path`, asleep and without spaces
 *
 * path: a directory directly below a mount; made with mode 0700 where it is missing, and never
 *   removed. Nothing else belongs in that store.
 * chunk_bytes: a multiple of the mount's granularity; 0: GMSFS_GRAPH_CHUNK_BYTES, rounded up to it.
 * Errors: as gmsfs_open and mkdir(2); -EACCES also: the store may not be written to.
 */
GMSFS_API int gmsfs_graph_open(const char *path, uint64_t chunk_bytes, gmsfs_graph_pool_t **pool);

/*
 * gmsfs_graph_close - end the pool with all its spaces, as gmsfs_close does a handle
 *
 * Memory that was not kept goes back. What is still given to gmsfs_graph_dealloc of it later is
 * ignored: addresses of spaces with live segments stay reserved for good, so that no pool made
 * later has them. Graphs captured in it must not be launched any more. NULL is allowed.
 */
GMSFS_API void gmsfs_graph_close(gmsfs_graph_pool_t *pool);

/*
 * The pool's handle, for gmsfs_set_streams, gmsfs_set_synchronise, gmsfs_set_devices,
 * gmsfs_device_error, and for looking. Its lock, mappings and life are the pool's. NULL: `pool` is.
 */
GMSFS_API gmsfs_t *gmsfs_graph_handle(gmsfs_graph_pool_t *pool);

/*
 * gmsfs_graph_wake - take the lock, make what is missing, map every space at its addresses
 *
 * timeout_ms: for the lock, as in gmsfs_connect: another pool, or a reader, may hold the store.
 * With the lock it waits for memory as long as the mount does (alloc_timeout), with 0 not at all.
 * Chunks that the store holds (GMSFS_GRAPH_KEEP) are taken by rank, whatever the layout's hash and
 * generation. What the spaces need beyond is allocated first; what is more than they need stays
 * with the pool, for growth, until gmsfs_graph_shrink.
 * A store that was removed meanwhile, or whose mount was made anew for the same device, is made
 * anew. All or nothing: on failure the pool is asleep, and kept chunks are still in the store.
 * Errors: as gmsfs_connect, gmsfs_allocate_handle and gmsfs_graph_open; -EBUSY: it is awake;
 *   -EINVAL: the store holds chunks of another size, or what is no chunk; -EXDEV: the store of that
 *   name is another device's now.
 */
GMSFS_API int gmsfs_graph_wake(gmsfs_graph_pool_t *pool, uint64_t timeout_ms);

#define GMSFS_GRAPH_KEEP (1u << 0)

/*
 * gmsfs_graph_sleep - unmap all spaces, give the memory back, release the lock
 *
 * Waits for the work of the context, and for threads between gmsfs_graph_enter and _leave.
 * flags: GMSFS_GRAPH_KEEP: commit the chunks, so that the memory stays and the next pool takes its
 *   turn over it at once. One trust domain: the next reads what is in it.
 * A pool that is asleep stays so: 0.
 * Errors: as gmsfs_unmap_all_vas and (KEEP) gmsfs_commit. After -ENOTCONN and -ESTALE the pool is
 *   asleep, and nothing was kept. After others it is awake, perhaps without some of its mappings:
 *   then only gmsfs_graph_sleep, to go on with it, and gmsfs_graph_close are of use, and other
 *   calls answer -ENOLCK.
 */
GMSFS_API int gmsfs_graph_sleep(gmsfs_graph_pool_t *pool, unsigned flags);

/*
 * gmsfs_graph_grow - have size_bytes of memory (rounded up to chunks), before spaces need it
 *
 * Captures then find it, so that none is held up by what makes memory, or fails for want of it: an
 * earlier run's high_bytes says how much. What no space reaches goes with the next
 * gmsfs_graph_shrink or sleep. A pool that has as much stays as it is.
 * Errors: -ENOLCK: asleep. Others as gmsfs_graph_space_alloc; then nothing was made.
 */
GMSFS_API int gmsfs_graph_grow(gmsfs_graph_pool_t *pool, uint64_t size_bytes);

/*
 * gmsfs_graph_shrink - give back the memory that no live segment needs
 *
 * Every space is unmapped behind its last live segment, and chunks that none reaches any more go
 * back to the device. Addresses stay; spaces grow again when they are allocated from.
 * freed_bytes: optional; also written on failure, for the chunks that were given back by then.
 * Errors: -ENOLCK: asleep.
 */
GMSFS_API int gmsfs_graph_shrink(gmsfs_graph_pool_t *pool, uint64_t *freed_bytes);

/* No lock is needed, and no call waits for others. */
GMSFS_API int gmsfs_graph_get_stats(gmsfs_graph_pool_t *pool, struct gmsfs_graph_stats *stats,
                                    size_t stats_bytes);
#define gmsfs_graph_get_stats(pool, stats) \
    gmsfs_graph_get_stats(pool, stats, sizeof(struct gmsfs_graph_stats))

#define GMSFS_GRAPH_EAGER (1u << 0)

/*
 * gmsfs_graph_space_new - reserve the addresses of a new space; awake or asleep
 *
 * reserve_bytes: what may ever be allocated in it, rounded up to a chunk; it costs addresses only.
 * flags: GMSFS_GRAPH_EAGER: chunks that nothing else shares.
 * Errors: -ENOMEM: no such room in the address space.
 */
GMSFS_API int gmsfs_graph_space_new(gmsfs_graph_pool_t *pool, uint64_t reserve_bytes,
                                    unsigned flags, gmsfs_graph_space_t **space);

/*
 * gmsfs_graph_space_free - give the addresses back; other spaces are not touched
 *
 * Waits for the work of the context. The memory stays with the pool until gmsfs_graph_shrink.
 * `space` must not be used afterwards. NULL is allowed.
 * Errors: -EBUSY also: it has live segments, or is selected.
 */
GMSFS_API int gmsfs_graph_space_free(gmsfs_graph_space_t *space);

GMSFS_API int gmsfs_graph_space_get_stats(gmsfs_graph_space_t *space,
                                          struct gmsfs_graph_space_stats *stats,
                                          size_t stats_bytes);
#define gmsfs_graph_space_get_stats(space, stats) \
    gmsfs_graph_space_get_stats(space, stats, sizeof(struct gmsfs_graph_space_stats))

/*
 * gmsfs_graph_space_alloc - a segment of a space: buffers, and whoever has no need of the pair
 * below
 *
 * At the lowest address where it fits, a multiple of 512 bytes; memory has any contents. What the
 * space did not reach before is mapped, and the chunks for it are allocated where the pool has
 * none, which waits for memory up to the mount's alloc_timeout; also while streams capture. All or
 * nothing.
 * Errors: as gmsfs_allocate_handle and gmsfs_map_va; -ENOLCK: asleep; -ENOSPC: the space's
 * addresses are used up.
 */
GMSFS_API int gmsfs_graph_space_alloc(gmsfs_graph_space_t *space, uint64_t size_bytes, void **ptr);

/* ptr: where a segment of the space begins. It stays mapped, until gmsfs_graph_shrink. Awake or
 * asleep. Errors: -ENOENT. */
GMSFS_API int gmsfs_graph_space_dealloc(gmsfs_graph_space_t *space, void *ptr);

/*
 * gmsfs_graph_select - what gmsfs_graph_alloc is asked for on `stream` comes from `space`
 *
 * stream: CUstream, cudaStream_t; of host memory any value. Holds in every thread, until
 * gmsfs_graph_deselect, as many of them as there were selections. For a stream that has nothing
 * selected, as those that a capture draws in, it is what the allocating thread selected last and
 * has selected still. Several streams may have the same space selected, and different streams
 * different ones. Errors: -EBUSY: the stream has another space selected.
 */
GMSFS_API int gmsfs_graph_select(gmsfs_graph_space_t *space, void *stream);

/* Undoes this thread's last selection on the stream; where it has none, another one's. Errors:
 * -ENOENT: no space of this pool is selected on the stream. */
GMSFS_API int gmsfs_graph_deselect(gmsfs_graph_pool_t *pool, void *stream);

/*
 * gmsfs_graph_alloc, gmsfs_graph_dealloc - the two functions that PyTorch's CUDAPluggableAllocator
 * is given, by these names
 *
 * alloc: from the space that is selected on the stream. device: the ordinal, as the driver counts.
 *   NULL is a failure: torch raises OutOfMemoryError. It waits for memory only if that is being
 *   given back at that very moment (GMSFS_ALLOC_NOWAIT): torch holds up all that allocates then.
 * dealloc: ptr is all it goes by. An address that is in no space (any more) is ignored. It calls
 *   neither driver nor mount.
 * Both may be called at any time: from any thread, at exit, after gmsfs_graph_close, when the
 * context is gone. In a child of fork() they do nothing for the parent's pools.
 */
GMSFS_API void *gmsfs_graph_alloc(intptr_t size_bytes, int device, void *stream);
GMSFS_API void gmsfs_graph_dealloc(void *ptr, intptr_t size_bytes, int device, void *stream);

/* Why the last gmsfs_graph_alloc of this thread gave NULL: a negative errno as of
 * gmsfs_graph_space_alloc, or -ENOENT: no space is selected on that stream. 0: it did not. */
GMSFS_API int gmsfs_graph_alloc_error(void);

enum gmsfs_graph_guard {
    GMSFS_GRAPH_ORDER = 1,  /* one after the other, on the device */
    GMSFS_GRAPH_REFUSE = 2, /* -EBUSY while another one runs */
};

/*
 * gmsfs_graph_enter - before a launch on `stream`: two graphs of a pool must not run at once
 *
 * Between enter and gmsfs_graph_leave a thread has the pool to itself, to launch: others that enter
 * wait (ORDER) or are refused. ORDER: what the stream is given next runs behind what was launched
 * under the guard before. Host memory has no streams: there the guard is the threads' alone.
 * Graphs that order themselves, by an external event captured into each, need it only to be
 * refused, or where several threads launch. The stream's context is the thread's current one.
 * A thread that ends in between has left, but what it launched is not waited for.
 * Errors: -ENOLCK: the pool is asleep; -EBUSY: another one launches or runs (REFUSE), or the stream
 *   is capturing; -EDEADLK: this thread has entered already.
 */
GMSFS_API int gmsfs_graph_enter(gmsfs_graph_pool_t *pool, void *stream,
                                enum gmsfs_graph_guard guard);

/* After the launch, in the same thread. Also after an error of it. Errors: -EPERM: this thread has
 * not entered; others mean that the launch is not known to the guard. */
GMSFS_API int gmsfs_graph_leave(gmsfs_graph_pool_t *pool, void *stream);

#ifdef __cplusplus
}
#endif
#endif
