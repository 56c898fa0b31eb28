/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs_region.h - regions: named shared memory of clients, for servers that get requests by name
 *
 * A region is a named piece of memory that a client registered. Its requests to a server then name
 * it, as clients of NVIDIA Triton do. It is a piece of a POSIX shared-memory object, of a committed
 * allocation of a store, or the memory of a CUDA memory handle. It belongs to a uid, its owner:
 * names are unique for one uid, over both kinds, and only the owner and root see, open or
 * unregister it. The mount shows it as regions/UID/NAME.
 *
 * The mount holds the object's descriptor from registration on, and never opens the key again: the
 * key may name another object later. A region over STORE/ALLOCATION holds a reader's lock of that
 * store as long as it is registered; the end of that session (gmsfs(5), revocation) ends the
 * region.
 *
 * An open region (gmsfs_region_open) is a reference. A region that is unregistered while open
 * drains: it stays in the list, its name stays taken, it can be opened, and it ends with its last
 * reference. A process that dies drops all of its references, because they are open files.
 *
 * uid: of a region's owner. GMSFS_REGION_SELF is the caller; only root may name another one, else
 *   -EPERM.
 * reason: optional; why the call failed, if the errno has more than one cause (gmsfs_abi.h). Unlike
 * other outputs it is also written on failure.
 *
 * Triton's answers to its clients, and the results of these calls that stand for them:
 *   name is taken                           register: -EEXIST (EXISTS)
 *   key is invalid, reserved                register: -EINVAL (BAD_KEY, RESERVED_KEY)
 *   the object cannot be opened             register: NO_OBJECT, with any errno
 *   offset + byte_size beyond the object    register: -EINVAL (BAD_RANGE)
 *   byte_size 0                             register: -EINVAL (NO_SIZE)
 *   handle not of 64 bytes                  register: -EINVAL (BAD_HANDLE)
 *   no such region of this kind             get, list: -ENOENT (UNKNOWN), unregister: -ENOENT
 *   no such region of any kind              open: -ENOENT (UNKNOWN)
 *   access: offset at or behind the end;    check, read, write: -ERANGE (BAD_OFFSET;
 *     a sum that overflows; beyond the end    OVERFLOW; BAD_END)
 *   a client's object that has shrunk       read, write, map: -ENODATA (SHRUNK)
 *
 * THREADS, SIGNALS, FORK. As for handles: calls on one gmsfs_regions_t run one after the other, a
 * call from a signal handler that interrupts another is -EDEADLK, and in a child of fork() the
 * object is dead (-ECHILD). A gmsfs_region_t is independent of it and of other regions, and may
 * outlive it. Several threads may call gmsfs_region_read, _write and the properties of one region
 * at a time; _map, _unmap, _detach and _close need it alone. fork() cannot close descriptors: a
 * child has those of its parent's regions and gmsfs_regions_t, and the mappings, until it closes
 * both, ends, or execs. It may read, write and map; the reference belongs to the parent, and ends
 * when the parent closes it, or when both processes have ended.
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
 * gmsfs_regions_open - open the regions of the mount at `path` (its root: /mnt/gms/gpu0)
 *
 * Needs two descriptors at most. Errors: -ENOENT, -EACCES, -ENOTDIR as open(2); -ENOTTY: `path` is
 * not the root of a gmsfs mount, or its daemon knows no regions.
 */
GMSFS_API int gmsfs_regions_open(const char *path, gmsfs_regions_t **regions);
/*
 * gmsfs_regions_cancel - end the wait of another thread's call on `regions`
 *
 * A call waits for an answer of the mount, up to half a minute if its daemon does not run. The
 * cancelled call answers -ECANCELED within a tenth of a second; whether the daemon will carry out
 * its request is not known. No waiting call is no error, and later calls are not cancelled. Lookups
 * in the mount itself (by the first call, the call after a cancelled one, and gmsfs_region_open)
 * cannot be cancelled: they end when the daemon continues, or ends.
 * Errors: -EINVAL: NULL; -EBADF: it is closed; -ECHILD: in a child of fork().
 */
GMSFS_API int gmsfs_regions_cancel(gmsfs_regions_t *regions);
/* Closes it. Regions stay registered, references stay valid; waiting calls are cancelled. NULL is
 * allowed. */
GMSFS_API void gmsfs_regions_close(gmsfs_regions_t *regions);

