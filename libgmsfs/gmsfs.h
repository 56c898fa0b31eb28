/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs.h - the client library of gmsfs: memory of a mounted store, locked, mapped and described
 *
 * For programs that load a model into a store, or map a model that is already there. A handle
 * (`gmsfs_t`) stands for one store, for example /mnt/gms/gpu0/weights. A process connects (takes
 * the store's lock, RO or RW), allocates or attaches, and maps; a writer then commits, or seals a
 * layout (final shape, changing bytes). The calls have the names that NVIDIA Dynamo's GPU Memory
 * Service gives its client. Tier 1 handles allocations, virtual addresses and metadata one by one.
 * Tier 2 handles whole mappings: it also puts a process to sleep (gmsfs_unmap_all_vas) and wakes it
 * (gmsfs_remap_all_vas) with every pointer as it was.
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

/* How memory is mapped or exported. */
enum gmsfs_access {
    GMSFS_ACCESS_READ = 1,
    GMSFS_ACCESS_WRITE = 2, /* reading and writing; needs the RW or RW_DATA lock */
};

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

/* One allocation. */
struct gmsfs_handle_info {
    uint64_t slot;
    uint64_t rank; /* position in the layout, without gaps */
    uint64_t size_bytes;
    uint64_t aligned_bytes;
    char tag[GMSFS_NAME_MAX + 1];
    char name[GMSFS_NAME_MAX + 1]; /* its file in `allocations/` */
};

/* One mapping made by this handle. */
struct gmsfs_mapping {
    void *ptr;
    uint64_t slot;
    uint64_t rank; /* when it was mapped */
    uint64_t size_bytes;
    uint64_t aligned_bytes; /* bytes mapped; of a piece: bytes that it takes of its slab */
    uint64_t offset;        /* bytes into the allocation; 0 except for pieces of slabs */
};

/* Memory of this process, in bytes of the device. */
struct gmsfs_memory_info {
    uint64_t shared_bytes;    /* of the store, mapped now; an allocation counts once */
    uint64_t preserved_bytes; /* asleep: addresses without memory */
    uint64_t private_bytes;   /* of gmsfs_copy_private */
};

/* One metadata entry. */
struct gmsfs_metadata {
    const char *key; /* NUL-terminated; UTF-8 of 1..GMSFS_KEY_MAX bytes, of which a `/`, a `%` and a
                      * leading dot count as three; else -EINVAL */
    const void *value;  /* any bytes */
    size_t value_bytes; /* 0..GMSFS_VALUE_MAX */
    uint64_t slot;      /* GMSFS_SLOT_NONE: not bound to an allocation */
    uint64_t offset;    /* bytes into the allocation; 0 when unbound */
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

/* ---- The device ----------------------------------------------------------------------------- */

/*
 * On a GPU the library uses the CUDA driver of the process (libcuda.so.1, opened when memory is
 * first mapped; never for host memory), on the device with the mount's uuid, under any ordinal it
 * has. If the calling thread has a context of that device current, calls run in it; else in the
 * device's primary context, which the handle then retains until gmsfs_close. Between calls a
 * program may destroy its contexts, or reset the primary one: mappings do not belong to a context,
 * and private copies (gmsfs_copy_private) end with the context that was current when they were
 * made.
 *
 * While a stream is capturing, calls that map, unmap or commit answer -EBUSY and change nothing.
 * This holds for the streams named by gmsfs_set_streams, and for any blocking stream of that
 * context. No call invalidates a capture. Captured work may use mappings: they return to their
 * addresses.
 *
 * Before memory is unmapped or committed the library waits for the work of that context, by ways
 * that break no capture (cuCtxSynchronize would). gmsfs_close, which cannot answer -EBUSY, also
 * waits while a stream captures, or calls the function of gmsfs_set_synchronise.
 * Readers' mappings are read-only for kernels: a write faults. A device that fails is -EIO; a
 * device that is gone, or that this process may not see, is -ENODEV.
 */

#define GMSFS_DEVICES_MAX        32u  /* beside the store's own */
#define GMSFS_DEVICE_ERROR_BYTES 256u /* with NUL */

/* Names the non-blocking streams (CUstream, cudaStream_t) that this program captures; replaces
 * those of the last call. They must live until they are replaced or the handle is closed. */
GMSFS_API int gmsfs_set_streams(gmsfs_t *handle, void *const *streams, size_t count);

/*
 * gmsfs_set_synchronise - how to wait until the program no longer uses the memory
 *
 * The library calls `synchronise` in place of its own wait, with the context current, also on host
 * memory; for programs that use several contexts, or know which streams matter. It returns 0 or a
 * negative errno, which fails the call. It must not call the library with this handle. NULL
 * restores the library's own wait.
 */
typedef int (*gmsfs_synchronise_fn)(void *context);
GMSFS_API int gmsfs_set_synchronise(gmsfs_t *handle, gmsfs_synchronise_fn synchronise,
                                    void *context);

/*
 * gmsfs_set_devices - name other devices of this process, by uuid, that may access later mappings
 *
 * Replaces the devices named before. A device that is named twice counts once, as does the store's
 * own. Host memory is accessible to every device. Existing mappings stay with the devices that
 * could access them: a commit leaves all of these the right to read, and takes from all of them the
 * right to write. Sleeping mappings wake for the devices that are named at that time.
 * Errors, when memory is mapped: -ENODEV; -EOPNOTSUPP: a device beyond the 64th of this process.
 */
GMSFS_API int gmsfs_set_devices(gmsfs_t *handle, const uint8_t (*uuids)[16], size_t count);

/* Copies the driver's complaint, e.g. "cuMemMap: CUDA_ERROR_...", from the last call on this handle
 * that used its memory (mappings, addresses, private copies, a commit with mappings); "" if that
 * call had none. Calls of the lock and of metadata, and looks at the store, do not change it. */
GMSFS_API int gmsfs_device_error(gmsfs_t *handle, char text[GMSFS_DEVICE_ERROR_BYTES]);

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
 * group: 16 bytes, with GMSFS_COMMIT_GROUP; else NULL.
 * The mappings of this handle stay. They become read-only first, for every device that could write
 * them, and become writable again if the commit is refused.
 * Errors: -ENOLCK (not the writer); -EBUSY: a stream is capturing, or an allocation is still being
 *   written to by its file; -EINVAL: an allocation has no memory, or an entry points outside of its
 *   allocation (the store's `info` names it as last_error).
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
 * flags: GMSFS_COMMIT_STAY or 0, as in gmsfs_commit. id: optional, 16 bytes; also written when the
 * call fails half-way. Before the first commit it checks that all locks are still held, and that no
 * store would refuse its layout. The store with the lowest id is committed last, because every
 * connect_group begins there.
 * A failure before the first commit has changed nothing. After a failure half-way (a session is
 * revoked, a mount dies) the stores before it are committed; the others still have their RW lock
 * and their work (gmsfs_granted_lock tells). Then either repair the cause and gmsfs_commit each
 * with GMSFS_COMMIT_GROUP and this id, or disconnect them; in the second case the group is not
 * whole, and the next RW_OR_RO loads it again, as after a crash here.
 * Errors: as gmsfs_commit; -ENOLCK: not the writer of each; -EINVAL: also a store twice.
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
 * layout: free it with gmsfs_free_layout. Its ranks are those of struct gmsfs_mapping.
 * Errors: -ENODATA: there is none, or a writer may change it.
 */
GMSFS_API int gmsfs_read_layout(gmsfs_t *handle, struct gmsfs_layout **layout,
                                size_t allocation_bytes, size_t entry_bytes);
#define gmsfs_read_layout(handle, layout)                                     \
    gmsfs_read_layout(handle, layout, sizeof(struct gmsfs_layout_allocation), \
                      sizeof(struct gmsfs_layout_entry))
GMSFS_API void gmsfs_free_layout(struct gmsfs_layout *layout);

/* ---- Tier 1: allocation handles ------------------------------------------------------------- */

/*
 * gmsfs_allocate_handle - allocate memory in the writer's layout; zeroed
 *
 * size_bytes: > 0. tag: a label, UTF-8 of up to GMSFS_NAME_MAX bytes; NULL: "". name: the name of
 * its file in `allocations/`, of the same length at most, without a slash, without a leading dot
 * (so not "." or ".."), and with a % only as file names encode it (gmsfs_map(3)); NULL or "":
 * a000000, a000001, ... by slot. Waits for memory that other clients are giving back, or may give
 * back, up to the mount's alloc_timeout; -ENOMEM at once if only this writer, or no client, could
 * give any back.
 * Errors: -ENOLCK (not the writer), -ENOMEM (the device is full), -EDQUOT (a budget forbids it),
 * -ENOSPC (too many), -EEXIST; -EINVAL also: an invalid name or tag.
 */
GMSFS_API int gmsfs_allocate_handle(gmsfs_t *handle, uint64_t size_bytes, const char *tag,
                                    const char *name, uint64_t *slot);

/*
 * gmsfs_allocate_handles - make `count` allocations of size_bytes each, all or nothing
 *
 * first_slot: the others follow by one. name: NULL, or ending in decimal digits, which count up.
 * flags: GMSFS_ALLOC_NOWAIT: -ENOMEM at once.
 */
GMSFS_API int gmsfs_allocate_handles(gmsfs_t *handle, uint32_t count, uint64_t size_bytes,
                                     const char *tag, const char *name, unsigned flags,
                                     uint64_t *first_slot);

#define GMSFS_ALLOCATE_EACH_MAX 30u

struct gmsfs_new_allocation {
    uint64_t size_bytes;
    const char *tag;  /* NULL: "" */
    const char *name; /* NULL: by slot */
};

/*
 * gmsfs_allocate_each - make several allocations that differ, all or nothing
 *
 * Their memory is made at the same time; on host memory, separate calls would wait for each in
 * turn. Ranks are in the order of `wanted`. count: at most GMSFS_ALLOCATE_EACH_MAX. slots: of each,
 * or NULL. flags and errors: as gmsfs_allocate_handles; -ENOTTY: an older daemon.
 */
GMSFS_API int gmsfs_allocate_each(gmsfs_t *handle, const struct gmsfs_new_allocation *wanted,
                                  size_t count, unsigned flags, uint64_t *slots);

/*
 * gmsfs_export_handle - return a new descriptor of an allocation's memory; the caller closes it
 *
 * The memory lives as long as the descriptor is open in any process. On host memory it is a memfd
 * of the aligned size, for mmap(2), pread(2) and sendfile(2); with GMSFS_ACCESS_READ a read-only
 * one. On a GPU it is for cuMemImportFromShareableHandle, and the importer chooses the access.
 * Needs the lock. After GMSFS_ACCESS_WRITE on committed memory an abort can no longer roll back.
 * Errors: -ENOLCK, -EACCES (WRITE as reader), -ENOENT (no such slot); -EAGAIN: its bytes are not
 *   on the device (GMSFS_CONNECT_REPLACE), -ENODATA: they were given up; -EBUSY: it is being
 *   written by its file.
 */
GMSFS_API int gmsfs_export_handle(gmsfs_t *handle, uint64_t slot, enum gmsfs_access access,
                                  int *fd);

/*
 * gmsfs_export_each - export several allocations, all or none
 *
 * Separate calls of gmsfs_export_handle cost one trip to the daemon each; allocations with
 * consecutive slots, as gmsfs_allocate_each makes them, arrive together. count: at most
 * GMSFS_ALLOCATE_EACH_MAX. fds: in the order of `slots`; on failure all are -1, unless `count`
 * itself is invalid. Errors: as gmsfs_export_handle.
 */
GMSFS_API int gmsfs_export_each(gmsfs_t *handle, const uint64_t *slots, size_t count,
                                enum gmsfs_access access, int *fds);

/* Describes one allocation. Needs no lock. Errors: -ENOENT (no such slot). */
GMSFS_API int gmsfs_get_handle_info(gmsfs_t *handle, uint64_t slot, struct gmsfs_handle_info *info,
                                    size_t info_bytes);
#define gmsfs_get_handle_info(handle, slot, info) \
    gmsfs_get_handle_info(handle, slot, info, sizeof(struct gmsfs_handle_info))

/*
 * gmsfs_list_handles - list all allocations by slot; of the working copy while a writer works
 *
 * tag: optional: list only allocations with this tag. list: free it with free(3); NULL when empty.
 */
GMSFS_API int gmsfs_list_handles(gmsfs_t *handle, const char *tag, struct gmsfs_handle_info **list,
                                 size_t *count, size_t item_bytes);
#define gmsfs_list_handles(handle, tag, list, count) \
    gmsfs_list_handles(handle, tag, list, count, sizeof(struct gmsfs_handle_info))

/*
 * gmsfs_set_memory_timeout - set how long calls on this handle wait for memory of other clients
 *
 * timeout_ms: 0: not at all (-ENOMEM at once, as with GMSFS_ALLOC_NOWAIT); at most the mount's
 *   alloc_timeout; GMSFS_TIMEOUT_FOREVER, or -1: the mount's alloc_timeout, as after gmsfs_open.
 *   Applies to gmsfs_allocate_handle(s), gmsfs_create_mapping and gmsfs_reallocate_all_handles.
 *   Memory that is reserved together with a lock has the timeout of the lock.
 */
GMSFS_API int gmsfs_set_memory_timeout(gmsfs_t *handle, uint64_t timeout_ms);

/* Removes an allocation (a slab with all its pieces too) and the entries bound to it; mappings
 * stay. Errors: -ENOLCK, -ENOENT. */
GMSFS_API int gmsfs_free_handle(gmsfs_t *handle, uint64_t slot);

/* Removes all allocations and all entries; mappings stay. To learn how many there are, call
 * gmsfs_list_handles before. Errors: -ENOLCK. */
GMSFS_API int gmsfs_clear_all_handles(gmsfs_t *handle);

/* ---- Tier 1: addresses ---------------------------------------------------------------------- */

/*
 * gmsfs_reserve_va - reserve address space, without memory; touching it is a fault
 *
 * size_bytes is rounded up to the granularity; the address is aligned to it too.
 */
GMSFS_API int gmsfs_reserve_va(gmsfs_t *handle, uint64_t size_bytes, void **va);

/*
 * gmsfs_map_va - map an allocation at `va`, inside one reservation of this handle
 *
 * va: aligned to the granularity; the aligned size must fit and be free of other mappings. An
 * allocation may be mapped at several addresses.
 * Errors: as gmsfs_export_handle; -EFAULT (outside of a reservation), -EBUSY (overlaps a mapping).
 */
GMSFS_API int gmsfs_map_va(gmsfs_t *handle, void *va, uint64_t slot, enum gmsfs_access access);

/* Unmaps the mapping that begins at exactly `va`; the addresses stay reserved. Errors: -ENOENT,
 * -EBUSY (it is a slab with pieces). */
GMSFS_API int gmsfs_unmap_va(gmsfs_t *handle, void *va);

/* Gives back the reservation that begins at `va`. Errors: -ENOENT, -EBUSY (has mappings). */
GMSFS_API int gmsfs_free_va(gmsfs_t *handle, void *va);

/* ---- Tier 1: metadata ----------------------------------------------------------------------- */

/*
 * gmsfs_metadata_put - set an entry, replacing one of the same key
 *
 * An offset that is not below the allocation's aligned size is found later, by gmsfs_commit.
 * Errors: -ENOLCK (not the writer), -EINVAL (key, no such slot, or an offset other than 0 in an
 * unbound entry), -ENOSPC (bounds), -EFBIG: the value has more than GMSFS_VALUE_MAX bytes; the
 * library then neither reads it nor asks the mount.
 */
GMSFS_API int gmsfs_metadata_put(gmsfs_t *handle, const struct gmsfs_metadata *entry);

/*
 * gmsfs_metadata_put_many - set many entries at once, all or nothing
 *
 * culprit: optional; on failure the index of the entry at fault, or SIZE_MAX when it is none of
 * them. No other member of the session may free allocations meanwhile.
 * Errors: as gmsfs_metadata_put; -EFBIG without a culprit: all of them together are more than the
 * mount accepts at once (gmsfs(5), LIMITS).
 */
GMSFS_API int gmsfs_metadata_put_many(gmsfs_t *handle, const struct gmsfs_metadata *entries,
                                      size_t count, size_t *culprit);

/*
 * gmsfs_metadata_get - look an entry up; needs no lock
 *
 * slot, offset, value, value_bytes: optional. value: free it with free(3), never NULL; a NUL that
 * value_bytes does not count follows the bytes. Errors: -ENOENT; -EINVAL: no entry can have such a
 * key.
 */
GMSFS_API int gmsfs_metadata_get(gmsfs_t *handle, const char *key, uint64_t *slot, uint64_t *offset,
                                 void **value, size_t *value_bytes);

/*
 * gmsfs_metadata_list - list the keys that begin with `prefix` (NULL or "": all), in bytewise order
 *
 * keys: `count` NUL-terminated strings in one block: one free(3) frees them. A key that contains a
 * NUL (gmsfs_read_layout shows such keys) is left out, as C strings cannot name it. Needs no lock.
 */
GMSFS_API int gmsfs_metadata_list(gmsfs_t *handle, const char *prefix, char ***keys, size_t *count);

/* Removes an entry. Errors: -ENOLCK, -ENOENT, -EINVAL (key). */
GMSFS_API int gmsfs_metadata_delete(gmsfs_t *handle, const char *key);

/* ---- Tier 2: mappings ----------------------------------------------------------------------- */

#define GMSFS_SLAB_DEFAULT       UINT64_MAX
#define GMSFS_SLAB_DEFAULT_BYTES (UINT64_C(2) << 30) /* the largest */

/*
 * gmsfs_set_slab_bytes - set the size of the slabs from which gmsfs_create_mapping carves pieces
 *
 * The number of allocations decides the cost of attaching, sleeping and waking. So sizes up to that
 * of a slab become pieces of slabs. Applies to later calls.
 * slab_bytes: rounded up to the granularity; 0: no slabs, one allocation for each mapping;
 *   GMSFS_SLAB_DEFAULT, as after gmsfs_open: a new slab has the largest of one granule, a quarter
 *   of the bytes that its tag has in slabs so far, and its first piece, but at most 2 GiB, an
 *   eighth of the device, and the bytes announced at connect (gmsfs_connect_reserve); the very
 *   first slab has the announced bytes.
 * So a tag costs at most about a quarter more than its pieces, and the unused rest of a granule:
 * 10 MB in pieces of 600 KiB take six granules of 2 MiB; the 291 tensors of an 8B model take 14
 * allocations and 1 % more. A slab is allocated whole: if less is free, the device counts as full
 * (-ENOMEM).
 */
GMSFS_API int gmsfs_set_slab_bytes(gmsfs_t *handle, uint64_t slab_bytes);

/*
 * gmsfs_create_mapping - allocate, reserve and map for writing, in one call, all or nothing
 *
 * A size above that of the largest slab is an allocation of its own, with offset 0. A smaller one
 * is a piece: in the oldest slab with this tag that has room for it, in the first gap, at a
 * multiple of 512 bytes. So the same calls in the same order give the same layout, and the same
 * layout_hash.
 * slot: optional; of the allocation, which may be a slab. gmsfs_resolve gives the offset in it,
 * which metadata must state. Memory is zeroed, except that a piece where another was destroyed has
 * the old bytes.
 * Errors: as gmsfs_allocate_handle and gmsfs_map_va.
 */
GMSFS_API int gmsfs_create_mapping(gmsfs_t *handle, uint64_t size_bytes, const char *tag,
                                   uint64_t *slot, void **ptr);

/* Reserves addresses for an existing allocation and maps it there. */
GMSFS_API int gmsfs_attach_mapping(gmsfs_t *handle, uint64_t slot, enum gmsfs_access access,
                                   void **ptr);

/*
 * gmsfs_attach_all - map the whole layout, side by side in rank order
 *
 * list: optional; `count` mappings by rank, to be freed with free(3); NULL when the layout is
 * empty. count: optional. Costs one ioctl, one message, and one receive for every 253 allocations.
 * Errors: as gmsfs_map_va; then nothing is mapped.
 */
GMSFS_API int gmsfs_attach_all(gmsfs_t *handle, enum gmsfs_access access,
                               struct gmsfs_mapping **list, size_t *count, size_t item_bytes);
#define gmsfs_attach_all(handle, access, list, count) \
    gmsfs_attach_all(handle, access, list, count, sizeof(struct gmsfs_mapping))

/*
 * gmsfs_destroy_mapping - undo gmsfs_create_mapping, gmsfs_attach_mapping, or one of attach_all
 *
 * ptr: the beginning of a mapping or a piece. Memory of gmsfs_create_mapping is given back while
 * this handle is still the writer that made it, also asleep: a piece to its slab, the last piece
 * with its slab to the device. After a commit it stays in the layout, and the slab is unmapped with
 * its last piece. If the mount cannot take it back now (-ENOMEM, for example), nothing has changed.
 * The caller deletes entries bound into a piece. Memory that was only attached stays in the layout.
 * A mapping made by gmsfs_map_va is unmapped, and the caller frees its reservation.
 * Errors: -ENOENT.
 */
GMSFS_API int gmsfs_destroy_mapping(gmsfs_t *handle, void *ptr);

/* Lists all mappings of this handle by address, preserved ones included, the pieces in place of a
 * slab; list as in attach_all. */
GMSFS_API int gmsfs_list_mappings(gmsfs_t *handle, struct gmsfs_mapping **list, size_t *count,
                                  size_t item_bytes);
#define gmsfs_list_mappings(handle, list, count) \
    gmsfs_list_mappings(handle, list, count, sizeof(struct gmsfs_mapping))

#define GMSFS_UNMAP_KEEP_LOCK (1u << 0)

/*
 * gmsfs_unmap_all_vas - go to sleep: unmap everything, keep the addresses, release the lock
 *
 * Afterwards the process has no mapping and no descriptor of the memory, so it pins none; its
 * pointers must not be used until gmsfs_remap_all_vas or gmsfs_reallocate_all_handles.
 * A writer that has not committed aborts, as by gmsfs_disconnect. On a dead mount everything is
 * unmapped too, and the answer is -ENOTCONN.
 * flags: GMSFS_UNMAP_KEEP_LOCK: leave the lock as it is.
 */
GMSFS_API int gmsfs_unmap_all_vas(gmsfs_t *handle, unsigned flags);

/*
 * gmsfs_remap_all_vas - wake up: map the same layout at the same addresses
 *
 * Takes the RO lock if the handle is not connected (timeout_ms as in gmsfs_connect), else uses the
 * lock it has. Under an RO lock, mappings that were writable become read-only.
 * strict: 0: the layout must have the same layout_hash as when it was unmapped, so every pointer
 *   points at the same tensor, but a writer may have published new bytes (see gmsfs_generation).
 *   1: it must also be the same store and generation, so the bytes are the same.
 *   Only layouts that the handle had mapped are compared; without mappings, any layout will do.
 *   A layout unmapped before its first commit has no hash: then the sizes by rank must agree.
 *   Under an RW lock the hash is not known: then there must have been no other commit.
 * All or nothing: on failure nothing is mapped, the addresses stay reserved, and the lock is as
 * before. Mappings made since gmsfs_unmap_all_vas are left alone.
 * Errors: -ESTALE (the layout changed; strict: the generation or the store), -EINVAL (not
 *   unmapped), and those of gmsfs_connect and gmsfs_map_va.
 */
GMSFS_API int gmsfs_remap_all_vas(gmsfs_t *handle, uint64_t timeout_ms, int strict);

/*
 * gmsfs_unmap_tag, gmsfs_remap_tag - put to sleep, or wake, the mappings with one tag only
 *
 * For an engine that gives back its KV cache separately from its weights, both in one store. Needs
 * the lock, and keeps it: the allocations stay, but this process does not map them.
 * remap: as gmsfs_remap_all_vas with strict 0, of the sleeping mappings with this tag; all or
 * nothing. After gmsfs_unmap_all_vas, gmsfs_remap_all_vas also wakes mappings that sleep by tag.
 * tag: "" for mappings without one. No mapping with this tag, or none to put to sleep or to wake,
 * is no error.
 * Errors: -ENOLCK: not connected; -EINVAL: all sleep (gmsfs_unmap_all_vas); those of
 *   gmsfs_unmap_all_vas, and (remap) of gmsfs_remap_all_vas.
 */
GMSFS_API int gmsfs_unmap_tag(gmsfs_t *handle, const char *tag);
GMSFS_API int gmsfs_remap_tag(gmsfs_t *handle, const char *tag);

/*
 * gmsfs_retarget - map another store of the same shape at the same addresses
 *
 * For a reader that shows one adapter after the other at the same pointers. `path`: the other
 * store, on the same device. The call releases the reader's lock of the current store, takes that
 * of the other store, and maps the other store's allocation of the same rank at every mapping;
 * gmsfs_reopen then follows the new path. The handle is awake afterwards, also if it slept. A
 * handle that has mapped nothing yet accepts any store, and takes its lock.
 *
 * The same shape means: as many allocations, of the same sizes and tags by rank, and the same
 * entries in them: key, rank, offset, value (a tensor's type and dimensions). Entries that are
 * bound to no allocation may differ, and so may slots: gmsfs_resolve and gmsfs_generation give the
 * new ones.
 *
 * If the other lock is free, it is taken before the old one is released, and no client gets in
 * between. Else (a writer is there, or the bytes have to come to the device first) the memory and
 * the lock of the old store are released before the wait, so that this call holds nothing that
 * other clients, or the promotion that it waits for, may need. timeout_ms as in gmsfs_connect; with
 * 0 nothing changes if the lock is not free (-EAGAIN).
 *
 * The pointers must not be used during the call; it waits for the device's work, as
 * gmsfs_unmap_all_vas does. gmsfs_granted_lock and gmsfs_resolve do not wait, and answer for either
 * the one store or the other.
 *
 * All or nothing: on failure the handle stays on its store. If the call did not have to wait, it is
 * connected and mapped as before. After a wait that holds only if the old store's lock is free and
 * no writer has committed to it since; else (it was evicted meanwhile, for example) the handle
 * sleeps on it without the lock (gmsfs_is_unmapped), as after gmsfs_unmap_all_vas, and
 * gmsfs_remap_all_vas wakes it.
 * Errors: -ESTALE: the layout there has another shape, or the handle's mappings were never
 *   committed, or are no longer of its store's layout and gmsfs_retarget has not seen it before;
 *   -EXDEV: another device (of host memory, every mount is one), or the handle maps host memory for
 *   GMSFS_CONNECT_ANY; -EBUSY: the handle is a writer, or maps something though it sleeps;
 *   -ENOLCK: it maps something without the lock (gmsfs_unmap_all_vas first);
 *   and those of gmsfs_open, gmsfs_connect and gmsfs_map_va.
 */
GMSFS_API int gmsfs_retarget(gmsfs_t *handle, const char *path, uint64_t timeout_ms);

/*
 * gmsfs_reallocate_all_handles - wake up with new memory: allocate the same sizes and tags again
 *
 * Needs the RW lock, and gmsfs_unmap_all_vas before it. Tags are those given at the allocation, or
 * found before going to sleep. The new allocations have the order of the old ones, and are zeroed
 * and mapped for writing at the same addresses; several mappings of one allocation share the new
 * one. Allocations that the layout already has stay (gmsfs_clear_all_handles first, to start
 * empty).
 * All the memory is reserved before any is allocated, as by gmsfs_connect_reserve, with the wait of
 * gmsfs_allocate_handle: -ENOMEM leaves nothing half done.
 * All or nothing, as gmsfs_remap_all_vas.
 * Errors: -ENOLCK (not the writer), -ENODATA (the tags are not known: the handle was not connected
 *   when the memory was unmapped), and those of gmsfs_allocate_handle and gmsfs_map_va.
 */
GMSFS_API int gmsfs_reallocate_all_handles(gmsfs_t *handle);

/*
 * gmsfs_copy_private - copy the bytes at `ptr` to writable memory of this process alone
 *
 * For tensors that an engine writes to, while the store's memory is read-only. ptr, size_bytes: in
 * mappings of this handle. copy: at another address; it stays there, also while the handle sleeps,
 * until gmsfs_free_private or gmsfs_close. It is no part of the store, and the store's account does
 * not count it. On a GPU the copy includes the writes of all work that was given to the context
 * before.
 * Errors: -ENOENT (not mapped now), -ENOMEM (the device, or the machine, is full).
 */
GMSFS_API int gmsfs_copy_private(gmsfs_t *handle, const void *ptr, uint64_t size_bytes,
                                 void **copy);
/* Frees a copy. ptr: from gmsfs_copy_private. Errors: -ENOENT. */
GMSFS_API int gmsfs_free_private(gmsfs_t *handle, void *ptr);

/* Reports how much device memory this process uses by this handle, for engines that size caches. */
GMSFS_API int gmsfs_memory_info(gmsfs_t *handle, struct gmsfs_memory_info *info, size_t info_bytes);
#define gmsfs_memory_info(handle, info) \
    gmsfs_memory_info(handle, info, sizeof(struct gmsfs_memory_info))

/*
 * gmsfs_resolve - find the allocation that `ptr` points into, and the offset in it
 *
 * ptr: anywhere in a mapping of this handle, preserved ones included. slot, offset: optional.
 * Errors: -ENOENT.
 */
GMSFS_API int gmsfs_resolve(gmsfs_t *handle, const void *ptr, uint64_t *slot, uint64_t *offset);

/*
 * gmsfs_locate - find the address of a byte of an allocation: the inverse of gmsfs_resolve
 *
 * slot, offset: as metadata has them. ptr: in a mapping of the layout that this handle last saw,
 * the lowest if there are several, preserved ones included. Errors: -ENOENT (not mapped).
 */
GMSFS_API int gmsfs_locate(gmsfs_t *handle, uint64_t slot, uint64_t offset, void **ptr);

/*
 * gmsfs_descriptor_of - return a new descriptor of the memory behind `ptr`; the caller closes it
 *
 * From the mount, with the access that the mapping has. Needs the lock.
 * Errors: as gmsfs_export_handle; -ENOENT (no mapping there); -ESTALE: the mapping shows memory
 *   of an earlier layout, which the mount no longer has under that slot.
 */
GMSFS_API int gmsfs_descriptor_of(gmsfs_t *handle, const void *ptr, int *fd);

#ifdef __cplusplus
}
#endif
#endif
