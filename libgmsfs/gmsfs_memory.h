/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gmsfs_memory.h - the memory of a store: allocations, addresses, mappings, sleep, metadata
 *
 * The second half of gmsfs.h, which includes it: programs include that header, and the rules at its
 * beginning hold here. Tier 1 handles allocations, virtual addresses and metadata one by one. Tier
 * 2 handles whole mappings: it also puts a process to sleep (gmsfs_unmap_all_vas) and wakes it
 * (gmsfs_remap_all_vas) with every pointer as it was. Changes need the writer's lock, mappings the
 * lock of a reader or of the writer.
 */
#ifndef GMSFS_MEMORY_H
#define GMSFS_MEMORY_H

#include "gmsfs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How memory is mapped or exported. */
enum gmsfs_access {
    GMSFS_ACCESS_READ = 1,
    GMSFS_ACCESS_WRITE = 2, /* reading and writing; needs the RW or RW_DATA lock */
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
 * flags: GMSFS_ALLOC_NOWAIT: -ENOMEM at once. GMSFS_ALLOC_EXACT: for an immutable layout: host
 * memory ends with size_bytes. A mapping of this library is private zeros from the next page on,
 * where writes are lost; the rest of the last page is shared memory, which the commit clears.
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
 * of the aligned size (GMSFS_ALLOC_EXACT: of the size), for mmap(2), pread(2) and sendfile(2); with
 * GMSFS_ACCESS_READ a read-only one. On a GPU it is for cuMemImportFromShareableHandle, and the
 * importer chooses the access. Needs the lock. After GMSFS_ACCESS_WRITE on committed memory an
 * abort can no longer roll back. Errors: -ENOLCK, -EACCES (WRITE as reader), -ENOENT (no such
 * slot); -EAGAIN: its bytes are not on the device (GMSFS_CONNECT_REPLACE), -ENODATA: they were
 * given up; -EBUSY: it is being written by its file.
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