/* A region to register. Fields that do not apply are zero. */
struct gmsfs_region_request {
    enum gmsfs_region_kind kind;
    uint32_t uid; /* the owner */
    uint32_t gid; /* these three: the groups by which another owner may read stores; the */
    const uint32_t *groups; /* mount knows the caller's own. At most GMSFS_REGION_GROUPS_MAX */
    size_t group_count;
    const char *name; /* 1..GMSFS_REGION_NAME_MAX bytes of UTF-8 */
    /* SYSTEM: the object's name, 1..GMSFS_REGION_KEY_MAX bytes of UTF-8. With a slash inside it is
     * STORE/ALLOCATION (the file's name in `allocations/`), else an object in /dev/shm, as
     * shm_open(3) takes it. Leading and trailing slashes are ignored. CUDA: NULL
     */
    const char *key;
    int fd; /* SYSTEM: of the object, open for reading, and for writing if the server has to write;
             * the caller still owns it. -1: STORE/ALLOCATION, or to open the key here with the
             * caller's rights (not for another uid: -EINVAL (BAD_OBJECT)). CUDA: -1 */
    uint64_t offset;        /* SYSTEM: bytes into the object */
    uint64_t byte_size;     /* > 0 */
    int64_t device_id;      /* CUDA: passed on as it is */
    const void *raw_handle; /* CUDA */
    size_t raw_handle_bytes;
};

/*
 * gmsfs_region_register - register a region; once the call returns it can be opened
 *
 * Errors, with their reasons in gmsfs_abi.h: -EEXIST, -EINVAL, -ENAMETOOLONG, -EPERM, -EDQUOT,
 * -ENOSPC, -ENFILE, -ENODEV, and if the key cannot be opened (NO_OBJECT) any of open(2). For
 *   STORE/ALLOCATION: -ENOENT, -EACCES (NO_OBJECT); -EAGAIN, -ENODATA (UNCOMMITTED).
 */
GMSFS_API int gmsfs_region_register(gmsfs_regions_t *regions,
                                    const struct gmsfs_region_request *request,
                                    enum gmsfs_region_reason *reason);

/*
 * gmsfs_region_unregister - remove the region, at once or with its last reference
 *
 * kind: GMSFS_REGION_ANY means either. A region that drains already is no error.
 * Errors: -ENOENT: no region of this name and kind, which Triton calls success; -EPERM.
 */
GMSFS_API int gmsfs_region_unregister(gmsfs_regions_t *regions, uint32_t uid,
                                      enum gmsfs_region_kind kind, const char *name);
/* Unregisters all regions of one owner and kind. count: optional; their number, 0 is no error.
 * Errors: -EPERM. */
GMSFS_API int gmsfs_region_unregister_all(gmsfs_regions_t *regions, uint32_t uid,
                                          enum gmsfs_region_kind kind, uint64_t *count);

/* Describes one region, without a reference. kind: may be GMSFS_REGION_ANY. -ENOENT, -EPERM */
GMSFS_API int gmsfs_region_get(gmsfs_regions_t *regions, uint32_t uid, enum gmsfs_region_kind kind,
                               const char *name, struct gmsfs_region_info *info, size_t info_bytes);
#define gmsfs_region_get(regions, uid, kind, name, info) \
    gmsfs_region_get(regions, uid, kind, name, info, sizeof(struct gmsfs_region_info))

/*
 * gmsfs_region_list - describe all regions of one owner and kind, bytewise by name
 *
 * list: freed by gmsfs_region_list_free; NULL if count is 0. A region that is registered or
 * unregistered meanwhile may be in it or not; every other region is in it once. Errors: -EPERM.
 */
GMSFS_API int gmsfs_region_list(gmsfs_regions_t *regions, uint32_t uid, enum gmsfs_region_kind kind,
                                struct gmsfs_region_info **list, size_t *count, size_t item_bytes);
#define gmsfs_region_list(regions, uid, kind, list, count) \
    gmsfs_region_list(regions, uid, kind, list, count, sizeof(struct gmsfs_region_info))
GMSFS_API void gmsfs_region_list_free(struct gmsfs_region_info *list);

