/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs_graph.h - memory of CUDA graphs: many captured shapes over one set of pages
 *
 * A graph pool is scratch memory for CUDA graphs of which one runs at a time, in a store of its
 * own. The store's allocations are chunks of one size. Addresses come from spaces, one for each
 * shape (or one for several shapes that are captured into it): a space is reserved at once and
 * mapped as far as its shape reached. Chunk k of every space is the same memory, the pool's chunk
 * k, so all shapes together cost as much as the largest one.
 *
 * An eager space is for memory that a program allocates and keeps, for example its input and output
 * buffers: it shares its chunks with no other space.
 *
 * A pool is awake or asleep. Awake, it holds the store's RW lock, and its chunks. Asleep, it holds
 * neither, but all spaces keep their addresses and their segments, so graphs stay valid and may be
 * launched again after the next wake. Every sleep loses the contents of the memory, also those of
 * eager spaces; after a wake it may be other memory, with another process's old bytes. A program
 * that dies awake leaves an EMPTY store; after a sleep with GMSFS_GRAPH_KEEP the memory stays until
 * another pool wakes on it.
 *
 * THREADS, FORK as for handles: calls on a pool run one after the other. gmsfs_graph_dealloc,
 * gmsfs_graph_space_dealloc and the statistics do not wait for a call that waits. A space belongs
 * to its pool: gmsfs_graph_close ends both, and the waits of other threads: a wake with -ECANCELED,
 * a launch with -EBADF. No call aborts the process.
 *
 * ERRORS beside the own errors of each function:
 *   -EBUSY   in calls that unmap memory (sleep, shrink, free): a space of the pool that is not
 *     eager is selected, or a stream is capturing (gmsfs_set_streams); nothing has changed
 *   -EDEADLK in calls that unmap memory: this thread is between gmsfs_graph_enter and
 *     gmsfs_graph_leave. The call waits for other threads that are between them
 *   -ESTALE  also: an administrator ended the session. gmsfs_graph_sleep recovers from it
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

/* Use of a pool, in bytes. Addresses cost nothing, mappings next to nothing; physical_bytes is the
 * memory. */
