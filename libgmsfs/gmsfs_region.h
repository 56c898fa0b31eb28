/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs_region.h - regions: named shared memory of clients, for servers that are asked by name
 *
 * A region is a named piece of memory that a client registered, for a server that it then asks by
 * name, as clients of NVIDIA Triton do: a piece of a POSIX shared-memory object, of a committed
 * allocation of a store, or what a CUDA memory handle stands for. It belongs to a uid, its owner:
 * names are unique for one uid, over both kinds, and only the owner and root see, open or
 * unregister it. The mount shows it as regions/UID/NAME.
 *
 * The object's descriptor is kept from registering on, and its key never opened again: what the key
 * names later is of no matter. A region over STORE/ALLOCATION holds a reader's lock of that store
 * as long as it is registered; the end of that session (gmsfs(5), revocation) ends the region.
 *
 * An open region (gmsfs_region_open) is a reference. One that is unregistered meanwhile drains: it
 * stays in the list, its name stays taken, it can be opened, and it goes with its last reference.
 * Whoever dies drops all of its references, for they are open files.
 *
 * uid: of a region's owner. GMSFS_REGION_SELF is the caller; another one is for root, else -EPERM.
 * reason: optional; why it failed, where the errno leaves more than one cause (gmsfs_abi.h). Unlike
 * other outputs it is also written on failure.
 *
 * What Triton tells its clients, and what of these calls says so:
 *   name is taken                           register: -EEXIST (EXISTS)
 *   key is invalid, reserved                register: -EINVAL (BAD_KEY, RESERVED_KEY)
 *   the object cannot be opened             register: NO_OBJECT, with any errno
 *   offset + byte_size beyond the object    register: -EINVAL (BAD_RANGE)
 *   byte_size 0                             register: -EINVAL (NO_SIZE)
 *   handle that has not 64 bytes            register: -EINVAL (BAD_HANDLE)
 *   no such region of this kind             get, list: -ENOENT (UNKNOWN), unregister: -ENOENT
 *   no such region of any kind              open: -ENOENT (UNKNOWN)
 *   access: offset at or behind the end;    check, read, write: -ERANGE (BAD_OFFSET;
 *     a sum that overflows; beyond the end    OVERFLOW; BAD_END)
 *   a client's object that has shrunk       read, write, map: -ENODATA (SHRUNK)
 *
 * THREADS, SIGNALS, FORK. As for handles: calls on one gmsfs_regions_t are done one after the
 * other, one from a handler that interrupts another is -EDEADLK, and in a child of fork() it is
 * dead (-ECHILD). gmsfs_region_t are independent of it and of each other,
 * and may outlive it; of one, gmsfs_region_read, _write and the properties may be called by several
 * threads at a time, _map, _unmap, _detach and _close by nobody beside. A child of fork() has their
 * descriptors and mappings, and those of the gmsfs_regions_t, until it closes both, or ends, or
 * execs: descriptors cannot be closed by fork(). It may read, write and map; the reference is its
 * parent's, who alone gives it back, or the end of both.
 */
#ifndef GMSFS_REGION_H
#define GMSFS_REGION_H

#include "gmsfs.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gmsfs_regions gmsfs_regions_t; /* the regions of one mount */
typedef struct gmsfs_region gmsfs_region_t;   /* a reference to one */

/*
 * gmsfs_regions_open - the regions of the mount at `path` (its root: /mnt/gms/gpu0)
 *
 * Keeps two descriptors at most. Errors: -ENOENT, -EACCES, -ENOTDIR as open(2); -ENOTTY: `path` is
 * not the root of a gmsfs mount, or of one whose daemon knows no regions.
 */
GMSFS_API int gmsfs_regions_open(const char *path, gmsfs_regions_t **regions);
/*
 * gmsfs_regions_cancel - end what another thread waits for in a call on `regions`
 *
 * For an answer of the mount, up to half a minute where its daemon does not run. That call is
 * -ECANCELED within a tenth of a second; whether what it asked for will be done is not known. None
 * that waits is no error, and calls that come later are not cancelled. What is looked up in the
 * mount itself, as by the first call, the one after a call that was cancelled, and
 * gmsfs_region_open, ends as the daemon goes on, or ends.
 * Errors: -EINVAL: NULL; -EBADF: it is closed; -ECHILD: in a child of fork().
 */
GMSFS_API int gmsfs_regions_cancel(gmsfs_regions_t *regions);
/* Regions stay registered, references stay good; who waits in a call is cancelled. NULL is allowed.
 */
GMSFS_API void gmsfs_regions_close(gmsfs_regions_t *regions);