/*
 * gmsfs_region_open - take a reference to a region, with its descriptor and facts
 *
 * Of either kind, also a draining one: Triton's clients may still use a region that they have
 * unregistered. Needs one descriptor, and a second one if the region has one.
 * Errors: -ENOENT (UNKNOWN); -EPERM (NOT_OWNER); -EMFILE, -ENFILE, -EDQUOT.
 */
GMSFS_API int gmsfs_region_open(gmsfs_regions_t *regions, uint32_t uid, const char *name,
                                gmsfs_region_t **region, enum gmsfs_region_reason *reason);

/*
 * gmsfs_region_close - unmap the region and drop the reference, in the mount too
 *
 * So a draining region is gone once the call returns, if this was its last reference. The mount may
 * be dead. NULL is allowed.
 */
GMSFS_API void gmsfs_region_close(gmsfs_region_t *region);

/* Returns the facts at the time of gmsfs_region_open: `references` and GMSFS_REGION_DRAINING may
 * have changed since. Valid until gmsfs_region_close. NULL only if `region` is. */
GMSFS_API const struct gmsfs_region_info *gmsfs_region_info(const gmsfs_region_t *region);

/* Returns the object's descriptor, owned by the region; the region begins at info's `offset` in it.
 * With GMSFS_MEMORY_HOST it is for pread(2), pwrite(2) and mmap(2); with GMSFS_MEMORY_CUDA for
 * cuMemImportFromShareableHandle. -ENODATA: the region has none (CUDA: info's raw_handle). */
GMSFS_API int gmsfs_region_descriptor(const gmsfs_region_t *region);

/*
 * gmsfs_region_check - check that an access of `size_bytes` at `offset` is inside the region
 *
 * Pure: needs only info. Checked in this order: offset at or behind the end, a sum that
 * overflows, an end that is behind the region's. 0, -ERANGE
 */
GMSFS_API int gmsfs_region_check(const struct gmsfs_region_info *info, uint64_t offset,
                                 uint64_t size_bytes, enum gmsfs_region_reason *reason);

/*
 * gmsfs_region_read, gmsfs_region_write - move bytes of a region, all or an error; never a signal
 *
 * offset: from the region's beginning. Bytes of an allocation on a GPU come through the daemon.
 * Nothing is locked: writes of the client at the same time are mixed in.
 * Errors: -ERANGE with a reason; -ENODATA (SHRUNK): the object ends before that, and no
 *   byte, or a part, was moved; -EACCES: the region is read-only (no GMSFS_REGION_WRITABLE);
 *   -EOPNOTSUPP: kind is CUDA; -ESTALE: the lock of its store is over, and a GPU has the bytes.
 */
GMSFS_API int gmsfs_region_read(gmsfs_region_t *region, uint64_t offset, void *bytes,
                                size_t size_bytes, enum gmsfs_region_reason *reason);
GMSFS_API int gmsfs_region_write(gmsfs_region_t *region, uint64_t offset, const void *bytes,
                                 size_t size_bytes, enum gmsfs_region_reason *reason);

/*
 * gmsfs_region_map - map the whole region into this process, shared with its client
 *
 * ptr: its first byte, aligned as `offset` is. Valid until gmsfs_region_unmap or _close.
 * The client can make its object smaller at any time, and touching a page behind the new end is
 * SIGBUS. So a server that must not die reads and writes by gmsfs_region_read and _write, or maps
 * only regions that are GMSFS_REGION_ALLOCATION, which never shrink.
 * Errors: -EBUSY: it is mapped; -EACCES (WRITE): it is read-only; -ENODATA: it has shrunk;
 *   -EOPNOTSUPP: it is no host memory.
 */
GMSFS_API int gmsfs_region_map(gmsfs_region_t *region, enum gmsfs_access access, void **ptr);
/* Unmaps the region; an unmapped one is no error. */
GMSFS_API int gmsfs_region_unmap(gmsfs_region_t *region);

/*
 * gmsfs_region_detach, gmsfs_region_attach - hand a reference to another process
 *
 * detach: ends `region`, and gives the caller its open file, which is the reference, and its
 *   descriptor (-1: it has none). Send both by SCM_RIGHTS, then close them: the received copy holds
 *   the reference. Errors: -EBUSY: it is mapped.
 * attach: makes a region of the received descriptors, in a process of any uid, and owns them from
 *   then on. info: as gmsfs_region_info returned it. Errors: -EBADF; on failure the caller still
 *   owns the descriptors.
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
