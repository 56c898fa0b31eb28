/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs.h - the client library of gmsfs: memory of a mounted store, locked, mapped and described
 *
 * For programs that load a model into a store, or map one that is there. A handle (`gmsfs_t`)
 * stands for one store, say /mnt/gms/gpu0/weights. A process connects (takes the store's lock, RO
 * or RW), allocates or attaches, maps, and a writer commits, or seals what is never finished. The
 * calls bear the names that NVIDIA Dynamo's GPU Memory Service gives its client: tier 1 deals in
 * allocation handles, virtual addresses and metadata one by one; tier 2 in whole mappings, and in
 * putting a process to sleep (gmsfs_unmap_all_vas) and waking it (gmsfs_remap_all_vas) with every
 * pointer as it was.
 *
 * The library never exits, prints, changes signal dispositions or masks, or starts threads (but
 * gmsfs_connect_start one, where it would have to wait). Every descriptor that it opens or returns
 * is O_CLOEXEC.
 *
 * RETURNS. Functions that return int return 0 (some: a non-negative number, where said) or a
 * negative errno; errno itself is not part of the interface. Outputs are written on success only,
 * and may be NULL where "optional". A call that fails has changed nothing, unless it says so.
 * Every function can return, beside the errors named at it:
 *   -EINVAL    an argument is NULL, zero or out of range where that makes no sense
 *   -ENOMEM    the library has no memory for itself
 *   -ENOTCONN  the mount is dead: its daemon ended; -ETIMEDOUT: it does not answer
 *   -EPROTO    it answers what this library does not understand
 *   -ENODEV    the device is gone; or the mount is drained (gmsfs drain), or fenced for a
 *              checkpoint (gmsfs fence), and grants no lock
 *   -EIO       the device failed; or the store may be damaged and takes no readers (gmsfs(5),
 *              Health)
 *   -ECHILD    the handle was opened before fork() and this is the child (see FORK); or memory of a
 *              GPU is asked for in the child of a process that has used the CUDA driver
 *   -EBADF     the handle was closed; -EDEADLK: this thread is in a call on it (see SIGNALS)
 *   -ESTALE    the session is over (revoked, or the store was removed)
 * Every one that maps or exports memory, or opens or reads a file of the mount, too:
 *   -EHOSTUNREACH `.fds` is not above the store: the store alone was bind-mounted
 *   -ENAMETOOLONG there is no /proc, and the store's path has more than 100 bytes
 *   -EMFILE, -ENFILE not one descriptor is free
 *
 * TEXTS. A program may read the files of a mount by itself (gmsfs(5)). What read(2) gives until it
 * returns 0 is one whole version of a text. A reader that goes by st_size sees one version, or only
 * its beginning, without the final newline, where the text has grown meanwhile; never two mixed.
 *
 * THREADS. Any function may be called from any thread. The calls on one handle that talk to the
 * mount or change mappings are done one after the other, also while one of them waits
 * (gmsfs_connect, gmsfs_remap_all_vas, allocation). Never held up by those are the properties
 * (gmsfs_granted_lock to gmsfs_session_token), gmsfs_resolve, gmsfs_locate, and gmsfs_cancel,
 * which ends such a wait; gmsfs_disconnect and gmsfs_close end it themselves. Two handles are
 * independent, on the same store too: each has its own session. gmsfs_close must be the last call
 * on a handle: one that was closed, be it while another call waited for its turn, is -EBADF, as
 * long as it is among the last 64 that were; older ones must not be used. So are graph pools,
 * spaces and regions, 64 each. pthread_cancel(3) of a thread in a call takes effect when the call
 * is over: gmsfs_cancel first, where it waits.
 *
 * SIGNALS do not end a wait: it goes on for what is left of its time, at its place in the queue. No
 * function is async-signal-safe. A call on a handle from a signal handler, or from a function that
 * the library calls (gmsfs_set_synchronise), while this thread is in a call on that handle, is
 * -EDEADLK, and a gmsfs_close nothing. Properties, gmsfs_resolve and gmsfs_locate work even then,
 * but in the moments in which the call changes what they tell: -EDEADLK, or 0.
 *
 * FORK. In a child of fork() every handle of the parent is dead: its descriptors are closed, and
 * calls answer -ECHILD; only gmsfs_close is of use, to give back the handle's heap memory. The
 * mappings and reservations do not exist in the child (MADV_DONTFORK): as device memory would,
 * they belong to the process that made them, and a child pins no memory. A child that wants the
 * memory opens the store itself (and may gmsfs_join its parent's session). On a GPU it can do so if
 * the parent had not used the CUDA driver by then; else what needs the driver is -ECHILD, for the
 * driver does not work in such a child: it has to exec(3), or be made before.
 * vfork() and posix_spawn() touch nothing. Regions are otherwise: gmsfs_region.h.
 *
 * DESCRIPTORS. A handle keeps two descriptors while open, and a third once something was exported.
 * Attaching thousands of allocations under RLIMIT_NOFILE 1024 works: descriptors come in batches
 * that fit what is free, and each is closed as soon as it is mapped.
 *
 * SIZES are in bytes, times in milliseconds. An allocation has the size that was asked for and an
 * aligned size, rounded up to the mount's granularity (2 MiB by default); mappings cover the
 * aligned size. A slot (uint64_t) is GMS's "handle": an allocation's number in its store's layout.
 *
 * VERSIONS. Symbols have the version of the release that brought them (GMSFS_0.1). The structs that
 * the mount and the library fill (info, statistics, mappings, handles, regions, layouts) may grow
 * in later ones: the functions take their size as the program knows it, which macros of the same
 * names add. A program that does without these, in another language, passes the size as the last
 * argument (gmsfs_read_layout: two, of an allocation and an entry). Structs that the program fills
 * never change.
 *
 * FURTHER HEADERS. Memory of CUDA graphs is in gmsfs_graph.h, named shared memory of clients in
 * gmsfs_region.h. Each includes this one, which includes neither: few programs need them. What
 * stands here holds there too.
 *
 * SOURCE OF FACTS. The mount: what it answers is passed on, not remembered, except where "as last
 * known" stands. The binary interface below this one is gmsfs_abi.h.
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
/* To be compared: of 1.2.3 it is 10203. */
#define GMSFS_VERSION_NUMBER \
    (GMSFS_VERSION_MAJOR * 10000u + GMSFS_VERSION_MINOR * 100u + GMSFS_VERSION_PATCH)

/* The library that runs: its version as text, "0.1.0", and as GMSFS_VERSION_NUMBER; a program may
 * have been built with another one's header. */
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

/* What the store says about itself at one moment. */
struct gmsfs_info {
    uint8_t store_id[16];
    uint8_t device_uuid[16];
    uint8_t group[16];                       /* given at the last commit; zeros: none */
    char layout_hash[GMSFS_HASH_TEXT_BYTES]; /* "" when nothing is committed or sealed, and
                                              * while a writer may change it */
    enum gmsfs_state state;
    enum gmsfs_mode mode;     /* of this handle's session; GMSFS_MODE_NONE: has none */
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
    uint64_t moves; /* how often their place has changed: whoever registered mapped memory (NCCL,
                     * GPUDirect) does so again where this is another number than before */
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
    uint64_t aligned_bytes; /* what is mapped; of a piece: what it takes of its slab */
    uint64_t offset;        /* bytes into the allocation; 0 but for pieces of slabs */
};

/* Memory of this process, in bytes of the device. */
struct gmsfs_memory_info {
    uint64_t shared_bytes;    /* of the store, mapped now; an allocation counts once */
    uint64_t preserved_bytes; /* asleep: addresses without memory */
    uint64_t private_bytes;   /* of gmsfs_copy_private */
};

/* One metadata entry; key and value may hold any bytes that UTF-8 (key) allows. */
struct gmsfs_metadata {
    const char *key; /* NUL-terminated; UTF-8 of 1..GMSFS_KEY_MAX bytes, of which a `/`, a `%` and a
                      * dot in front count as three; else -EINVAL */
    const void *value;
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
    const char *key; /* NUL-terminated; a key may also hold NULs, then key_bytes says so */
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
 * Takes no lock. The handle follows that store, not the name: after `mv` it is still the same one,
 * and after `rmdir` its calls answer -ESTALE. Without write permission on the store the handle can
 * only read: RW is then -EACCES.
 * Errors: -ENOENT, -EACCES, -ENOTDIR as open(2); -ENOTTY: `path` is not a gmsfs store.
 */
GMSFS_API int gmsfs_open(const char *path, gmsfs_t **handle);

/*
 * gmsfs_close - unmap everything, release the lock (a writer that has not committed aborts), free
 *
 * All pointers into mappings and reservations of this handle become invalid. NULL is allowed.
 */
GMSFS_API void gmsfs_close(gmsfs_t *handle);

/*
 * gmsfs_reopen - let the handle follow its name again: open what now is at the path of gmsfs_open
 *
 * For a reader when `weights.next` was moved to `weights`. Preserved mappings stay reserved, so
 * gmsfs_remap_all_vas then maps the new store's memory if its layout is the same.
 * Errors: -EBUSY while connected or while anything is mapped; -EXDEV: the store there is on another
 * device, and addresses are reserved on this one; else as gmsfs_open, with the handle as it was.
 */
GMSFS_API int gmsfs_reopen(gmsfs_t *handle);

/* ---- The device ----------------------------------------------------------------------------- */

/*
 * On a GPU the library uses the CUDA driver of the process (libcuda.so.1, opened when memory is
 * first mapped; never at all for host memory), on the device with the mount's uuid, whatever its
 * ordinal. Where the calling thread has a context of that device current, calls run in it; else in
 * the device's primary context, which the handle then keeps until gmsfs_close. Between calls a
 * program may destroy its contexts, or reset the primary one: mappings are not of a context, and
 * private copies (gmsfs_copy_private) go with the one that was current when they were made.
 *
 * While a stream is capturing, calls that map, unmap or commit answer -EBUSY and change nothing:
 * one that was named by gmsfs_set_streams, or any blocking stream of that context. No call
 * invalidates a capture. What is captured may use mappings: they come back to their addresses.
 *
 * Before memory is unmapped or committed the library waits for the work of that context, by ways
 * that break no capture (cuCtxSynchronize would). gmsfs_close, which cannot answer -EBUSY, does so
 * while a stream captures as well, or asks the function of gmsfs_set_synchronise.
 * Readers' mappings are read-only for kernels: a write faults. A device that fails is -EIO, one
 * that is gone, or that this process may not see, -ENODEV.
 */

#define GMSFS_DEVICES_MAX        32u  /* beside the store's own */
#define GMSFS_DEVICE_ERROR_BYTES 256u /* with NUL */

/* The streams (CUstream, cudaStream_t) that this program captures and that do not block; replaces
 * those named before. They must live until they are replaced or the handle is closed. */
GMSFS_API int gmsfs_set_streams(gmsfs_t *handle, void *const *streams, size_t count);

/*
 * gmsfs_set_synchronise - how to wait until the program no longer uses the memory
 *
 * Called in place of the library's own way, with the context current, on host memory too; for
 * programs that use several contexts, or know which streams matter. 0 or a negative errno, which
 * fails the call. It must not call the library with this handle. NULL: the library's own way.
 */
typedef int (*gmsfs_synchronise_fn)(void *context);
GMSFS_API int gmsfs_set_synchronise(gmsfs_t *handle, gmsfs_synchronise_fn synchronise,
                                    void *context);

/*
 * gmsfs_set_devices - other devices of this process, by uuid, that may touch what is mapped from
 * now on; replaces those named before
 *
 * One that is named twice, or the store's own, counts once. Host memory is for every device alike.
 * Mappings that there are already stay with the devices that could touch them: a commit leaves all
 * of these the right to read, and takes from all of them the right to write. What sleeps wakes for
 * the devices that are named then.
 * Errors, when something is mapped: -ENODEV; -EOPNOTSUPP: it is beyond the 64th of this process.
 */
GMSFS_API int gmsfs_set_devices(gmsfs_t *handle, const uint8_t (*uuids)[16], size_t count);

/* What the driver complained of, e.g. "cuMemMap: CUDA_ERROR_...", in the last call on this handle
 * that had to do with its memory (mappings, addresses, private copies, a commit with mappings); ""
 * where it did not: each such call begins without. Calls of the lock and of metadata, and looks at
 * the store, leave it as it is. */
GMSFS_API int gmsfs_device_error(gmsfs_t *handle, char text[GMSFS_DEVICE_ERROR_BYTES]);

/* ---- The lock ------------------------------------------------------------------------------- */

#define GMSFS_CONNECT_REPLACE    (1u << 0)
#define GMSFS_CONNECT_ANY        (1u << 1)
#define GMSFS_CONNECT_KEEP_PLACE (1u << 2)

/*
 * gmsfs_set_connect_flags - how this handle connects from now on
 *
 * flags: 0: where the store is not on its device, it waits until it is there, as the writer and as
 *   a reader.
 *   GMSFS_CONNECT_REPLACE: as the writer it does not, for it will clear the store first
 *   (gmsfs_clear_all_handles); until then what is elsewhere cannot be mapped or exported (-EAGAIN),
 *   nor committed. GMSFS_CONNECT_ANY: as a reader it does not, and maps what there is: bytes
 *   beside a GPU as host memory (gmsfs_info.memory says which), without the GPU. A handle that has
 *   addresses reserved already keeps their kind, and calls that map another are -EXDEV. Of
 *   gmsfs_connect; a group's members do not change their kind.
 *   GMSFS_CONNECT_KEEP_PLACE: after -ETIMEDOUT its place in the queue is kept for a second: who
 *   asks again by then, for the same, goes on waiting where it was. Meanwhile a writer's place
 *   holds readers off; a writer behind it, or for a reader anybody, is let past if the lock is
 *   free in the moment between.
 *   gmsfs_disconnect, gmsfs_close and gmsfs_cancel give the place up.
 * Errors: -EINVAL.
 */
GMSFS_API int gmsfs_set_connect_flags(gmsfs_t *handle, unsigned flags);

/*
 * gmsfs_connect - take the store's lock
 *
 * mode: what gmsfs_granted_lock tells afterwards, where it leaves a choice:
 *   GMSFS_MODE_RO waits until a layout is committed and no writer is there or waits.
 *   GMSFS_MODE_RW waits until there is no session at all.
 *   GMSFS_MODE_RW_OR_RO becomes RW if nothing is committed when the grant comes, else RO.
 *   GMSFS_MODE_RW_DATA_OR_RW waits as RW. Where a sealed layout (gmsfs_commit_layout) is there
 *     then, it becomes GMSFS_MODE_RW_DATA and adopts it, once every other process that could write
 *     its memory has exited; else RW.
 * timeout_ms: 0 tries once; GMSFS_TIMEOUT_FOREVER, or -1, waits without end.
 *
 * The session is this handle's alone: another handle of the same process, or its path operations,
 * do not share it. The writer sees the committed layout, and changes it in place or clears it; a
 * layout that is only sealed is dropped when RW is granted. Mappings left over from an earlier
 * session stay what they are; see gmsfs_remap_all_vas.
 * Errors: -EAGAIN (timeout 0), -ETIMEDOUT; -ECANCELED: an administrator, or gmsfs_cancel, ended the
 *   wait; -EACCES (RW without write permission), -EBUSY (this handle is connected); -ENODATA (RO):
 *   the store has given up its bytes; -EDQUOT, -ENOSPC: too many sessions or waiters.
 */
GMSFS_API int gmsfs_connect(gmsfs_t *handle, enum gmsfs_mode mode, uint64_t timeout_ms);

/*
 * gmsfs_connect_reserve - take the writer's lock together with memory, or neither
 *
 * As gmsfs_connect, but not with GMSFS_MODE_RO. The grant of RW comes only when
 * reserve_bytes are set aside for the session: other sessions cannot have them, and two loaders
 * never hold half a device each. What the session allocates is taken from them first; the rest goes
 * back when the session ends or commits. While waiting it holds neither lock nor memory.
 * reserve_bytes: the sum of the aligned sizes; 0: as gmsfs_connect. What the store has committed
 *   counts as there, for a writer that replaces it frees it (gmsfs_clear_all_handles); one that
 *   keeps it must not count on that part. RW_OR_RO that becomes RO, and RW_DATA_OR_RW that
 *   becomes RW_DATA, set nothing aside.
 * Errors: as gmsfs_connect; -EINVAL (RO), -ENOMEM: the device has not as much in all, or (timeout
 *   0) not now.
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
 * gmsfs_disconnect - release the lock; when it returns, others can have it
 *
 * A writer that has not committed aborts; one that has sealed (RW_DATA) leaves everything as it is.
 * Mappings stay: they show the memory that they showed, but nothing keeps a writer from changing
 * it. To give everything back use gmsfs_unmap_all_vas. Not being connected is no error.
 */
GMSFS_API int gmsfs_disconnect(gmsfs_t *handle);

/*
 * gmsfs_commit - publish the writer's layout
 *
 * flags: GMSFS_COMMIT_STAY: the session goes on as a reader's, and nobody can write in between;
 *   without it the lock is released. GMSFS_COMMIT_GROUP: store `group` with the layout.
 * group: 16 bytes, with GMSFS_COMMIT_GROUP; else NULL.
 * The mappings of this handle stay; they become read-only first, for every device that they were
 * writable for, and are writable again where the commit is refused.
 * Errors: -ENOLCK (not the writer); -EBUSY: a stream is capturing, or an allocation is still being
 *   written to by its file; -EINVAL: an allocation has no memory, or an entry points outside of its
 *   own (the store's `info` names it as last_error).
 */
GMSFS_API int gmsfs_commit(gmsfs_t *handle, unsigned flags, const uint8_t *group);

/*
 * gmsfs_commit_layout - seal the writer's layout: its shape is final, its bytes go on changing
 *
 * The session goes on with GMSFS_MODE_RW_DATA: allocations and metadata change no more, nothing is
 * published to readers, and the mappings of this handle stay writable. When the session ends,
 * however it does, layout and bytes stay for whoever connects with GMSFS_MODE_RW_DATA_OR_RW next.
 * For memory that shall survive its process and is not finished, such as a KV cache.
 * Errors: -ENOLCK (not the writer, or sealed already); -EINVAL as gmsfs_commit; -EOPNOTSUPP: a
 *   process that the mount cannot see (of another PID namespace) may write the memory, so nobody
 *   could tell when it has exited.
 */
GMSFS_API int gmsfs_commit_layout(gmsfs_t *handle);

/*
 * gmsfs_abort - discard the writer's layout and release the lock
 *
 * With RW_DATA it only releases the lock: what is sealed stays as it is, and rolled_back is 0.
 * rolled_back: optional; 1: the committed layout is back, 0: the store is EMPTY, because bytes of
 *   it may have been changed. Mappings stay, see gmsfs_disconnect.
 * Errors: -ENOLCK (not the writer).
 */
GMSFS_API int gmsfs_abort(gmsfs_t *handle, int *rolled_back);

/*
 * gmsfs_connect_start, gmsfs_connect_continue - take the lock without a thread that waits for it
 *
 * start: as gmsfs_connect_reserve, but where it would wait it answers -EINPROGRESS: the handle has
 *   a place in the queue, as others that wait, and *fd is a descriptor for poll(2), epoll(7) or an
 *   event loop, which is the handle's and must not be read or closed.
 * continue: to be called when that is readable: 0: connected; -EINPROGRESS: not yet; anything
 *   else: the end of it, with the errors of gmsfs_connect. But for -EINPROGRESS fd is closed.
 * Neither waits for others. Meanwhile a thread of the library, which takes no signals, is in the
 * queue in the caller's place: once granted, the lock is held, whether anybody asks or not.
 * Until it has ended, other calls that take the lock are -EBUSY. gmsfs_disconnect ends it at once;
 * gmsfs_cancel has the next continue answer -ECANCELED, and fd readable.
 * Errors: as gmsfs_connect_reserve; -EINVAL (continue): nothing was started.
 */
GMSFS_API int gmsfs_connect_start(gmsfs_t *handle, enum gmsfs_mode mode, uint64_t timeout_ms,
                                  uint64_t reserve_bytes, int *fd);
GMSFS_API int gmsfs_connect_continue(gmsfs_t *handle);

#define GMSFS_NOTICE_LOST 1 /* the session is over: revoked, its store removed, its mount dead */
#define GMSFS_NOTICE_LEAVE \
    2 /* the store, or the mount, is being drained: holders are asked to go */

/*
 * gmsfs_notice_descriptor, gmsfs_notices - hear that a lock was lost, or that others want it
 *
 * descriptor: for poll(2): readable when something has happened on the mount, not only to this
 *   handle, and when the mount is dead. It is the handle's, opened at the first call, and must not
 *   be read or closed. Where gmsfs_retarget has led to another mount it has the same number, and is
 *   to be given to epoll(7) anew. -EHOSTUNREACH: `events` is not above the store.
 * notices: looks, and makes the descriptor wait for what happens next: 0, or GMSFS_NOTICE_LOST,
 *   once, after which the handle is not connected, or GMSFS_NOTICE_LEAVE, as long as that holds.
 *   Of a handle that is not connected: 0. Works without the descriptor too. What cannot be told now
 *   is an error as of gmsfs_get_info, -ENOMEM say, and nothing has changed: ask again.
 */
GMSFS_API int gmsfs_notice_descriptor(gmsfs_t *handle);
GMSFS_API int gmsfs_notices(gmsfs_t *handle);

/*
 * gmsfs_cancel - end what another thread waits for in a call on this handle
 *
 * That call ends with -ECANCELED, at once where it waits for a lock or for memory, else where it
 * would begin to wait; what it had got before is as after any other failure. One that is not held
 * up ends as ever. A connection that gmsfs_connect_start began is given up, as is a place that is
 * kept (GMSFS_CONNECT_KEEP_PLACE). With handles of a group, any of them stands for all. Nothing
 * that waits is no error. Errors: -EDEADLK: this thread is in a call on the handle.
 */
GMSFS_API int gmsfs_cancel(gmsfs_t *handle);

/* ---- Several stores as one: the ranks of a model ------------------------------------------- */

#define GMSFS_GROUP_MAX 256u /* stores of one group */

/*
 * gmsfs_connect_group - take the locks of several stores, all or none, all with the same grant
 *
 * handles: `count` of them, 1..GMSFS_GROUP_MAX, in any order, each of another store, on any mounts.
 * What gmsfs_commit_group publishes together is whole: every store committed, with one group id.
 * (One store alone is whole when it is committed.)
 * mode: GMSFS_MODE_RW is the writer of all, whatever they hold.
 *   GMSFS_MODE_RO waits until all are committed, then wants them whole. It holds no lock while it
 *   waits.
 *   GMSFS_MODE_RW_OR_RO is RO where they are whole, RW where nothing is committed, and else RW too,
 *   so that what a writer left half committed as it died is loaded anew. Where one of the stores
 *   may not be written to, it is RO.
 * timeout_ms: as in gmsfs_connect, for all together.
 * Locks are taken in the order of the store ids, so groups that overlap never wait for each other
 * in a circle. A process that holds one of these locks by another handle waits for itself.
 * Stores that are not on their devices come there one by one, in the order of the devices, and are
 * waited for with no lock in hand: two groups that lack each other's memory both get their turn. A
 * store that has given up its bytes (`none`) is not whole: RW_OR_RO is RW then, RO is -ENODATA.
 * Afterwards each handle is connected as by gmsfs_connect: fill it, hand its token to a worker,
 * disconnect it. Never granted in part: on failure none is connected, and all locks taken on the
 * way are given back. While it waits, nobody sees what it has so far in gmsfs_granted_lock.
 * Errors: as gmsfs_connect; -EINVAL: a store twice; -EBUSY: a handle is connected; -ESTALE: (RO)
 * all are committed, but not with one id, a mix of two loads; or a store was removed, or the
 * session on one was revoked while others were waited for.
 */
GMSFS_API int gmsfs_connect_group(gmsfs_t *const *handles, size_t count, enum gmsfs_mode mode,
                                  uint64_t timeout_ms);

/*
 * gmsfs_connect_group_reserve - take the writer's locks of several stores together with memory
 *
 * As gmsfs_connect_group, and where the grant is RW, reserve_bytes[i] are set aside for handles[i],
 * as by gmsfs_connect_reserve: for all of them or none. Two groups never hold a part of their
 * devices each: where memory lacks, it waits for that with no lock and nothing else set aside.
 * reserve_bytes: `count` of them, in the order of the handles, each 0 if nothing is to be set
 *   aside; NULL: as gmsfs_connect_group. Several stores may be of one device.
 * Errors: as gmsfs_connect_group; -EINVAL (RO), -ENOMEM: a device has not as much in all, or
 *   (timeout 0) not now.
 */
GMSFS_API int gmsfs_connect_group_reserve(gmsfs_t *const *handles, size_t count,
                                          enum gmsfs_mode mode, uint64_t timeout_ms,
                                          const uint64_t *reserve_bytes);

/*
 * gmsfs_commit_group - commit the writer's layouts of several stores, with one new group id
 *
 * flags: GMSFS_COMMIT_STAY or 0, as in gmsfs_commit. id: optional, 16 bytes; also written when it
 * fails half-way. That all locks are still held, and that no store refuses its layout, is looked at
 * before the first commit. The store with the lowest id comes last, for all who take a group begin
 * there.
 * A failure before the first commit has changed nothing. After one half-way (a session that is
 * revoked, a mount that dies), those before it are committed, and the others have their RW lock and
 * their work still (gmsfs_granted_lock tells):
 * repair the cause and gmsfs_commit each with GMSFS_COMMIT_GROUP and this id, or disconnect them;
 * then the group is not whole, and the next RW_OR_RO loads it anew, as after a crash here.
 * Errors: as gmsfs_commit; -ENOLCK: not the writer of each; -EINVAL: also a store twice.
 */
GMSFS_API int gmsfs_commit_group(gmsfs_t *const *handles, size_t count, unsigned flags,
                                 uint8_t *id);

/* ---- Properties: never wait ----------------------------------------------------------------- */

/* The lock of this handle as last known: GMSFS_MODE_NONE, _RO, _RW or _RW_DATA. */
GMSFS_API enum gmsfs_mode gmsfs_granted_lock(gmsfs_t *handle);

/* 1 while this handle has a session, as last known (a call that found it revoked makes this 0). */
GMSFS_API int gmsfs_is_connected(gmsfs_t *handle);

/* 1 from gmsfs_unmap_all_vas until a remap or reallocate succeeds. */
GMSFS_API int gmsfs_is_unmapped(gmsfs_t *handle);

/* Bytes of allocations that this handle has mapped, whole slabs and preserved ones included. */
GMSFS_API uint64_t gmsfs_total_bytes(gmsfs_t *handle);

/* The store's generation when the lock was granted, or as made by gmsfs_commit and
 * gmsfs_commit_layout. */
GMSFS_API uint64_t gmsfs_generation(gmsfs_t *handle);

/*
 * The token that lets others join this handle's session. Errors: -ENOLCK (not connected).
 * Whoever has it and may open the store is a member: hand it over as a secret.
 */
GMSFS_API int gmsfs_session_token(gmsfs_t *handle, uint8_t token[GMSFS_TOKEN_BYTES]);

/* Tokens as 32 hex digits, as GMSFS_SESSION has them in the environment. parse: -EINVAL. */
GMSFS_API void gmsfs_token_format(const uint8_t token[GMSFS_TOKEN_BYTES],
                                  char text[GMSFS_TOKEN_TEXT_BYTES]);
GMSFS_API int gmsfs_token_parse(const char *text, uint8_t token[GMSFS_TOKEN_BYTES]);

/* ---- Looking: asks the mount, needs no lock, does not wait for locks --------------------- */

GMSFS_API int gmsfs_get_info(gmsfs_t *handle, struct gmsfs_info *info, size_t info_bytes);
#define gmsfs_get_info(handle, info) gmsfs_get_info(handle, info, sizeof(struct gmsfs_info))

/*
 * gmsfs_get_memory_layout_hash - 32 hex digits, or "" when nothing is committed or sealed, or a
 * writer may change it
 *
 * Equal structure (sizes, tags, metadata) gives an equal hash; contents do not count.
 */
GMSFS_API int gmsfs_get_memory_layout_hash(gmsfs_t *handle, char text[GMSFS_HASH_TEXT_BYTES]);

/*
 * gmsfs_read_layout - the whole committed or sealed layout with all metadata, in one read
 *
 * layout: to be given back by gmsfs_free_layout. Its ranks are those of struct gmsfs_mapping.
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
 * size_bytes: > 0. tag: a label, UTF-8 of up to GMSFS_NAME_MAX bytes, NULL: "". name: of its file
 * in `allocations/`, as long, without a slash, without a dot in front ("." and ".." too), and with
 * a % only as file names have it (gmsfs_map(3)); NULL or "": a000000, a000001, ... by slot. Waits
 * for memory that others are giving back, or may, up to the mount's alloc_timeout; -ENOMEM at once
 * where only this writer, or nobody, could give any.
 * Errors: -ENOLCK (not the writer), -ENOMEM (the device is full), -EDQUOT (a budget forbids it),
 * -ENOSPC (too many), -EEXIST; -EINVAL also: a name or tag that is none.
 */
GMSFS_API int gmsfs_allocate_handle(gmsfs_t *handle, uint64_t size_bytes, const char *tag,
                                    const char *name, uint64_t *slot);

/*
 * gmsfs_allocate_handles - `count` allocations of size_bytes each, all or nothing
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
 * gmsfs_allocate_each - several allocations that differ, all or nothing
 *
 * Their memory is made at the same time: on host memory that is what a call for each would wait
 * for. Ranks are in the order of `wanted`. count: at most GMSFS_ALLOCATE_EACH_MAX. slots: of each,
 * or NULL. flags and errors: as gmsfs_allocate_handles; -ENOTTY: an older daemon.
 */
GMSFS_API int gmsfs_allocate_each(gmsfs_t *handle, const struct gmsfs_new_allocation *wanted,
                                  size_t count, unsigned flags, uint64_t *slots);

/*
 * gmsfs_export_handle - a new descriptor of an allocation's memory, which the caller closes
 *
 * Whoever holds it keeps the memory alive. On host memory it is a memfd of the aligned size, for
 * mmap(2), pread(2) and sendfile(2); with GMSFS_ACCESS_READ a read-only one. On a GPU it is for
 * cuMemImportFromShareableHandle, and access is the importer's to set.
 * Needs the lock. GMSFS_ACCESS_WRITE on committed memory: an abort can no longer roll back.
 * Errors: -ENOLCK, -EACCES (WRITE as reader), -ENOENT (no such slot); -EAGAIN: its bytes are not
 *   on the device (GMSFS_CONNECT_REPLACE), -ENODATA: they were given up; -EBUSY: it is being
 *   written by its file.
 */
GMSFS_API int gmsfs_export_handle(gmsfs_t *handle, uint64_t slot, enum gmsfs_access access,
                                  int *fd);

/*
 * gmsfs_export_each - the same of several allocations, all or none
 *
 * One after the other costs as many trips to the daemon; of allocations whose slots follow one
 * another, as gmsfs_allocate_each makes them, the descriptors come together. count: at most
 * GMSFS_ALLOCATE_EACH_MAX. fds: in the order of `slots`; all -1 where it fails, but where
 * count is none that is allowed. Errors: as gmsfs_export_handle.
 */
GMSFS_API int gmsfs_export_each(gmsfs_t *handle, const uint64_t *slots, size_t count,
                                enum gmsfs_access access, int *fds);

/* Needs no lock. Errors: -ENOENT (no such slot). */
GMSFS_API int gmsfs_get_handle_info(gmsfs_t *handle, uint64_t slot, struct gmsfs_handle_info *info,
                                    size_t info_bytes);
#define gmsfs_get_handle_info(handle, slot, info) \
    gmsfs_get_handle_info(handle, slot, info, sizeof(struct gmsfs_handle_info))

/*
 * gmsfs_list_handles - all allocations by slot; of the working copy while a writer works
 *
 * tag: optional, only those with this tag. list: to be freed with free(3); NULL when empty.
 */
GMSFS_API int gmsfs_list_handles(gmsfs_t *handle, const char *tag, struct gmsfs_handle_info **list,
                                 size_t *count, size_t item_bytes);
#define gmsfs_list_handles(handle, tag, list, count) \
    gmsfs_list_handles(handle, tag, list, count, sizeof(struct gmsfs_handle_info))

/*
 * gmsfs_set_memory_timeout - how long calls on this handle wait for memory that others give back
 *
 * timeout_ms: 0: not at all (-ENOMEM at once, as with GMSFS_ALLOC_NOWAIT); the mount's
 *   alloc_timeout is the most; GMSFS_TIMEOUT_FOREVER, or -1, as after gmsfs_open: that one. Of
 *   gmsfs_allocate_handle(s), gmsfs_create_mapping and gmsfs_reallocate_all_handles. Memory that is
 *   set aside with a lock is waited for as the lock is.
 */
GMSFS_API int gmsfs_set_memory_timeout(gmsfs_t *handle, uint64_t timeout_ms);

/* Remove an allocation, a slab with all its pieces too, and the entries bound to it; mappings stay.
 * Errors: -ENOLCK, -ENOENT. */
GMSFS_API int gmsfs_free_handle(gmsfs_t *handle, uint64_t slot);

/* Remove all allocations and all entries; mappings stay. How many there are gmsfs_list_handles
 * tells the writer before. Errors: -ENOLCK. */
GMSFS_API int gmsfs_clear_all_handles(gmsfs_t *handle);

/* ---- Tier 1: addresses ---------------------------------------------------------------------- */

/*
 * gmsfs_reserve_va - reserve address space, without memory; touching it is a fault
 *
 * size_bytes is rounded up to the granularity, to which the address is aligned too.
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

/* Unmap what was mapped at exactly `va`; the addresses stay reserved. Errors: -ENOENT, -EBUSY (it
 * is a slab with pieces). */
GMSFS_API int gmsfs_unmap_va(gmsfs_t *handle, void *va);

/* Give back the reservation that begins at `va`. Errors: -ENOENT, -EBUSY (has mappings). */
GMSFS_API int gmsfs_free_va(gmsfs_t *handle, void *va);

/* ---- Tier 1: metadata ----------------------------------------------------------------------- */

/*
 * gmsfs_metadata_put - set an entry, replacing one of the same key
 *
 * An offset that is not below the allocation's aligned size is found by gmsfs_commit.
 * Errors: -ENOLCK (not the writer), -EINVAL (key, no such slot, or an offset other than 0 where it
 * is bound to none), -ENOSPC (bounds), -EFBIG: the value has more than GMSFS_VALUE_MAX bytes; it is
 * not looked at, and the mount is not asked.
 */
GMSFS_API int gmsfs_metadata_put(gmsfs_t *handle, const struct gmsfs_metadata *entry);

/*
 * gmsfs_metadata_put_many - set many entries at once, all or nothing
 *
 * culprit: optional; on failure the index of the entry at fault, or SIZE_MAX when it is none of
 * them. No other member of the session may free allocations meanwhile.
 * Errors: as gmsfs_metadata_put; -EFBIG without a culprit: all of them together are more than the
 * mount takes at once (gmsfs(5), LIMITS).
 */
GMSFS_API int gmsfs_metadata_put_many(gmsfs_t *handle, const struct gmsfs_metadata *entries,
                                      size_t count, size_t *culprit);

/*
 * gmsfs_metadata_get - look an entry up; needs no lock
 *
 * slot, offset, value, value_bytes: optional. value: to be freed with free(3), never NULL; a NUL
 * that value_bytes does not count follows the bytes. Errors: -ENOENT; -EINVAL: no entry can have
 * such a key.
 */
GMSFS_API int gmsfs_metadata_get(gmsfs_t *handle, const char *key, uint64_t *slot, uint64_t *offset,
                                 void **value, size_t *value_bytes);

/*
 * gmsfs_metadata_list - keys that begin with `prefix` (NULL or "": all), in bytewise order
 *
 * keys: `count` NUL-terminated strings in one block, to be freed with one free(3). A key that holds
 * a NUL (gmsfs_read_layout shows such) is left out, as C strings cannot name it. Needs no lock.
 */
GMSFS_API int gmsfs_metadata_list(gmsfs_t *handle, const char *prefix, char ***keys, size_t *count);

/* Errors: -ENOLCK, -ENOENT, -EINVAL (key). */
GMSFS_API int gmsfs_metadata_delete(gmsfs_t *handle, const char *key);

/* ---- Tier 2: mappings ----------------------------------------------------------------------- */

#define GMSFS_SLAB_DEFAULT       UINT64_MAX
#define GMSFS_SLAB_DEFAULT_BYTES (UINT64_C(2) << 30) /* the largest */

/*
 * gmsfs_set_slab_bytes - from how large allocations gmsfs_create_mapping carves
 *
 * The number of allocations decides what attaching, sleeping and waking cost. So sizes up to that
 * of a slab are pieces of slabs. slab_bytes: rounded up to the granularity; 0: one allocation for
 * each; GMSFS_SLAB_DEFAULT, as after gmsfs_open: a slab is as large as one granule, or a quarter of
 * what its tag has in slabs by then, or its first piece, whatever is most, up to 2 GiB, or less
 * where an eighth of the device, or what was announced at connect (gmsfs_connect_reserve), is less;
 * and the first of all is as large as what was announced. So a tag costs at most about a quarter
 * more than it holds, and what its pieces leave of a granule: 10 MB in pieces of 600 KiB, six
 * granules of 2 MiB; the 291 tensors of an 8B model, 14 allocations and 1 %. Holds for what is
 * created from now on. A slab is allocated whole: a device that has less left is full (-ENOMEM).
 */
GMSFS_API int gmsfs_set_slab_bytes(gmsfs_t *handle, uint64_t slab_bytes);

/*
 * gmsfs_create_mapping - allocate, reserve and map for writing, in one call, all or nothing
 *
 * A size over that of the largest slab is an allocation of its own, with offset 0. A smaller one is
 * a piece: in the oldest slab with this tag that has room for it, in the first gap, at a multiple
 * of 512 bytes. So the same calls in the same order give the same layout, and the same layout_hash.
 * slot: optional; of the allocation, be it a slab. gmsfs_resolve tells the offset in it, which
 * metadata must say. Memory is zeroed, except that a piece where one was destroyed has its bytes.
 * Errors: as gmsfs_allocate_handle and gmsfs_map_va.
 */
GMSFS_API int gmsfs_create_mapping(gmsfs_t *handle, uint64_t size_bytes, const char *tag,
                                   uint64_t *slot, void **ptr);

/* The same for an allocation that exists: reserve and map. */
GMSFS_API int gmsfs_attach_mapping(gmsfs_t *handle, uint64_t slot, enum gmsfs_access access,
                                   void **ptr);

/*
 * gmsfs_attach_all - map the whole layout, side by side in rank order
 *
 * list: optional; `count` mappings by rank, to be freed with free(3); NULL when the layout is
 * empty. count: optional. One ioctl, one message, and one receive for every 253 allocations.
 * Errors: as gmsfs_map_va; then nothing is mapped.
 */
GMSFS_API int gmsfs_attach_all(gmsfs_t *handle, enum gmsfs_access access,
                               struct gmsfs_mapping **list, size_t *count, size_t item_bytes);
#define gmsfs_attach_all(handle, access, list, count) \
    gmsfs_attach_all(handle, access, list, count, sizeof(struct gmsfs_mapping))

/*
 * gmsfs_destroy_mapping - undo gmsfs_create_mapping, gmsfs_attach_mapping, or one of attach_all
 *
 * ptr: where a mapping or a piece begins. What gmsfs_create_mapping made goes back while this
 * handle is still the writer that made it, asleep too: a piece to its slab, the last piece with its
 * slab to the device; after a commit it stays in the layout, and the slab is unmapped with its last
 * piece. Where the mount does not take it back now (-ENOMEM, say), nothing has changed.
 * Entries bound into a piece are the caller's to delete. What was attached only stays in the
 * layout. A mapping made by gmsfs_map_va is unmapped; its reservation is the caller's. Errors:
 * -ENOENT.
 */
GMSFS_API int gmsfs_destroy_mapping(gmsfs_t *handle, void *ptr);

/* All mappings of this handle by address, in place of a slab its pieces, preserved ones included;
 * list as in attach_all. */
GMSFS_API int gmsfs_list_mappings(gmsfs_t *handle, struct gmsfs_mapping **list, size_t *count,
                                  size_t item_bytes);
#define gmsfs_list_mappings(handle, list, count) \
    gmsfs_list_mappings(handle, list, count, sizeof(struct gmsfs_mapping))

#define GMSFS_UNMAP_KEEP_LOCK (1u << 0)

/*
 * gmsfs_unmap_all_vas - go to sleep: unmap everything, keep the addresses, release the lock
 *
 * Afterwards the process holds no mapping and no descriptor of the memory, so it pins none; its
 * pointers must not be used until gmsfs_remap_all_vas or gmsfs_reallocate_all_handles.
 * A writer that has not committed aborts, as by gmsfs_disconnect. On a dead mount everything is
 * unmapped too, and the answer -ENOTCONN.
 * flags: GMSFS_UNMAP_KEEP_LOCK: leave the lock as it is.
 */
GMSFS_API int gmsfs_unmap_all_vas(gmsfs_t *handle, unsigned flags);

/*
 * gmsfs_remap_all_vas - wake up: map the same layout at the same addresses
 *
 * Takes the RO lock if the handle is not connected (timeout_ms as in gmsfs_connect), else uses the
 * one it has. What was writable is read-only under an RO lock.
 * strict: 0: the layout must have the same layout_hash as when it was unmapped, so every pointer
 *   points at the same tensor, but a writer may have published new bytes (see gmsfs_generation).
 *   1: it must also be the same store and generation, so the bytes are the same.
 *   Compared is what the mappings showed; where there were none, any layout will do.
 *   A layout unmapped before its first commit has no hash: then the sizes by rank must agree.
 *   Under an RW lock the hash is not known: then there must have been no other commit.
 * All or nothing: on failure nothing is mapped, the addresses stay reserved, and the lock is as
 * before. Mappings made since gmsfs_unmap_all_vas are left alone.
 * Errors: -ESTALE (the layout changed; strict: the generation or the store), -EINVAL (not
 *   unmapped), and those of gmsfs_connect and gmsfs_map_va.
 */
GMSFS_API int gmsfs_remap_all_vas(gmsfs_t *handle, uint64_t timeout_ms, int strict);

/*
 * gmsfs_unmap_tag, gmsfs_remap_tag - put to sleep and wake what has one tag; the rest stays mapped
 *
 * For an engine that gives back its KV cache apart from its weights, say, which are in one store.
 * The lock is needed, and kept: what is allocated stays so, and this process has no mapping of it.
 * remap: as gmsfs_remap_all_vas with strict 0, of what sleeps with this tag; all or nothing. What
 * sleeps by its tag wakes with gmsfs_remap_all_vas as well, after gmsfs_unmap_all_vas.
 * tag: "" for what has none. That nothing has it, or nothing sleeps or is awake, is no error.
 * Errors: -ENOLCK: not connected; -EINVAL: all sleep (gmsfs_unmap_all_vas); those of
 *   gmsfs_unmap_all_vas, and (remap) of gmsfs_remap_all_vas.
 */
GMSFS_API int gmsfs_unmap_tag(gmsfs_t *handle, const char *tag);
GMSFS_API int gmsfs_remap_tag(gmsfs_t *handle, const char *tag);

/*
 * gmsfs_retarget - map another store of the same shape at the same addresses
 *
 * For a slot: a reader's handle whose pointers stay while one adapter after the other is behind
 * them. `path`: the other store, on the same device. The reader's lock of the store that the handle
 * had is released, that of the other is taken, and every mapping shows the allocation of the same
 * rank there; gmsfs_reopen then follows the new path. The handle is awake afterwards, also if it
 * slept. One that has mapped nothing yet takes any store, and its lock.
 *
 * The same shape: as many allocations, of the same sizes and tags by rank, and the same entries in
 * them: key, rank, offset, value (a tensor's type and dimensions). Entries that are bound to no
 * allocation may differ, and so may slots: gmsfs_resolve and gmsfs_generation tell the new ones.
 *
 * If the other's lock can be had at once, the old one is given back after it was taken, and nobody
 * gets in between. Else (a writer is there, or the bytes have to come to the device first) the
 * memory and the lock of the old store go before the wait: what waits holds nothing that others,
 * or the promotion that it waits for, may need. timeout_ms as in gmsfs_connect; 0 changes nothing
 * where it cannot be had at once (-EAGAIN).
 *
 * Nobody may use the pointers meanwhile; the device's work is waited for, as by
 * gmsfs_unmap_all_vas. gmsfs_granted_lock and gmsfs_resolve are not held up and tell the one store
 * or the other.
 *
 * All or nothing: on failure the handle is on the store that it had. With the lock and mapped as
 * before, if it had not to wait. After a wait, only if that store's lock can be had at once and
 * nobody has committed to it since; else (it was evicted meanwhile, say) the handle sleeps on it
 * without the lock (gmsfs_is_unmapped), as after gmsfs_unmap_all_vas, and gmsfs_remap_all_vas wakes
 * it.
 * Errors: -ESTALE: the layout there has another shape, or what the handle maps was never committed,
 *   or is no longer its store's and gmsfs_retarget has not seen it before;
 *   -EXDEV: another device (of host memory, every mount is one), or the handle maps host memory for
 *   GMSFS_CONNECT_ANY; -EBUSY: the handle is a writer, or maps something though it sleeps;
 *   -ENOLCK: it maps something without the lock (gmsfs_unmap_all_vas first);
 *   and those of gmsfs_open, gmsfs_connect and gmsfs_map_va.
 */
GMSFS_API int gmsfs_retarget(gmsfs_t *handle, const char *path, uint64_t timeout_ms);

/*
 * gmsfs_reallocate_all_handles - wake up with new memory: allocate the same sizes and tags anew
 *
 * Tags are those that were given at the allocation, or found before going to sleep. Needs the RW
 * lock, and gmsfs_unmap_all_vas before it. In the same order as the old ones, zeroed, mapped for
 * writing at the same addresses; several mappings of one allocation share the new one. What is in
 * the layout already stays (gmsfs_clear_all_handles first, to begin afresh).
 * All the memory is set aside before any is allocated, as by gmsfs_connect_reserve, waiting for it
 * as gmsfs_allocate_handle does: -ENOMEM leaves nothing half done.
 * All or nothing, as gmsfs_remap_all_vas.
 * Errors: -ENOLCK (not the writer), -ENODATA (the tags are not known: the handle was not connected
 *   when the memory was unmapped), and those of gmsfs_allocate_handle and gmsfs_map_va.
 */
GMSFS_API int gmsfs_reallocate_all_handles(gmsfs_t *handle);

/*
 * gmsfs_copy_private - memory of this process alone, with the bytes at `ptr`, readable and writable
 *
 * For tensors that an engine writes to, where the store's memory is read-only. ptr, size_bytes: in
 * mappings of this handle. copy: at another address; it stays where it is, also while the handle
 * sleeps, until gmsfs_free_private or gmsfs_close. It is no part of the store, nor on its account.
 * On a GPU it has what was written by all work that was given to the context before.
 * Errors: -ENOENT (not mapped now), -ENOMEM (the device, or the machine, is full).
 */
GMSFS_API int gmsfs_copy_private(gmsfs_t *handle, const void *ptr, uint64_t size_bytes,
                                 void **copy);
/* ptr: from gmsfs_copy_private. Errors: -ENOENT. */
GMSFS_API int gmsfs_free_private(gmsfs_t *handle, void *ptr);

/* What of the device this process has by this handle, for engines that size their caches. */
GMSFS_API int gmsfs_memory_info(gmsfs_t *handle, struct gmsfs_memory_info *info, size_t info_bytes);
#define gmsfs_memory_info(handle, info) \
    gmsfs_memory_info(handle, info, sizeof(struct gmsfs_memory_info))

/*
 * gmsfs_resolve - which allocation, and where in it, `ptr` points to
 *
 * ptr: anywhere in a mapping of this handle, preserved ones included. slot, offset: optional.
 * Errors: -ENOENT.
 */
GMSFS_API int gmsfs_resolve(gmsfs_t *handle, const void *ptr, uint64_t *slot, uint64_t *offset);

/*
 * gmsfs_locate - where in this process a byte of an allocation is: the other way round
 *
 * slot, offset: as metadata has them. ptr: in a mapping of the layout that this handle last saw,
 * the lowest if there are several, preserved ones included. Errors: -ENOENT (not mapped).
 */
GMSFS_API int gmsfs_locate(gmsfs_t *handle, uint64_t slot, uint64_t offset, void **ptr);

/*
 * gmsfs_descriptor_of - a new descriptor of the memory behind `ptr`, which the caller closes
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