/* What to register. Zeros stand for what does not apply. */
struct gmsfs_region_request {
    enum gmsfs_region_kind kind;
    uint32_t uid;           /* the owner */
    uint32_t gid;           /* these three: of another owner, by which he may read stores; of the */
    const uint32_t *groups; /* caller the mount knows them. At most GMSFS_REGION_GROUPS_MAX */
    size_t group_count;
    const char *name; /* 1..GMSFS_REGION_NAME_MAX bytes of UTF-8 */
    /* SYSTEM: where the object is from, 1..GMSFS_REGION_KEY_MAX bytes of UTF-8. With a slash inside
     * it is STORE/ALLOCATION (the file's name in `allocations/`), else an object in /dev/shm, as
     * shm_open(3) takes it. Slashes before it count for nothing, nor do those behind it. CUDA: NULL
     */
    const char *key;
    int fd; /* SYSTEM: of the object, open for reading, and for writing if a server is to write; it
             * stays the caller's. -1: STORE/ALLOCATION, or opened here as the calling process may
             * (then not for another uid: -EINVAL (BAD_OBJECT)). CUDA: -1 */
    uint64_t offset;        /* SYSTEM: bytes into the object */
    uint64_t byte_size;     /* > 0 */
    int64_t device_id;      /* CUDA: passed on as it is */
    const void *raw_handle; /* CUDA */
    size_t raw_handle_bytes;
};

/*
 * gmsfs_region_register - register a region; when it returns it can be opened
 *
 * Errors, with their reasons in gmsfs_abi.h: -EEXIST, -EINVAL, -ENAMETOOLONG, -EPERM, -EDQUOT,
 * -ENOSPC, -ENFILE, -ENODEV, and where the key cannot be opened (NO_OBJECT) any of open(2). Of
 * STORE/ALLOCATION: -ENOENT, -EACCES (NO_OBJECT); -EAGAIN, -ENODATA (UNCOMMITTED).
 */
GMSFS_API int gmsfs_region_register(gmsfs_regions_t *regions,
                                    const struct gmsfs_region_request *request,
                                    enum gmsfs_region_reason *reason);

/*
 * gmsfs_region_unregister - the region goes, at once or with its last reference
 *
 * kind: GMSFS_REGION_ANY takes either. One that drains already is no error.
 * Errors: -ENOENT: there is none of this name and kind, which Triton calls success; -EPERM.
 */
GMSFS_API int gmsfs_region_unregister(gmsfs_regions_t *regions, uint32_t uid,
                                      enum gmsfs_region_kind kind, const char *name);
/* All of one owner and kind. count: optional; how many were, none is no error. -EPERM */
GMSFS_API int gmsfs_region_unregister_all(gmsfs_regions_t *regions, uint32_t uid,
                                          enum gmsfs_region_kind kind, uint64_t *count);

/* One region's facts, without a reference. kind: may be GMSFS_REGION_ANY. -ENOENT, -EPERM */
GMSFS_API int gmsfs_region_get(gmsfs_regions_t *regions, uint32_t uid, enum gmsfs_region_kind kind,
                               const char *name, struct gmsfs_region_info *info, size_t info_bytes);
#define gmsfs_region_get(regions, uid, kind, name, info) \
    gmsfs_region_get(regions, uid, kind, name, info, sizeof(struct gmsfs_region_info))

/*
 * gmsfs_region_list - the facts of all regions of one owner and kind, bytewise by name
 *
 * list: freed by gmsfs_region_list_free; NULL where count is 0. What others register or unregister
 * meanwhile is in it or not; what is there all the time is in it once. Errors: -EPERM.
 */
GMSFS_API int gmsfs_region_list(gmsfs_regions_t *regions, uint32_t uid, enum gmsfs_region_kind kind,
                                struct gmsfs_region_info **list, size_t *count, size_t item_bytes);
#define gmsfs_region_list(regions, uid, kind, list, count) \
    gmsfs_region_list(regions, uid, kind, list, count, sizeof(struct gmsfs_region_info))
GMSFS_API void gmsfs_region_list_free(struct gmsfs_region_info *list);

/*
 * gmsfs_region_open - take a reference to a region, with its descriptor and facts
 *
 * Of either kind, draining ones too: Triton's clients may go on with what they have unregistered.
 * Takes one descriptor, and a second one where the region has one.
 * Errors: -ENOENT (UNKNOWN); -EPERM (NOT_OWNER); -EMFILE, -ENFILE, -EDQUOT.
 */