struct gmsfs_graph_stats {
    int awake;
    uint64_t chunk_bytes;
    uint64_t physical_bytes; /* chunks that the pool holds; 0 asleep */
    uint64_t needed_bytes;   /* of them mapped by a space; asleep: bytes that the next wake needs */
    uint64_t eager_bytes;    /* part of needed_bytes that eager spaces own */
    uint64_t high_bytes;     /* the highest physical_bytes since the pool was opened */
    uint64_t mapped_bytes;   /* by all spaces together; 0 asleep */
    uint64_t address_bytes;  /* reserved by all spaces together */
    uint64_t spaces;
    uint64_t live; /* segments: allocated in a space and not given back */
    uint64_t live_bytes;
    uint64_t selected; /* streams that have a space selected */
    uint64_t waiters;  /* writers that wait for the store: other pools in the queue; 0 asleep. While
                        * another call runs, as last known */
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
 * gmsfs_graph_open - open a pool over the store at `path`, asleep and without spaces
 *
 * path: a directory directly below a mount; made with mode 0700 if it is missing, and never
 *   removed. The store must serve nothing else.
 * chunk_bytes: a multiple of the mount's granularity; 0: GMSFS_GRAPH_CHUNK_BYTES, rounded up to it.
 * Errors: as gmsfs_open and mkdir(2); -EACCES also: the store may not be written to.
 */
GMSFS_API int gmsfs_graph_open(const char *path, uint64_t chunk_bytes, gmsfs_graph_pool_t **pool);

/*
 * gmsfs_graph_close - end the pool with all its spaces, as gmsfs_close does a handle
 *
 * Memory that was not kept goes back to the device. A later gmsfs_graph_dealloc of one of its
 * segments is ignored: addresses of spaces with live segments stay reserved for good, so that no
 * later pool gets them. Graphs captured in it must not be launched any more. NULL is allowed.
 */
GMSFS_API void gmsfs_graph_close(gmsfs_graph_pool_t *pool);

/*
 * Returns the pool's handle, for gmsfs_set_streams, gmsfs_set_synchronise, gmsfs_set_devices,
 * gmsfs_device_error, and for looking. The pool alone locks, maps and closes it. Returns NULL only
 * if `pool` is NULL.
 */
GMSFS_API gmsfs_t *gmsfs_graph_handle(gmsfs_graph_pool_t *pool);

/*
 * gmsfs_graph_wake - take the lock, make missing chunks, map every space at its addresses
 *
 * timeout_ms: for the lock, as in gmsfs_connect: another pool, or a reader, may hold the store.
 * With the lock it waits for memory for the mount's alloc_timeout; with timeout 0 not at all.
 * Chunks that the store holds (GMSFS_GRAPH_KEEP) are taken by rank, without a look at the layout's
 * hash and generation. If the spaces need more, it is allocated first; if they need less, the rest
 * stays with the pool, for growth, until gmsfs_graph_shrink.
 * A store that was removed meanwhile, or whose mount was made anew for the same device, is made
 * anew. All or nothing: on failure the pool is asleep, and kept chunks are still in the store.
 * Errors: as gmsfs_connect, gmsfs_allocate_handle and gmsfs_graph_open; -EBUSY: it is awake;
 *   -EINVAL: the store holds chunks of another size, or another allocation than a chunk; -EXDEV:
 *   the store of that name is now on another device.
 */
GMSFS_API int gmsfs_graph_wake(gmsfs_graph_pool_t *pool, uint64_t timeout_ms);

#define GMSFS_GRAPH_KEEP (1u << 0)

/*
 * gmsfs_graph_sleep - unmap all spaces, give the memory back, release the lock
 *
 * Waits for the work of the context, and for threads between gmsfs_graph_enter and _leave.
 * flags: GMSFS_GRAPH_KEEP: commit the chunks, so that the memory stays and the next pool can use it
 *   at once. Only within one trust domain: the next pool can read the contents.
 * A pool that is asleep stays so: 0.
 * Errors: as gmsfs_unmap_all_vas and (KEEP) gmsfs_commit. After -ENOTCONN and -ESTALE the pool is
 *   asleep, and nothing was kept. After other errors it is awake, perhaps without
 *   some of its mappings: then only gmsfs_graph_sleep, which finishes the job, and
 *   gmsfs_graph_close are useful; other calls answer -ENOLCK.
 */
GMSFS_API int gmsfs_graph_sleep(gmsfs_graph_pool_t *pool, unsigned flags);

/*
 * gmsfs_graph_grow - get size_bytes of memory (rounded up to chunks) before spaces need it
 *
 * Captures then find the memory ready: none waits for an allocation, or fails because memory is
 * short. The high_bytes of an earlier run tells how much to ask for. The next gmsfs_graph_shrink or
 * sleep gives back chunks that no space reaches. A pool that has as much already does not change.
 * Errors: -ENOLCK: asleep. Others as gmsfs_graph_space_alloc; then no chunk was made.
 */
GMSFS_API int gmsfs_graph_grow(gmsfs_graph_pool_t *pool, uint64_t size_bytes);

/*
 * gmsfs_graph_shrink - give back the memory that no live segment needs
 *
 * Every space is unmapped behind its last live segment, and chunks that no space reaches any more
 * go back to the device. Addresses stay; spaces grow again when they are allocated from.
 * freed_bytes: optional; also written on failure: the bytes given back so far.
 * Errors: -ENOLCK: asleep.
 */
GMSFS_API int gmsfs_graph_shrink(gmsfs_graph_pool_t *pool, uint64_t *freed_bytes);

/* Needs no lock, and does not wait for other calls. */
GMSFS_API int gmsfs_graph_get_stats(gmsfs_graph_pool_t *pool, struct gmsfs_graph_stats *stats,
                                    size_t stats_bytes);
#define gmsfs_graph_get_stats(pool, stats) \
    gmsfs_graph_get_stats(pool, stats, sizeof(struct gmsfs_graph_stats))

#define GMSFS_GRAPH_EAGER (1u << 0)

/*
 * gmsfs_graph_space_new - reserve the addresses of a new space; awake or asleep
 *
 * reserve_bytes: the most that will be allocated in it, rounded up to a chunk; costs addresses
 *   only.
 * flags: GMSFS_GRAPH_EAGER: it shares its chunks with no other space.
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
 * gmsfs_graph_space_alloc - allocate a segment of a space, for buffers and for programs that do not
 * use the pair below
 *
 * At the lowest address where it fits, a multiple of 512 bytes; the contents are undefined. Maps
 * the space up to the segment's end, and allocates the chunks for it that the pool does not have
 * yet, which waits for memory up to the mount's alloc_timeout; also while streams capture. All or
 * nothing.
 * Errors: as gmsfs_allocate_handle and gmsfs_map_va; -ENOLCK: asleep; -ENOSPC: the space's
 *   addresses are used up.
 */
GMSFS_API int gmsfs_graph_space_alloc(gmsfs_graph_space_t *space, uint64_t size_bytes, void **ptr);

/* Frees a segment. ptr: its beginning. The memory stays mapped until gmsfs_graph_shrink. Awake or
 * asleep. Errors: -ENOENT. */
GMSFS_API int gmsfs_graph_space_dealloc(gmsfs_graph_space_t *space, void *ptr);

/*
 * gmsfs_graph_select - let gmsfs_graph_alloc on `stream` allocate from `space`
 *
 * stream: CUstream, cudaStream_t; of host memory any value. Applies to every thread, until
 * gmsfs_graph_deselect was called once for each selection. On a stream without a selection of its
 * own, for example one that a capture forked to, the space is the last one that the allocating
 * thread selected and has not deselected. Several streams may have the same space selected, and
 * different streams different ones.
 * Errors: -EBUSY: the stream has another space selected.
 */
GMSFS_API int gmsfs_graph_select(gmsfs_graph_space_t *space, void *stream);

/* Undoes this thread's last selection on the stream; if it has none, that of another thread.
 * Errors: -ENOENT: no space of this pool is selected on the stream. */
GMSFS_API int gmsfs_graph_deselect(gmsfs_graph_pool_t *pool, void *stream);

/*
 * gmsfs_graph_alloc, gmsfs_graph_dealloc - the two functions for PyTorch's CUDAPluggableAllocator,
 * by these names
 *
 * alloc: allocates from the space that is selected on the stream. device: the ordinal, as the
 *   driver counts. NULL is a failure: torch raises OutOfMemoryError. It waits for memory only if
 *   that is being given back at that very moment (GMSFS_ALLOC_NOWAIT), because torch blocks every
 *   other allocation meanwhile.
 * dealloc: uses only ptr, and ignores an address that is in no space (any more). It calls neither
 *   driver nor mount.
 * Both may be called at any time: from any thread, at exit, after gmsfs_graph_close, when the
 * context is gone. In a child of fork() they do nothing for the parent's pools.
 */
GMSFS_API void *gmsfs_graph_alloc(intptr_t size_bytes, int device, void *stream);
GMSFS_API void gmsfs_graph_dealloc(void *ptr, intptr_t size_bytes, int device, void *stream);

/* Returns why the last gmsfs_graph_alloc of this thread returned NULL: a negative errno of
 * gmsfs_graph_space_alloc, or -ENOENT: no space is selected on that stream; 0 if it succeeded. */
GMSFS_API int gmsfs_graph_alloc_error(void);

enum gmsfs_graph_guard {
    GMSFS_GRAPH_ORDER = 1,  /* one after the other, on the device */
    GMSFS_GRAPH_REFUSE = 2, /* -EBUSY while another one runs */
};

/*
 * gmsfs_graph_enter - call before a launch on `stream`: two graphs of a pool must not run at once
 *
 * Between enter and gmsfs_graph_leave one thread alone may launch: other threads that enter wait
 * (ORDER) or are refused. ORDER: work given to the stream next runs after all earlier launches
 * under the guard. Host memory has no streams: there the guard only excludes threads. Graphs that
 * order themselves, by an external event captured into each, need it only for REFUSE, or if several
 * threads launch. The stream's context is the thread's current one. A thread that ends in between
 * counts as having left, but later launches do not wait for its launch.
 * Errors: -ENOLCK: the pool is asleep; -EBUSY: another one launches or runs (REFUSE), or the stream
 *   is capturing; -EDEADLK: this thread has entered already.
 */
GMSFS_API int gmsfs_graph_enter(gmsfs_graph_pool_t *pool, void *stream,
                                enum gmsfs_graph_guard guard);

/* Call after the launch, also after a failed one, in the same thread. Errors: -EPERM: this thread
 * has not entered; others mean that the guard does not know of the launch. */
GMSFS_API int gmsfs_graph_leave(gmsfs_graph_pool_t *pool, void *stream);

#ifdef __cplusplus
}
#endif
#endif
