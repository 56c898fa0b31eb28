/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs.h - the client library of gmsfs: memory of a mounted store, locked, mapped and described
 *
 * This file has the handle, the lock, and looks at a store; gmsfs_memory.h, which it includes, has
 * the store's memory.
 *
 * For programs that load a model into a store, or map a model that is already there. A handle
 * (`gmsfs_t`) stands for one store, for example /mnt/gms/gpu0/weights. A process connects (takes
 * the store's lock, RO or RW), allocates or attaches, and maps; a writer then commits, or seals a
 * layout (final shape, changing bytes). The calls have the names that NVIDIA Dynamo's GPU Memory
 * Service gives its client.
 *
 * The library never exits, prints, changes signal dispositions or masks, or starts threads, except
 * one thread for a gmsfs_connect_start that has to wait. Every descriptor that it opens or returns
 * is O_CLOEXEC.
 *
 * RETURNS. Functions that return int return 0 (some return a non-negative number; their comments
 * say so) or a negative errno; errno itself is not part of the interface. Outputs are written on
 * success only, and may be NULL if marked "optional". A call that fails has changed nothing, unless
 * its comment says otherwise. Every function can return, beside its own errors:
 *   -EINVAL    an argument is NULL, zero or out of range and must not be
 *   -ENOMEM    the library has no memory for itself
 *   -ENOTCONN  the mount is dead: its daemon ended; -ETIMEDOUT: the daemon does not answer
 *   -EPROTO    the daemon sent an answer that this library does not understand
 *   -ENODEV    the device is gone; or the mount is drained (gmsfs drain), or fenced for a
 *              checkpoint (gmsfs fence), and grants no lock
 *   -EIO       the device failed; or the store may be damaged and admits no readers (gmsfs(5),
 *              Health)
 *   -ECHILD    the handle was opened before fork() and this is the child (see FORK); or the call
 *              needs GPU memory in the child of a process that has used the CUDA driver
 *   -EBADF     the handle was closed; -EDEADLK: this thread is in a call on it (see SIGNALS)
 *   -ESTALE    the session is over (it was revoked, or the store was removed)
 * Every function that maps or exports memory, or opens or reads a file of the mount, also returns:
 *   -EHOSTUNREACH `.fds` is not above the store: the store alone was bind-mounted
 *   -ENAMETOOLONG there is no /proc, and the store's path has more than 100 bytes
 *   -EMFILE, -ENFILE no descriptor is free
 *
 * TEXTS. A program may read the files of a mount by itself (gmsfs(5)). The bytes that read(2)
 * returns until it returns 0 are one whole version of a text. A reader that stops at st_size sees
 * one version, or only its beginning (without the final newline) if the text has grown meanwhile;
 * it never sees two versions mixed.
 *
 * THREADS. Any function may be called from any thread. Calls on one handle that talk to the mount
 * or change mappings run one after the other, also while one of them waits (gmsfs_connect,
 * gmsfs_remap_all_vas, allocation). These never wait for such a call: the properties
 * (gmsfs_granted_lock to gmsfs_session_token), gmsfs_resolve, gmsfs_locate, and gmsfs_cancel, which
 * ends the wait; gmsfs_disconnect and gmsfs_close end it themselves. Two handles are independent,
 * also on the same store: each has its own session. gmsfs_close must be the last call on a handle.
 * A closed handle answers -EBADF (also to a call that was waiting for its turn) as long as it is
 * among the 64 handles closed last; older ones must not be used. The same holds for graph pools,
 * spaces and regions, 64 each. pthread_cancel(3) of a thread in a call takes effect when the call
 * is over; if the call waits, call gmsfs_cancel first.
 *
 * SIGNALS do not end a wait: the call keeps its place in the queue and its remaining time. No
 * function is async-signal-safe. A call on a handle that this thread is already in a call on, from
 * a signal handler or from a function that the library calls (gmsfs_set_synchronise), returns
 * -EDEADLK; gmsfs_close then does nothing. Properties, gmsfs_resolve and gmsfs_locate work even
 * there, except during the moments in which the interrupted call changes the values that they
 * return: -EDEADLK, or 0.
 *
 * FORK. In a child of fork() every handle of the parent is dead: its descriptors are closed, and
 * its calls answer -ECHILD; only gmsfs_close is useful, to free the handle's heap memory. The
 * mappings and reservations do not exist in the child (MADV_DONTFORK), as device memory would not:
 * they belong to the process that made them, and a child pins no memory. A child that needs the
 * memory opens the store itself (and may gmsfs_join its parent's session). On a GPU this works only
 * if the parent had not used the CUDA driver before fork(). Otherwise calls that need the driver
 * answer -ECHILD, because the driver does not work in such a child: the child has to exec(3), or
 * has to be forked earlier. vfork() and posix_spawn() change nothing. Regions differ:
 * gmsfs_region.h.
 *
 * DESCRIPTORS. An open handle has two descriptors, and a third after its first export. Attaching
 * thousands of allocations under RLIMIT_NOFILE 1024 works: descriptors arrive in batches that fit
 * the free ones, and each is closed as soon as its memory is mapped.
 *
 * SIZES are in bytes, times in milliseconds. An allocation has the size that was asked for and an
 * aligned size, rounded up to the mount's granularity (2 MiB by default); mappings cover the
 * aligned size. A slot (uint64_t) is GMS's "handle": an allocation's number in its store's layout.
 *
 * VERSIONS. Each symbol has the version of the release that introduced it (GMSFS_0.1). The structs
 * that the mount and the library fill (info, statistics, mappings, handles, regions, layouts) may
 * grow in later releases. Their functions therefore take the struct's size as the program knows it;
 * macros of the same names add it. A program without these macros, in another language, passes the
 * size as the last argument (gmsfs_read_layout: two sizes, of an allocation and of an entry).
 * Structs that the program fills never change.
 *
 * FURTHER HEADERS. gmsfs_graph.h has the memory of CUDA graphs, gmsfs_region.h the named shared
 * memory of clients. Each includes this header, which includes neither: few programs need them. The
 * rules above hold there too.
 *
 * SOURCE OF FACTS. The mount: the library passes its answers on and does not cache them, except
 * where a comment says "as last known". The binary interface below this one is gmsfs_abi.h.
 */
#ifndef GMSFS_H
#define GMSFS_H

#include <stddef.h>
#include <stdint.h>

#include "gmsfs_abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define GMSFS_API __attribute__((visibility("default")))
#else
#define GMSFS_API
#endif

#define GMSFS_VERSION_MAJOR 0
#define GMSFS_VERSION_MINOR 1
#define GMSFS_VERSION_PATCH 0
/* One number to compare: 10203 for version 1.2.3. */
#define GMSFS_VERSION_NUMBER \
    (GMSFS_VERSION_MAJOR * 10000u + GMSFS_VERSION_MINOR * 100u + GMSFS_VERSION_PATCH)

/* Version of the library that runs, as text ("0.1.0") and as GMSFS_VERSION_NUMBER; the program may
 * have been built with the header of another version. */
GMSFS_API const char *gmsfs_version(void);
GMSFS_API unsigned gmsfs_version_number(void);

/* One store, opened by this process. Opaque. */
typedef struct gmsfs_store gmsfs_t;

#define GMSFS_HASH_TEXT_BYTES  33u /* 32 hex digits and NUL */
#define GMSFS_TOKEN_BYTES      16u
#define GMSFS_TOKEN_TEXT_BYTES 33u

/* Facts about the store at one moment. */
struct gmsfs_info {
    uint8_t store_id[16];
    uint8_t device_uuid[16];
    uint8_t group[16];                       /* given at the last commit; zeros: none */
    char layout_hash[GMSFS_HASH_TEXT_BYTES]; /* "" while nothing is committed or sealed, and
                                              * while a writer may change the layout */
    enum gmsfs_state state;
    enum gmsfs_mode mode;     /* of this handle's session; GMSFS_MODE_NONE: it has none */
    enum gmsfs_memory memory; /* of the device */
    int committed;            /* 1: a layout is committed */
    uint64_t generation;      /* number of commits and seals in the life of the store */
    uint64_t session;         /* as `sessions` and `lock` show it; 0: none */
    uint64_t allocations;     /* these three: of the layout that this handle sees, which is the */
    uint64_t entries;         /* working copy for the writer */
    uint64_t total_bytes;     /* sum of aligned sizes */
    uint64_t granularity_bytes;
    uint64_t readers;
    uint64_t writers_waiting;
    int sealed;         /* 1: a layout is sealed (gmsfs_commit_layout), adopted or not */
    unsigned residency; /* GMSFS_RESIDENCY_*: where the committed bytes are */
    /* Number of times that the bytes moved to other physical memory; a program that registers
     * mapped memory (NCCL, GPUDirect) registers it again after a change. */
    uint64_t moves;
};

/* A committed layout, as the file `layout` has it. */
struct gmsfs_layout_allocation {
    uint64_t size_bytes;
    uint64_t aligned_bytes;
    const char *tag;
};

struct gmsfs_layout_entry {
    const char *key; /* NUL-terminated; may also contain NULs: then key_bytes is the length */
    size_t key_bytes;
    uint64_t rank; /* GMSFS_SLOT_NONE: unbound */
    uint64_t offset;
    const void *value;
    size_t value_bytes;
};

struct gmsfs_layout {
    size_t allocation_count;
    size_t entry_count;
    struct gmsfs_layout_allocation *allocations; /* by rank */
    struct gmsfs_layout_entry *entries;          /* by key, bytewise */
    char hash[GMSFS_HASH_TEXT_BYTES];            /* the store's layout_hash when this was read */
};

/* ---- Opening -------------------------------------------------------------------------------- */

/*
 * gmsfs_open - open the store at `path` (a directory directly below a gmsfs mount)
 *
 * Takes no lock. The handle follows the store, not the name: after `mv` it is still on the same
 * store, and after `rmdir` its calls answer -ESTALE. Without write permission on the store the
 * handle can only read: asking for RW is then -EACCES.
 * Errors: -ENOENT, -EACCES, -ENOTDIR as open(2); -ENOTTY: `path` is not a gmsfs store.
 */
GMSFS_API int gmsfs_open(const char *path, gmsfs_t **handle);

/*
 * gmsfs_close - unmap everything, release the lock (an uncommitted writer aborts), free the handle
 *
 * All pointers into mappings and reservations of this handle become invalid. NULL is allowed.
 */
GMSFS_API void gmsfs_close(gmsfs_t *handle);

/*
 * gmsfs_reopen - open the store that is now at the path given to gmsfs_open
 *
 * For a reader after `weights.next` was renamed to `weights`. Preserved mappings stay reserved, so
 * gmsfs_remap_all_vas then maps the new store's memory if its layout is the same.
 * Errors: -EBUSY while connected or while anything is mapped; -EXDEV: the store there is on another
 * device, and addresses are reserved on this one; else as gmsfs_open, with the handle as it was.
 */
GMSFS_API int gmsfs_reopen(gmsfs_t *handle);

/* ---- The lock ------------------------------------------------------------------------------- */

#define GMSFS_CONNECT_REPLACE    (1u << 0)
#define GMSFS_CONNECT_ANY        (1u << 1)
#define GMSFS_CONNECT_KEEP_PLACE (1u << 2)

/*
 * gmsfs_set_connect_flags - set how this handle connects from now on
 *
 * flags: 0: if the store's bytes are not on its device, connecting waits until they are, both as
 *   the writer and as a reader.
 *   GMSFS_CONNECT_REPLACE: the writer does not wait for the bytes, because it will clear the store
 *   first (gmsfs_clear_all_handles); until then bytes that are elsewhere cannot be mapped or
 *   exported (-EAGAIN), nor committed.
 *   GMSFS_CONNECT_ANY: a reader does not wait for the bytes, and maps them where they are: bytes
 *   outside the GPU as host memory (gmsfs_info.memory says which), without the GPU. A handle that
 *   has reserved addresses already stays with their kind of memory, and calls that map another kind
 *   are -EXDEV. For gmsfs_connect only; a group's members do not change their kind.
 *   GMSFS_CONNECT_KEEP_PLACE: after -ETIMEDOUT the handle's place in the queue is reserved for one
 *   second: a call that asks for the same again within it resumes at that place. Meanwhile a
 *   reserved place of a writer holds readers off; if the lock is free in that second, a writer
 *   behind it may pass it, and any client may pass a reserved place of a reader.
 *   gmsfs_disconnect, gmsfs_close and gmsfs_cancel give the place up.
 * Errors: -EINVAL.
 */
GMSFS_API int gmsfs_set_connect_flags(gmsfs_t *handle, unsigned flags);

/*
 * gmsfs_connect - take the store's lock
 *
 * mode: the wish; gmsfs_granted_lock returns the mode that was granted:
 *   GMSFS_MODE_RO waits until a layout is committed and no writer is there or waits.
 *   GMSFS_MODE_RW waits until there is no session at all.
 *   GMSFS_MODE_RW_OR_RO becomes RW if nothing is committed when the grant comes, else RO.
 *   GMSFS_MODE_RW_DATA_OR_RW waits as RW. If a sealed layout (gmsfs_commit_layout) exists then, it
 *     becomes GMSFS_MODE_RW_DATA and adopts that layout, once every other process that could write
 *     its memory has exited; else it becomes RW.
 * timeout_ms: 0 tries once; GMSFS_TIMEOUT_FOREVER, or -1, waits without end.
 *
 * The session is this handle's alone: neither another handle of the same process nor its path
 * operations share it. The writer sees the committed layout, and changes it in place or clears it;
 * a layout that is only sealed is dropped when RW is granted. Mappings from an earlier session stay
 * as they are; see gmsfs_remap_all_vas.
 * Errors: -EAGAIN (timeout 0), -ETIMEDOUT; -ECANCELED: an administrator, or gmsfs_cancel, ended the
 *   wait; -EACCES (RW without write permission), -EBUSY (this handle is connected); -ENODATA (RO):
 *   the store has given up its bytes; -EDQUOT, -ENOSPC: too many sessions or waiters.
 */
GMSFS_API int gmsfs_connect(gmsfs_t *handle, enum gmsfs_mode mode, uint64_t timeout_ms);

/*
 * gmsfs_connect_reserve - take the writer's lock together with memory, or neither
 *
 * As gmsfs_connect, but not with GMSFS_MODE_RO. RW is granted only when reserve_bytes are reserved
 * for the session: other sessions cannot have them, so two loaders never hold half a device each.
 * The session's allocations use the reservation first; the rest is released when the session ends
 * or commits. While it waits, the call holds neither lock nor memory.
 * reserve_bytes: the sum of the aligned sizes; 0: as gmsfs_connect. The store's committed bytes
 *   count towards it, because a writer that replaces them frees them (gmsfs_clear_all_handles); a
 *   writer that keeps them must not count on that part. RW_OR_RO that becomes RO, and RW_DATA_OR_RW
 *   that becomes RW_DATA, reserve nothing.
 * Errors: as gmsfs_connect; -EINVAL (RO), -ENOMEM: the device is smaller than that, or (timeout 0)
 *   has not as much free now.
 */
GMSFS_API int gmsfs_connect_reserve(gmsfs_t *handle, enum gmsfs_mode mode, uint64_t timeout_ms,
                                    uint64_t reserve_bytes);

/*
 * gmsfs_join - become a member of a session by its token (gmsfs_session_token of the other side)
 *
 * For workers of a process that holds the lock. The session lives until its last handle is gone.
 * Errors: -EBUSY (connected), -EBADF (RW session, but no write permission), -ESTALE: no session of
 *   this store has that token.
 */
GMSFS_API int gmsfs_join(gmsfs_t *handle, const uint8_t token[GMSFS_TOKEN_BYTES]);

/*
 * gmsfs_disconnect - release the lock; once it returns, other handles can take it
 *
 * A writer that has not committed aborts; a writer of a sealed layout (RW_DATA) leaves everything
 * as it is. Mappings stay: they show the memory that they showed, but nothing stops a writer from
 * changing it. To give everything back use gmsfs_unmap_all_vas. An unconnected handle is no error.
 */
GMSFS_API int gmsfs_disconnect(gmsfs_t *handle);

/*
 * gmsfs_commit - publish the writer's layout
 *
 * flags: GMSFS_COMMIT_STAY: the session continues as a reader's, and no writer can get in between;
 *   without it the lock is released. GMSFS_COMMIT_GROUP: store `group` with the layout.
 *   GMSFS_COMMIT_IMMUTABLE: the layout never changes again, and host memory of it can be written by
 *   no process; the next writer begins with an empty layout.
 * group: 16 bytes, with GMSFS_COMMIT_GROUP; else NULL.
 * The mappings of this handle stay. They become read-only first, for every device that could write
 * them, and become writable again if the commit is refused; after a failed IMMUTABLE one, mappings
 * of memory that it has sealed by then stay read-only.
 * Errors: -ENOLCK (not the writer); -EBUSY: a stream is capturing, or an allocation is still being
 *   written to by its file, or (IMMUTABLE) another process has memory of it mapped for writing;
 *   -EINVAL: an allocation has no memory, or is sealed against writes (not IMMUTABLE), or an entry
 *   points outside of its allocation (the store's `info` names both as last_error).
 */
GMSFS_API int gmsfs_commit(gmsfs_t *handle, unsigned flags, const uint8_t *group);

/*
 * gmsfs_commit_layout - seal the writer's layout: its shape is final, its bytes may still change
 *
 * The session continues with GMSFS_MODE_RW_DATA: allocations and metadata no longer change, nothing
 * is published to readers, and the mappings of this handle stay writable. However the session ends,
 * layout and bytes stay for the next handle that connects with GMSFS_MODE_RW_DATA_OR_RW. For memory
 * that has to survive its process and is never finished, such as a KV cache.
 * Errors: -ENOLCK (not the writer, or sealed already); -EINVAL as gmsfs_commit; -EOPNOTSUPP: a
 *   process that the mount cannot see (of another PID namespace) may write the memory, so the
 *   daemon could not tell when it has exited.
 */
GMSFS_API int gmsfs_commit_layout(gmsfs_t *handle);

/*
 * gmsfs_abort - discard the writer's layout and release the lock
 *
 * With RW_DATA it only releases the lock: the sealed layout stays, and rolled_back is 0.
 * rolled_back: optional; 1: the committed layout is back; 0: the store is EMPTY, because some of
 *   its bytes may have been changed. Mappings stay, see gmsfs_disconnect.
 * Errors: -ENOLCK (not the writer).
 */
GMSFS_API int gmsfs_abort(gmsfs_t *handle, int *rolled_back);

/*
 * gmsfs_connect_start, gmsfs_connect_continue - take the lock without a thread that waits for it
 *
 * start: as gmsfs_connect_reserve, but answers -EINPROGRESS in place of waiting: the handle then
 *   has a place in the queue like any waiter, and *fd is a descriptor for poll(2), epoll(7) or an
 *   event loop, which belongs to the handle and must not be read or closed.
 * continue: call it when *fd is readable. 0: connected; -EINPROGRESS: not yet; any other answer
 *   ends the attempt, with the errors of gmsfs_connect. Unless it is -EINPROGRESS, fd is closed.
 * Neither waits for other clients. Meanwhile a thread of the library, which receives no signals,
 * waits in the queue in the caller's place: once granted, the lock is held, even before the next
 * continue. Until the attempt has ended, other calls that take the lock are -EBUSY.
 * gmsfs_disconnect ends it at once; gmsfs_cancel makes fd readable and the next continue answer
 * -ECANCELED.
 * Errors: as gmsfs_connect_reserve; -EINVAL (continue): nothing was started.
 */
GMSFS_API int gmsfs_connect_start(gmsfs_t *handle, enum gmsfs_mode mode, uint64_t timeout_ms,
                                  uint64_t reserve_bytes, int *fd);
GMSFS_API int gmsfs_connect_continue(gmsfs_t *handle);

#define GMSFS_NOTICE_LOST 1 /* the session is over: revoked, its store removed, its mount dead */
#define GMSFS_NOTICE_LEAVE \
    2 /* the store, or the mount, is being drained: holders are asked to leave */

/*
 * gmsfs_notice_descriptor, gmsfs_notices - learn that a lock was lost, or that it should be given
 * up
 *
 * descriptor: for poll(2): readable when something has happened on the mount, not only to this
 *   handle, and when the mount is dead. It belongs to the handle, is opened at the first call, and
 *   must not be read or closed. After gmsfs_retarget to another mount it has the same number, but
 *   must be added to epoll(7) again. -EHOSTUNREACH: `events` is not above the store.
 * notices: checks, and makes the descriptor wait for the next event. 0; or GMSFS_NOTICE_LOST, once,
 *   after which the handle is not connected; or GMSFS_NOTICE_LEAVE, as long as that holds. 0 if the
 *   handle is not connected. Works without the descriptor too. If the state cannot be read now, the
 *   error is one of gmsfs_get_info, for example -ENOMEM, and nothing has changed: ask again.
 */
GMSFS_API int gmsfs_notice_descriptor(gmsfs_t *handle);
GMSFS_API int gmsfs_notices(gmsfs_t *handle);

/*
 * gmsfs_cancel - end the wait of another thread's call on this handle
 *
 * That call ends with -ECANCELED: at once if it waits for a lock or for memory, else at the point
 * where it would begin to wait; its partial results are as after any other failure. A call that
 * does not wait ends as usual. A connection that gmsfs_connect_start began is given up, as is a
 * reserved place (GMSFS_CONNECT_KEEP_PLACE). For handles of a group, cancel any of them. A handle
 * without a wait is no error. Errors: -EDEADLK: this thread is in a call on the handle.
 */
GMSFS_API int gmsfs_cancel(gmsfs_t *handle);

/* ---- Several stores as one: the ranks of a model ------------------------------------------- */

#define GMSFS_GROUP_MAX 256u /* stores of one group */

/*
 * gmsfs_connect_group - take the locks of several stores, all or none, all with the same grant
 *
 * handles: `count` of them, 1..GMSFS_GROUP_MAX, in any order, each of another store, on any mounts.
 * A group is whole if gmsfs_commit_group published it: every store committed, with one group id.
 * (One store alone is whole when it is committed.)
 * mode: GMSFS_MODE_RW: become the writer of all, with any contents.
 *   GMSFS_MODE_RO waits until all are committed, then requires them to be whole. It holds no lock
 *   while it waits.
 *   GMSFS_MODE_RW_OR_RO is RO if the group is whole, RW if nothing is committed, and also RW
 *   otherwise, so that a group that a dead loader committed in part is loaded again. If one of the
 *   stores is not writable for the caller, it is RO.
 * timeout_ms: as in gmsfs_connect, for all together.
 * Locks are taken in the order of the store ids, so groups that overlap never wait for each other
 * in a circle. A process that holds one of these locks by another handle waits for itself.
 * Stores with their bytes elsewhere are promoted one by one, in the order of the devices, and the
 * call waits for them without holding a lock: two groups that need each other's memory both get
 * their turn. A store that has given up its bytes (`none`) is not whole: RW_OR_RO is RW then, RO is
 * -ENODATA. Afterwards each handle is connected as by gmsfs_connect: fill its store, hand its token
 * to a worker, disconnect it. Never granted in part: on failure no handle is connected, and every
 * lock taken on the way is released. During the wait gmsfs_granted_lock shows none of these locks.
 * Errors: as gmsfs_connect; -EINVAL: a store twice; -EBUSY: a handle is connected; -ESTALE: (RO)
 * all are committed, but not with one id, a mix of two loads; or a store was removed, or the
 * session on one was revoked while the call waited for others.
 */
GMSFS_API int gmsfs_connect_group(gmsfs_t *const *handles, size_t count, enum gmsfs_mode mode,
                                  uint64_t timeout_ms);

/*
 * gmsfs_connect_group_reserve - take the writer's locks of several stores together with memory
 *
 * As gmsfs_connect_group; and if the grant is RW, reserve_bytes[i] are reserved for handles[i], as
 * by gmsfs_connect_reserve: for all of them or none. Two groups never hold a part of their devices
 * each: while memory is short, the call waits with no lock and nothing else reserved.
 * reserve_bytes: `count` of them, in the order of the handles, each 0 to reserve nothing for that
 *   handle; NULL: as gmsfs_connect_group. Several stores may be of one device.
 * Errors: as gmsfs_connect_group; -EINVAL (RO), -ENOMEM: a device is smaller than that, or (timeout
 *   0) has not as much free now.
 */
GMSFS_API int gmsfs_connect_group_reserve(gmsfs_t *const *handles, size_t count,
                                          enum gmsfs_mode mode, uint64_t timeout_ms,
                                          const uint64_t *reserve_bytes);

/*
 * gmsfs_commit_group - commit the writer's layouts of several stores, with one new group id
 *
 * flags: GMSFS_COMMIT_STAY and GMSFS_COMMIT_IMMUTABLE, as in gmsfs_commit. id: optional, 16 bytes;
 * also written when the call fails half-way. Before the first commit it checks that all locks are
 * still held, and that no store would refuse its layout. The store with the lowest id is committed
 * last, because every connect_group begins there. A failure before the first commit has changed
 * nothing. After a failure half-way (a session is revoked, a mount dies) the stores before it are
 * committed; the others still have their RW lock and their work (gmsfs_granted_lock tells). Then
 * either repair the cause and gmsfs_commit each with GMSFS_COMMIT_GROUP and this id, or disconnect
 * them; in the second case the group is not whole, and the next RW_OR_RO loads it again, as after a
 * crash here. Errors: as gmsfs_commit; -ENOLCK: not the writer of each; -EINVAL: also a store
 * twice.
 */
GMSFS_API int gmsfs_commit_group(gmsfs_t *const *handles, size_t count, unsigned flags,
                                 uint8_t *id);

/* ---- Properties: never wait ----------------------------------------------------------------- */

/* The lock of this handle as last known: GMSFS_MODE_NONE, _RO, _RW or _RW_DATA. */
GMSFS_API enum gmsfs_mode gmsfs_granted_lock(gmsfs_t *handle);

/* 1 while this handle has a session, as last known (0 once a call found it revoked). */
GMSFS_API int gmsfs_is_connected(gmsfs_t *handle);

/* 1 from gmsfs_unmap_all_vas until a remap or reallocate succeeds. */
GMSFS_API int gmsfs_is_unmapped(gmsfs_t *handle);

/* Bytes of allocations that this handle has mapped, whole slabs and preserved ones included. */
GMSFS_API uint64_t gmsfs_total_bytes(gmsfs_t *handle);

/* The store's generation when the lock was granted, or as made by gmsfs_commit and
 * gmsfs_commit_layout. */
GMSFS_API uint64_t gmsfs_generation(gmsfs_t *handle);

/*
 * Copies the token that lets other handles join this handle's session. Errors: -ENOLCK (not
 * connected). Any process that has the token and may open the store can join: treat it as a secret.
 */
GMSFS_API int gmsfs_session_token(gmsfs_t *handle, uint8_t token[GMSFS_TOKEN_BYTES]);

/* Convert a token to and from 32 hex digits, as the environment variable GMSFS_SESSION has it.
 * parse: -EINVAL. */
GMSFS_API void gmsfs_token_format(const uint8_t token[GMSFS_TOKEN_BYTES],
                                  char text[GMSFS_TOKEN_TEXT_BYTES]);
GMSFS_API int gmsfs_token_parse(const char *text, uint8_t token[GMSFS_TOKEN_BYTES]);

/* ---- Looking: asks the mount, needs no lock, does not wait for locks --------------------- */

GMSFS_API int gmsfs_get_info(gmsfs_t *handle, struct gmsfs_info *info, size_t info_bytes);
#define gmsfs_get_info(handle, info) gmsfs_get_info(handle, info, sizeof(struct gmsfs_info))

/*
 * gmsfs_get_memory_layout_hash - copy the layout's hash: 32 hex digits
 *
 * "" while nothing is committed or sealed, or while a writer may change the layout. Equal structure
 * (sizes, tags, metadata) gives an equal hash; contents do not count.
 */
GMSFS_API int gmsfs_get_memory_layout_hash(gmsfs_t *handle, char text[GMSFS_HASH_TEXT_BYTES]);

/*
 * gmsfs_read_layout - read the whole committed or sealed layout with all metadata, in one read
 *
 * layout: free it with gmsfs_free_layout. Ranks as in struct gmsfs_mapping. The keys and
 * values of all entries lie in one piece of memory, in order, each key before its value.
 * Errors: -ENODATA: there is none, or a writer may change it.
 */
GMSFS_API int gmsfs_read_layout(gmsfs_t *handle, struct gmsfs_layout **layout,
                                size_t allocation_bytes, size_t entry_bytes);
#define gmsfs_read_layout(handle, layout)                                     \
    gmsfs_read_layout(handle, layout, sizeof(struct gmsfs_layout_allocation), \
                      sizeof(struct gmsfs_layout_entry))
GMSFS_API void gmsfs_free_layout(struct gmsfs_layout *layout);

#ifdef __cplusplus
}
#endif

#include "gmsfs_memory.h"

#endif