GMSFS_API int gmsfs_region_open(gmsfs_regions_t *regions, uint32_t uid, const char *name,
                                gmsfs_region_t **region, enum gmsfs_region_reason *reason);

/*
 * gmsfs_region_close - unmap it and drop the reference; when it returns the mount has
 *
 * So a region that drains is gone then, if this was its last one. The mount may be dead. NULL is
 * allowed.
 */
GMSFS_API void gmsfs_region_close(gmsfs_region_t *region);

/* The facts as gmsfs_region_open was told them: `references` and GMSFS_REGION_DRAINING may have
 * changed since. Valid until gmsfs_region_close. NULL: `region` is. */
GMSFS_API const struct gmsfs_region_info *gmsfs_region_info(const gmsfs_region_t *region);

/* The object's descriptor, which stays the region's; the region begins at info's `offset` in it.
 * With GMSFS_MEMORY_HOST for pread(2), pwrite(2) and mmap(2); with GMSFS_MEMORY_CUDA for
 * cuMemImportFromShareableHandle. -ENODATA: the region has none (CUDA: info's raw_handle). */
GMSFS_API int gmsfs_region_descriptor(const gmsfs_region_t *region);

/*
 * gmsfs_region_check - would an access of `size_bytes` at `offset` be inside the region?
 *
 * Asks nobody: for whoever has only info. In this order: offset at or behind the end, a sum that
 * overflows, an end that is behind the region's. 0, -ERANGE
 */
GMSFS_API int gmsfs_region_check(const struct gmsfs_region_info *info, uint64_t offset,
                                 uint64_t size_bytes, enum gmsfs_region_reason *reason);

/*
 * gmsfs_region_read, gmsfs_region_write - bytes of a region, all or an error; never a signal
 *
 * offset: from the region's beginning. Of an allocation of a GPU's mount bytes come by way of the
 * daemon. Nothing is locked: what a client does at the same time is mixed in.
 * Errors: -ERANGE with a reason; -ENODATA (SHRUNK): the object ends before, and nothing, or a part,
 *   was moved; -EACCES: it may only be read (no GMSFS_REGION_WRITABLE); -EOPNOTSUPP: kind is CUDA;
 *   -ESTALE: the lock of its store is over, and a GPU has the bytes.
 */
GMSFS_API int gmsfs_region_read(gmsfs_region_t *region, uint64_t offset, void *bytes,
                                size_t size_bytes, enum gmsfs_region_reason *reason);
GMSFS_API int gmsfs_region_write(gmsfs_region_t *region, uint64_t offset, const void *bytes,
                                 size_t size_bytes, enum gmsfs_region_reason *reason);

/*
 * gmsfs_region_map - the whole region in this process, shared with its client
 *
 * ptr: its first byte, aligned as `offset` is. Valid until gmsfs_region_unmap or _close.
 * A client's object is the client's: it can be made smaller at any time, and whoever then touches a
 * page behind its end gets SIGBUS. So a server that must not die reads and writes by
 * gmsfs_region_read and _write, or maps only what is GMSFS_REGION_ALLOCATION, which never shrinks.
 * Errors: -EBUSY: it is mapped; -EACCES (WRITE): it may only be read; -ENODATA: it has shrunk by
 *   now; -EOPNOTSUPP: it is no host memory.
 */
GMSFS_API int gmsfs_region_map(gmsfs_region_t *region, enum gmsfs_access access, void **ptr);
/* Not being mapped is no error. */
GMSFS_API int gmsfs_region_unmap(gmsfs_region_t *region);

/*
 * gmsfs_region_detach, gmsfs_region_attach - hand a reference to another process
 *
 * detach: ends `region`, and leaves its open file, which is the reference, and its descriptor (-1:
 *   it has none) to the caller, to be sent by SCM_RIGHTS and then closed: what holds the reference
 *   is the copy that arrives. Errors: -EBUSY: it is mapped.
 * attach: makes a region of what came, in a process of any uid; the descriptors are its own then.
 *   info: as gmsfs_region_info told it. Errors: -EBADF; on failure the descriptors stay the
 *   caller's.
 */
GMSFS_API int gmsfs_region_detach(gmsfs_region_t *region, int *file, int *fd);
GMSFS_API int gmsfs_region_attach(int file, int fd, const struct gmsfs_region_info *info,
                                  gmsfs_region_t **region, size_t info_bytes);
#define gmsfs_region_attach(file, fd, info, region) \
    gmsfs_region_attach(file, fd, info, region, sizeof(struct gmsfs_region_info))

#ifdef __cplusplus
}
#endif
#endif
